"""Values in sentences: a number with its unit in a language, and the sentences they are put into."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from batchfit.bidi import isolated
from batchfit.calculator import Calculator, Output, Value
from batchfit.errors import BadInput
from batchfit.fields import Field
from batchfit.languages import catalogue
from batchfit.numbers import format_number
from batchfit.units import UNITS


def size(count: Value, unit: str, lang: str) -> str:
    """`count` bytes in `unit`, without the unit's name: four significant digits, or all before the point."""
    value = Decimal(count) / UNITS[unit]
    return (
        format_number(value, lang, significant=4)
        if abs(value) < 1000
        else format_number(value, lang, max_fraction=0)
    )


def signed(value: Value, lang: str) -> str:
    """A difference with its sign: "+6", "-26", "0"."""
    return format_number(value, lang, plus=True)


def in_words(of: Field | Output, value: Value, lang: str, unit: str | None = None) -> str:
    """A value with its unit: "4 samples", "0.5 GB". Sizes are in bytes and shown in `unit`."""
    if of.kind == "bytes":
        unit = unit or of.unit
        return isolated(f"{size(value, unit, lang)}\N{NO-BREAK SPACE}{unit}", lang)
    number = signed(value, lang) if isinstance(of, Output) and of.difference else format_number(value, lang)
    if of.counted:
        return catalogue(lang).count(*of.counted, value).format(n=number)
    return number


def all_in_words(
    calculator: Calculator, values: Mapping[str, Value], lang: str, units: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Every given value with its unit, by name, for the placeholders of a sentence. `units` chooses the unit of
    a size by field or output name."""
    records: list[Field | Output] = [*calculator.all_fields, *calculator.outputs]
    if calculator.inverse:
        records.append(calculator.inverse.drift)
    return {
        record.name: in_words(record, values[record.name], lang, (units or {}).get(record.name))
        for record in records
        if record.name in values
    }


def complaint(wrong: BadInput, lang: str) -> str:
    """What is wrong with a value, in a language."""
    params = {
        name: format_number(value, lang) if isinstance(value, int | float | Decimal) else value
        for name, value in wrong.params.items()
    }
    return catalogue(lang).text(wrong.template).format(**params)
