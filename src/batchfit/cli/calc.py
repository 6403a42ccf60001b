"""`batchfit calc`: a calculator in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from batchfit import calculators
from batchfit.calculator import Calculator, Results
from batchfit.cli._language import lang_option
from batchfit.cli._panel import Panel
from batchfit.errors import BadInput
from batchfit.fields import Field, Reading, When
from batchfit.languages import translate
from batchfit.presets import Preset
from batchfit.sentences import Code, Sentence, in_language, listed
from batchfit.wording import all_in_words, complaint, fitting_unit, signed


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
    """The command of one calculator: an option for each of its fields and presets."""

    def run(lang: str, as_json: bool, explain: bool, **typed: str | None) -> None:
        readings, chosen = read_inputs(calculator, typed, lang)
        try:
            results = calculator.evaluate({name: reading.value for name, reading in readings.items()})
        except BadInput as wrong:
            field = calculator.field(wrong.field)
            raise click.UsageError(f"{field.option} {complaint(wrong, lang)}") from None
        for idle in without_effect(calculator, typed, readings, lang):
            click.echo(in_language(idle, lang), err=True)
        if as_json:
            click.echo(
                json.dumps(results.as_json(calculator, chosen) | _sections(calculator, results), indent=2)
            )
        else:
            click.echo(render(calculator, readings, results, lang))
            if explain:
                # The printer of formulas costs more to import than all the rest: only who asks for it pays.
                from batchfit.cli._formulas import formulas

                click.echo("\n" + formulas(calculator, results, size_unit(calculator, readings), lang))

    options: list[click.Parameter] = [
        *map(_preset_option, calculator.presets),
        *map(_option, calculator.all_fields),
    ]
    return click.Command(
        calculator.slug,
        params=[
            *options,
            lang_option(),
            click.Option(
                ["--explain"],
                is_flag=True,
                help="Show the formulas with the numbers put in, and their sources.",
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        ],
        callback=run,
        help=calculator.purpose,
        epilog=_examples(calculator),
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def read_inputs(
    calculator: Calculator, typed: dict[str, str | None], lang: str
) -> tuple[dict[str, Reading], dict[str, str]]:
    """What was typed, with what presets fill in and defaults for what was left out; and the presets chosen. Raises
    click.UsageError naming the option."""
    inverse = calculator.inverse
    backwards = inverse is not None and typed[inverse.given.name] is not None
    if inverse and backwards and typed[inverse.solved] is not None:
        both = Sentence(
            "{solved} is what {given} finds: give one of the two",
            solved=Code(calculator.field(inverse.solved).option),
            given=Code(inverse.given.option),
        )
        raise click.UsageError(in_language(both, lang))
    filled: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for preset in calculator.presets:
        if name := typed[preset.name]:
            try:
                entry = preset.find(name)
            except BadInput as wrong:
                raise click.UsageError(f"{preset.option} {complaint(wrong, lang)}") from None
            chosen[preset.name] = entry.name
            filled |= preset.texts(entry)
    readings = {}
    for field in calculator.all_fields:
        if inverse and field.name == (inverse.solved if backwards else inverse.given.name):
            continue
        text = typed[field.name]
        try:
            if text is None:
                readings[field.name] = field.read(filled.get(field.name, field.default or ""))
            else:
                readings[field.name] = field.read(text, lang)
        except BadInput as wrong:
            raise click.UsageError(f"{field.option} {complaint(wrong, lang)}") from None
    for preset in calculator.presets:
        needs = calculator.needs(preset)
        if preset.name in chosen and needs and not any(readings[w.field].value in w.values for w in needs):
            idle = Sentence(
                "{option} fills in {others}, which counts only with {choice}",
                option=Code(preset.option),
                others=Code(listed((calculator.field(name).option for name in preset.fills), lang)),
                choice=Code(" | ".join(_any_of(calculator, when) for when in needs)),
            )
            raise click.UsageError(in_language(idle, lang))
    return readings, chosen


def without_effect(
    calculator: Calculator, typed: dict[str, str | None], readings: dict[str, Reading], lang: str
) -> Iterator[Sentence]:
    """What was typed that the results do not depend on, and why: pages hide such fields, and a command cannot."""

    def given(of: Field | Preset) -> Code:
        return Code(f"{of.option} {typed[of.name]}")

    idle = set()
    for field in calculator.all_fields:
        when, other = field.only_when, field.replaced_by
        if when and readings[when.field].value not in when.values:
            choice = Code(_any_of(calculator, when))
            # Not "has no effect": a table over that choice may still have a row that depends on it.
            reason = Sentence(
                "{option} counts only with {choice}, which is not chosen.", option=given(field), choice=choice
            )
        elif other and readings[other].value is not None:
            option = Code(calculator.field(other).option)
            reason = Sentence(
                "{option} has no effect: {other} takes its place.", option=given(field), other=option
            )
        else:
            continue
        idle.add(field.name)
        if typed[field.name] is not None:
            yield reason
    for preset in calculator.presets:
        filled = [name for name in preset.fills if name not in idle]
        if typed[preset.name] and filled and all(typed[name] is not None for name in filled):
            others = listed((calculator.field(name).option for name in filled), lang)
            yield Sentence(
                "{option} has no effect: what it would fill in is given with {others}.",
                option=given(preset),
                others=Code(others),
            )


def _any_of(calculator: Calculator, when: When) -> str:
    """The option with each of the choices that will do: "--schedule cosine|linear"."""
    return f"{calculator.field(when.field).option} {'|'.join(when.values)}"


def _choosing(calculator: Calculator, when: When) -> str:
    """The option that makes a choice."""
    return f"{calculator.field(when.field).option} {when.values[0]}"


def size_unit(calculator: Calculator, readings: dict[str, Reading]) -> str:
    """The unit that results in bytes are shown in: the one that the first size was typed in, or GB."""
    for name, reading in readings.items():
        if calculator.field(name).kind == "bytes":
            return reading.unit
    return "GB"


def render(calculator: Calculator, readings: dict[str, Reading], results: Results, lang: str) -> str:
    """The answer for people: one sentence, the numbers with how they come about, what to try next."""
    outputs, choices = results.outputs, results.choices
    units = {
        name: reading.unit for name, reading in readings.items() if calculator.field(name).kind == "bytes"
    }
    usual = size_unit(calculator, readings)
    wished = units | {o.name: usual for o in calculator.outputs if o.kind == "bytes"}
    units = {
        name: unit if name in readings else fitting_unit(outputs.get(name, 0), unit)
        for name, unit in wished.items()
    }
    words = all_in_words(calculator, results.values, lang, units, results.inputs)

    panel = Panel(translate(calculator.answer, lang).format(**words))
    rows = [output for output in calculator.outputs if output.name in outputs]
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
    if calculator.sections:
        from batchfit.cli._sections import show_sections

        show_sections(panel, calculator, results, wished, lang)
    for name, reading in readings.items():
        if reading.ambiguous or reading.spelled:
            read_as = translate("{label} read as {number}", lang)
            label = translate(calculator.field(name).label, lang)
            panel.note(read_as.format(label=label, number=reading.spelled or reading.echo))
    return panel.text()


def _sections(calculator: Calculator, results: Results) -> dict[str, object]:
    """Tables and cards as data."""
    if not calculator.sections:
        return {}
    from batchfit.sections import as_json

    return as_json(calculator, results)


_METAVARS = {"bytes": "SIZE", "share": "PERCENT", "seconds": "TIME", "choice": "NAME", "choices": "NAME,NAME"}


def _option(field: Field) -> click.Option:
    default = ""
    if field.default:
        unit = f" {field.unit}" if field.kind in ("bytes", "share", "seconds") and field.unit else ""
        default = f"[default: {field.default}{unit}]"
    choices = ""
    if field.is_choice:
        choices = "; ".join(
            each.value if each.value.lower() == each.label.lower() else f"{each.value}: {each.label}"
            for each in field.choices
        )
        choices = f"[{choices}]"
    return click.Option(
        [field.option, field.name],
        metavar=_METAVARS.get(field.kind, "N"),
        help=" ".join(filter(None, (field.help, choices, default))),
    )


def _preset_option(preset: Preset) -> click.Option:
    return click.Option([preset.option, preset.name], metavar="NAME", help=preset.help)


def _examples(calculator: Calculator) -> str:
    lines = ["\b", "Examples:", f"  batchfit calc {calculator.slug}"]
    usual = {field.name: field.default for field in calculator.fields}
    given = " ".join(
        f"{field.option} {field.default}"
        for field in calculator.fields[:4]
        if field.default and (not field.only_when or usual[field.only_when.field] in field.only_when.values)
    )
    lines.append(f"  batchfit calc {calculator.slug} {given} --json")
    lines += [
        " ".join(
            [
                f"  batchfit calc {calculator.slug}",
                *(_choosing(calculator, when) for when in calculator.needs(preset)[:1]),
                f"{preset.option} {preset.usable()[0].name}",
            ]
        )
        for preset in calculator.presets
    ]
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
