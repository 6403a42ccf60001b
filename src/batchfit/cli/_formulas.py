"""A calculator's formulas with the numbers put in, as text for the terminal."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

from batchfit.calculator import Calculator, Output, Results
from batchfit.emit import to_text
from batchfit.emit.notation import Quantity
from batchfit.fields import Field
from batchfit.languages import translate
from batchfit.numbers import format_figure
from batchfit.symbols import letters, letters_of
from batchfit.units import to_bytes
from batchfit.wording import fitting_unit, size


def formulas(calculator: Calculator, results: Results, unit: str, lang: str) -> str:
    """A line for each output, with where its formula is from: "E = b · a · g = 4 · 8 · 1 = 32". Sizes are shown in
    `unit`."""
    values = results.values
    records: list[Field | Output] = [*calculator.all_fields, *calculator.outputs]
    sizes = {record.name for record in records if record.kind == "bytes"}
    symbols = letters(calculator)

    def show(name: str | None, value: float, output: Output) -> Quantity:
        # The result is asked for by the formula's name.
        if (output.name if name == output.formula.__name__ else name) in sizes:
            fit = fitting_unit(value, unit)
            shown = size(value, fit, "en").replace(",", "")
            return Quantity(size(value, fit, lang), fit, exact=to_bytes(Decimal(shown), fit) == value)
        return Quantity(format_figure(value, lang), exact=_exact(value))

    lines = []
    for output in calculator.outputs:
        if output.name not in values:
            continue
        given = {name: values[name] for name in output.parameters}
        taken, own = letters_of(output, symbols), partial(show, output=output)
        text = to_text(output.formula, taken, symbols[output.name], given, show=own)
        lines += [f"  {line}" for line in text.splitlines()]
        for source in output.sources:
            cited = f"{source.title}, {source.link}" if source.link else source.title
            lines.append("    " + translate("Source: {source}", lang).format(source=cited))
    return "\n".join(lines)


def _exact(value: float) -> bool:
    return (
        float(format_figure(value).replace(",", "").replace("−", "-")) == value
        if 1e-6 <= abs(value) < 1e15
        else value == 0
    )
