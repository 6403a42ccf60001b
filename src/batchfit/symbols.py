"""How formulas show names: "n_kv" is an n with the subscript kv."""

from __future__ import annotations

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
    """The symbol of everything that a calculator's formulas name. What a choice gives stands for the choice."""
    records: list[Field | Bound | Output] = [*calculator.all_fields, *calculator.bounds, *calculator.outputs]
    return {of.name: letter(of.symbol) for of in records}
