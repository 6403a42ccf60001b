"""Values in sentences: a number with its unit in a language, and the sentences they are put into."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from batchfit.bidi import isolate, isolated
from batchfit.calculator import Calculator, Output, Value
from batchfit.errors import BadInput
from batchfit.fields import Field, Input
from batchfit.languages import catalogue
from batchfit.numbers import (
    ASTRONOMIC,
    format_figure,
    format_number,
    format_percent,
    format_power,
    percent_sign,
)
from batchfit.sentences import listed
from batchfit.units import UNITS


def size(count: Value, unit: str, lang: str) -> str:
    """`count` bytes in `unit`, without the unit's name: four significant digits, or all before the point."""
    value = Decimal(count) / UNITS[unit]
    return (
        format_number(value, lang, significant=4)
        if abs(value) < 1000
        else format_number(value, lang, max_fraction=0)
    )


_FAMILIES = (("B", "kB", "MB", "GB", "TB", "PB"), ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def fitting_unit(count: Value, unit: str) -> str:
    """The unit that `count` bytes are shown in where `unit` is wished for: that one, or where it leaves less than a
    tenth or more than four digits, its larger or smaller relative with a number of 1 or more."""
    if not count or 0.1 <= abs(count) / UNITS[unit] < 10_000:
        return unit
    family = next(family for family in _FAMILIES if unit in family)
    return next((each for each in reversed(family) if abs(count) >= UNITS[each]), "B")


def signed(value: Value, lang: str) -> str:
    """A difference with its sign: "+6", "-26", "0"."""
    return format_number(value, lang, plus=True)


#: The units that durations are shown in, the largest first, in seconds.
DURATIONS: tuple[tuple[float, tuple[str, str]], ...] = (
    (365.25 * 86_400, ("{n} year", "{n} years")),
    (86_400, ("{n} day", "{n} days")),
    (3600, ("{n} hour", "{n} hours")),
    (60, ("{n} minute", "{n} minutes")),
    (1, ("{n} second", "{n} seconds")),
    (0.001, ("{n} millisecond", "{n} milliseconds")),
)


def duration(seconds: Value, lang: str) -> tuple[str, str, str]:
    """A duration in the largest unit of which it has at least one, with three significant digits, cut as `parts`."""
    usual = DURATIONS[-1 if seconds else -2]
    scale, forms = next((each for each in DURATIONS if abs(seconds) >= each[0]), usual)
    amount = seconds / scale
    number = format_power(amount, lang) or (
        format_number(amount, lang, significant=3)
        if abs(amount) < 100
        else format_number(amount, lang, max_fraction=0)
    )
    before, _, after = catalogue(lang).count(*forms, amount).partition("{n}")
    return before, number, after


def parts(of: Field | Output, value: Value, lang: str, unit: str | None = None) -> tuple[str, str, str]:
    """A value cut into what stands before its number, the number, and what stands after: ("", "4", " samples"). What
    is merely counted in a unit has no more than the number. Sizes are in bytes and shown in `unit`."""
    plus = isinstance(of, Output) and of.difference
    if of.kind == "seconds":
        return duration(value, lang)
    if of.kind == "bytes":
        unit = unit or of.unit
        before, after = isolate(lang)
        return before, size(value, unit, lang), f"\N{NO-BREAK SPACE}{unit}{after}"
    if of.kind == "share":
        before, after = isolate(lang)
        return before, format_percent(value, lang, plus=plus), percent_sign(lang) + after
    number = format_figure(value, lang, plus=plus)
    if "×" in number:
        number = isolated(number, lang)
    if not of.counted:
        return "", number, ""
    counted = value if abs(value) < ASTRONOMIC else 100  # a power of ten takes the form of many
    before, _, after = catalogue(lang).count(*of.counted, counted).partition("{n}")
    return before, number, after


def in_words(of: Field | Output, value: Value, lang: str, unit: str | None = None) -> str:
    """A value with its unit: "4 samples", "0.5 GB", "17.95%", "3.2 days"."""
    return "".join(parts(of, value, lang, unit))


def cell(of: Output, value: Value | None, lang: str, units: Mapping[str, str]) -> str:
    """An output's value in a table; a dash where there is none."""
    if value is None:
        return "–"
    unit = fitting_unit(value, units.get(of.name, of.unit)) if of.kind == "bytes" else None
    return in_words(of, value, lang, unit)


def chosen(of: Field, value: Input, lang: str) -> str:
    """What was chosen, in words: "AdamW", "Query, Key". None chosen is a dash."""
    wanted = (value,) if isinstance(value, str) else value
    assert isinstance(wanted, tuple)
    labels = [catalogue(lang).text(each.label) for each in of.choices if each.value in wanted]
    return listed(labels, lang) or "–"


def all_in_words(
    calculator: Calculator,
    values: Mapping[str, Value],
    lang: str,
    units: Mapping[str, str] | None = None,
    inputs: Mapping[str, Input] | None = None,
) -> dict[str, str]:
    """Every given value with its unit, by name, for the placeholders of a sentence. `units` chooses the unit of
    a size by field or output name; choices are told from the `inputs`."""
    records: list[Field | Output] = [*calculator.all_fields, *calculator.outputs]
    if calculator.inverse:
        records.append(calculator.inverse.drift)
    words = {
        record.name: in_words(record, values[record.name], lang, (units or {}).get(record.name))
        for record in records
        if record.name in values and not (isinstance(record, Field) and record.is_choice)
    }
    for name, value in (inputs or {}).items():
        if calculator.field(name).is_choice:
            words[name] = chosen(calculator.field(name), value, lang)
    return words


def complaint(wrong: BadInput, lang: str) -> str:
    """What is wrong with a value, in a language."""
    params = {
        name: format_number(value, lang) if isinstance(value, int | float | Decimal) else value
        for name, value in wrong.params.items()
    }
    return catalogue(lang).text(wrong.template).format(**params)
