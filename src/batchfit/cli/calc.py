"""`batchfit calc`: a calculator in the terminal."""

from __future__ import annotations

import json

import click

from batchfit import calculators
from batchfit.calculator import Calculator, Value
from batchfit.cli._language import lang_option
from batchfit.cli._panel import Panel
from batchfit.errors import BadInput
from batchfit.fields import Reading
from batchfit.languages import translate
from batchfit.wording import all_in_words, complaint, signed


class Shelf(click.Group):
    """The calculators as subcommands; without a name, the default one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [calculators.DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(calculators.slugs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in calculators.slugs():
            return None
        return calculator_command(calculators.load(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in calculators.slugs():
            known = ", ".join(calculators.slugs())
            raise click.UsageError(f"there is no calculator {args[0]!r}; there are: {known}", ctx)
        return super().resolve_command(ctx, args)


def calculator_command(calculator: Calculator) -> click.Command:
    """The command of one calculator: an option for each of its fields."""

    def run(lang: str, as_json: bool, explain: bool, **typed: str | None) -> None:
        readings = read_inputs(calculator, typed, lang)
        results = calculator.evaluate({name: reading.value for name, reading in readings.items()})
        if as_json:
            click.echo(json.dumps(results.as_json(calculator), indent=2))
        else:
            click.echo(render(calculator, readings, results.outputs, results.choices, lang))
            if explain:
                # The printer of formulas costs more to import than all the rest: only who asks for it pays.
                from batchfit.cli._formulas import formulas

                click.echo("\n" + formulas(calculator, results, size_unit(calculator, readings), lang))

    options: list[click.Parameter] = [_option(calculator, name) for name in _names(calculator)]
    return click.Command(
        calculator.slug,
        params=[
            *options,
            lang_option(),
            click.Option(["--explain"], is_flag=True, help="Show the formulas with the numbers put in."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        ],
        callback=run,
        help=calculator.purpose,
        epilog=_examples(calculator),
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def read_inputs(calculator: Calculator, typed: dict[str, str | None], lang: str) -> dict[str, Reading]:
    """What was typed, with defaults for what was left out. Raises click.UsageError naming the option."""
    inverse = calculator.inverse
    backwards = inverse is not None and typed[inverse.given.name] is not None
    if inverse and backwards and typed[inverse.solved] is not None:
        solved, given = calculator.field(inverse.solved).option, inverse.given.option
        raise click.UsageError(f"{solved} is what {given} finds: give one of the two")
    readings = {}
    for field in calculator.all_fields:
        if inverse and field.name == (inverse.solved if backwards else inverse.given.name):
            continue
        text = typed[field.name]
        try:
            if text is None:
                readings[field.name] = field.read(field.default or "")
            else:
                readings[field.name] = field.read(text, lang)
        except BadInput as wrong:
            raise click.UsageError(f"{field.option} {complaint(wrong, lang)}") from None
    return readings


def size_unit(calculator: Calculator, readings: dict[str, Reading]) -> str:
    """The unit that results in bytes are shown in: the one that the first size was typed in, or GB."""
    for name, reading in readings.items():
        if calculator.field(name).kind == "bytes":
            return reading.unit
    return "GB"


def render(
    calculator: Calculator,
    readings: dict[str, Reading],
    outputs: dict[str, Value],
    choices: tuple[dict[str, Value], ...],
    lang: str,
) -> str:
    """The answer for people: one sentence, the numbers with how they come about, what to try next."""
    values: dict[str, Value] = {name: reading.value for name, reading in readings.items()} | outputs
    units = {
        name: reading.unit for name, reading in readings.items() if calculator.field(name).kind == "bytes"
    }
    units |= {o.name: size_unit(calculator, readings) for o in calculator.outputs if o.kind == "bytes"}
    words = all_in_words(calculator, values, lang, units)

    panel = Panel(translate(calculator.answer, lang).format(**words))
    rows = list(calculator.outputs)
    if calculator.inverse and choices:
        solved = calculator.field(calculator.inverse.solved)
        panel.row(translate(solved.label, lang), words[solved.name], "")
        if outputs[calculator.inverse.drift.name]:
            rows.append(calculator.inverse.drift)
    for output in rows:
        panel.row(
            translate(output.label, lang), words[output.name], translate(output.reading, lang).format(**words)
        )
    if calculator.inverse and len(choices) > 1:
        panel.note(translate("The choices around the target:", lang))
        for choice in choices:
            named = all_in_words(calculator, choice, lang)
            reached, drift = named[calculator.inverse.reaches], calculator.inverse.drift
            panel.row(
                "",
                named[calculator.inverse.solved],
                f"{reached} ({signed(choice[drift.name], lang)})",
            )
    for name, reading in readings.items():
        if reading.ambiguous:
            read_as = translate("{label} read as {number}", lang)
            label = translate(calculator.field(name).label, lang)
            panel.note(read_as.format(label=label, number=reading.echo))
    return panel.text()


def _names(calculator: Calculator) -> list[str]:
    return [field.name for field in calculator.all_fields]


def _option(calculator: Calculator, name: str) -> click.Option:
    field = calculator.field(name)
    default = (
        f"[default: {field.default}{' ' + field.unit if field.kind == 'bytes' else ''}]"
        if field.default
        else ""
    )
    return click.Option(
        [field.option, field.name],
        metavar="SIZE" if field.kind == "bytes" else "N",
        help=f"{field.help} {default}".strip(),
    )


def _examples(calculator: Calculator) -> str:
    lines = ["\b", "Examples:", f"  batchfit calc {calculator.slug}"]
    given = " ".join(f"{field.option} {field.default}" for field in calculator.fields if field.default)
    lines.append(f"  batchfit calc {calculator.slug} {given} --json")
    if calculator.inverse:
        lines.append(f"  batchfit calc {calculator.slug} {calculator.inverse.given.option} 256")
    return "\n".join(lines)


command: click.Command = Shelf(
    "calc",
    help=(
        "Run a calculator; gradient-accumulation where none is named. Sizes are written 0.5GB or 512MiB; "
        "a bare number is GB."
    ),
    invoke_without_command=False,
    subcommand_metavar="[CALCULATOR] [--FIELD VALUE ...]",
    epilog="\b\nExamples:\n  batchfit calc --micro-batch 4 --accumulation-steps 8 --activation-per-sample 0.5GB\n"
    "  batchfit calc --target-batch 250 --micro-batch 4 --replicas 8 --json\n"
    "  batchfit calc gradient-accumulation --help",
)
