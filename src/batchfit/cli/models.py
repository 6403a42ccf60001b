"""`batchfit models`: the catalogue of models as a table, or the profiles there are of one."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict

import click

from batchfit.cli._panel import Panel
from batchfit.models import ModelEntry, Variant, find_model, load_models, nearby, variants


@click.command(
    epilog="\b\nExamples:\n  batchfit models\n  batchfit models llama-3.1-8b\n  batchfit models --json"
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List the models that can be planned without tracing them, or show what there is of one (NAME)."""
    if name is None:
        entries = load_models()
    elif entry := find_model(name):
        entries = (entry,)
    else:
        near = nearby(name)
        hint = f"; did you mean {' or '.join(near)}?" if near else ", which `batchfit models` lists"
        raise click.UsageError(f"NAME must be a model of the catalogue{hint}; you typed {name!r}")
    if as_json:
        listed = [_data(entry) for entry in entries]
        click.echo(json.dumps(listed if name is None else listed[0], indent=2))
    elif name is not None:
        click.echo(describe(entries[0]))
    else:
        print_list(entries)


def _data(entry: ModelEntry) -> dict[str, object]:
    return {**asdict(entry), "profiles": [asdict(variant) for variant in variants(entry.name)]}


def describe(entry: ModelEntry) -> str:
    """One model: a sentence, and the ways of training that there are profiles of."""
    panel = Panel(f"{entry.title}: {entry.parameters:,} parameters.")
    panel.row("family", entry.family, entry.kind)
    if entry.context:
        panel.row("context", f"{entry.context:,}", "tokens at most")
    panel.row("from", entry.source, "")
    grouped: dict[tuple[str, str, str], list[Variant]] = {}
    for variant in variants(entry.name):
        grouped.setdefault((variant.precision, variant.optimizer, variant.trained), []).append(variant)
    for (precision, optimizer, trained), found in grouped.items():
        panel.row(
            precision, trained, f"{optimizer}; checkpointing {', '.join(v.checkpointing for v in found)}"
        )
    panel.note(f"Plan with it: batchfit plan {entry.name} --batch 256 --gpu h100-80gb --gpus 8")
    return panel.text()


def print_list(entries: tuple[ModelEntry, ...]) -> None:
    """The table, by family."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    click.secho(f"{len(entries)} models that can be planned without tracing them.\n", bold=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("profiles", justify="right", no_wrap=True)
    table.add_column("model")
    for entry in sorted(entries, key=lambda entry: (entry.family, entry.parameters)):
        table.add_row(entry.name, f"{entry.parameters:,}", str(len(variants(entry.name))), entry.title)
    console = Console(width=max(shutil.get_terminal_size().columns, 80), highlight=False)
    console.print(table)
    click.echo("Any other model: batchfit trace MODEL --save P.json, then plan P.json.")
