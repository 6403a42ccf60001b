"""A calculator's formulas with the numbers put in, as text for the terminal."""

from __future__ import annotations

from decimal import Decimal

from batchfit.calculator import Calculator, Output, Results
from batchfit.emit import to_text
from batchfit.emit.notation import Quantity
from batchfit.fields import Field
from batchfit.numbers import format_number
from batchfit.units import to_bytes
from batchfit.wording import size


def formulas(calculator: Calculator, results: Results, unit: str, lang: str) -> str:
    """A line for each output: "E = b · a · g = 4 · 8 · 1 = 32". Sizes are shown in `unit`."""
    values = {**results.inputs, **results.outputs}
    records: list[Field | Output] = [*calculator.all_fields, *calculator.outputs]
    symbols = {record.name: record.symbol for record in records}
    sizes = {record.name for record in records if record.kind == "bytes"}

    def show(name: str | None, value: float) -> Quantity:
        if name in sizes:
            shown = size(value, unit, "en").replace(",", "")
            return Quantity(size(value, unit, lang), unit, exact=to_bytes(Decimal(shown), unit) == value)
        return Quantity(format_number(value, lang))

    return "\n".join(
        "  "
        + to_text(
            output.formula,
            {name: symbols[name] for name in output.parameters},
            output.symbol,
            {name: values[name] for name in output.parameters},
            show=show,
        )
        for output in calculator.outputs
    )
