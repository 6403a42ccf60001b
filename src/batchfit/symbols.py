"""How formulas show names: "n_kv" is an n with the subscript kv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from batchfit.calculator import Calculator, Output
from batchfit.fields import Bound, Field

if TYPE_CHECKING:
    from batchfit.emit import Symbol


def letter(symbol: str) -> Symbol:
    """A record's symbol as the printer of formulas takes it."""
    base, _, subscript = symbol.partition("_")
    return (base, subscript) if subscript else base


def letters(calculator: Calculator) -> dict[str, Symbol]:
    """The symbol of every number that a calculator's formulas may take or give. What a choice gives stands for the
    choice, which is no number."""
    numbers = [field for field in calculator.all_fields if not field.is_choice]
    records: list[Field | Bound | Output] = [*numbers, *calculator.bounds, *calculator.outputs]
    return {of.name: letter(of.symbol) for of in records}


def letters_of(output: Output, known: Mapping[str, Symbol]) -> dict[str, Symbol]:
    """Those of the numbers that an output's formula takes. A name of its own in it is not what others call so."""
    return {name: known[name] for name in output.parameters}
