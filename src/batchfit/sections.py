"""What stands under a calculator's results: its tables, curves, bars and cards, as values. Faces only show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batchfit.calculator import Calculator, Cards, Curve, Results, Table, Value
from batchfit.errors import BadInput
from batchfit.fields import Input
from batchfit.gpus import Gpu, load_gpus
from batchfit.pictures.curve import SAMPLES, sample

#: A place on a curve's axis, and the value of each line there.
Point = tuple[Value, tuple[Value | None, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """A table's row: the value of its field, whether that is the one given, and the results; None where the inputs
    do not go together with it."""

    value: Input
    here: bool
    results: Results | None

    def cell(self, column: str) -> Value | None:
        """The output of that name, None where there is none."""
        return self.results.outputs.get(column) if self.results else None


def rows(calculator: Calculator, table: Table, inputs: Mapping[str, Input]) -> list[Row]:
    """A table's rows in order. A value given that is not among a table's own has a row of its own, in its place."""
    field = calculator.field(table.over)
    given = inputs[table.over]
    if field.is_choice:
        values: list[Input] = [choice.value for choice in field.choices]
    else:
        listed = {field.read(text).value for text in table.values} | {given}
        values = [*sorted(value for value in listed if isinstance(value, int | float))]
    return [
        Row(value, value == given, evaluated(calculator, {**inputs, table.over: value})) for value in values
    ]


def evaluated(calculator: Calculator, inputs: Mapping[str, Input]) -> Results | None:
    """The results, None where the inputs do not go together."""
    try:
        return calculator.evaluate(inputs)
    except BadInput:
        return None


def fitting(cards: Cards, results: Results) -> list[tuple[Gpu, bool]]:
    """Every card of the catalogue, the smallest first, with whether the output fits into its memory."""
    needed = results.outputs[cards.output]
    ordered = sorted(load_gpus(), key=lambda gpu: (gpu.memory_bytes, -gpu.year, gpu.id))
    return [(gpu, needed <= gpu.memory_bytes) for gpu in ordered]


def ends(calculator: Calculator, curve: Curve, results: Results) -> tuple[Value, Value]:
    """The ends of a curve's axis."""
    names = {field.name for field in calculator.fields}

    def end(text: str) -> Value:
        value = results.numbers[text] if text in names else calculator.field(curve.over).read(text).value
        assert isinstance(value, int | float)
        return value

    return end(curve.low), end(curve.high)


def samples(calculator: Calculator, curve: Curve, results: Results) -> list[Point]:
    """Points along a curve's axis in order, its corners among them, each with the value of every line there."""
    low, high = ends(calculator, curve, results)
    whole = 1 if calculator.field(curve.over).kind == "whole" else 0
    places = {sample(i, low, high, int(curve.log_x), whole) for i in range(SAMPLES + 1)}
    places |= {value for name in curve.corners if low <= (value := results.values[name]) <= high}
    found = []
    for at in sorted(places):
        there = evaluated(calculator, {**results.inputs, curve.over: at})
        found.append((at, tuple(there.outputs.get(name) if there else None for name in curve.outputs)))
    return found


def as_json(calculator: Calculator, results: Results) -> dict[str, object]:
    """The sections that are figures, as data: tables and cards."""
    found: dict[str, object] = {}
    tables = [section for section in calculator.sections if isinstance(section, Table)]
    if tables:
        found["tables"] = [
            {
                "over": table.over,
                "rows": [
                    {
                        calculator.field(table.over).key: row.value,
                        **{name: row.cell(name) for name in table.columns},
                    }
                    for row in rows(calculator, table, results.inputs)
                ],
            }
            for table in tables
        ]
    for section in calculator.sections:
        if isinstance(section, Cards) and section.output in results.outputs:
            found["cards"] = [
                {"gpu": gpu.id, "memory_bytes": gpu.memory_bytes, "fits": fits}
                for gpu, fits in fitting(section, results)
            ]
    return found
