"""The command line: one module per command, loaded only when it is called."""

from __future__ import annotations

import importlib
import pkgutil

import click

from batchfit import __version__
from batchfit.errors import BadInput


class Commands(click.Group):
    """Finds commands as modules of this package: `cli/calc.py` is `batchfit calc`, its `command` the click command.
    Modules whose name starts with an underscore are shared helpers."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BadInput as wrong:
            option = f"--{wrong.field.replace('_', '-')}"
            raise click.UsageError(f"{option} {wrong.reason}") from None


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: batchfit calc --help",
)
@click.version_option(__version__, prog_name="batchfit")
def cli() -> None:
    """Which micro-batch size, accumulation steps and replicas reach the batch you want on the GPUs you have,
    and what memory that takes, before any GPU is rented."""


def main() -> None:
    """The `batchfit` program."""
    cli(prog_name="batchfit")
