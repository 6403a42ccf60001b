"""What a template shows of a calculator's tables, curves, bars and cards in a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from batchfit.calculator import Calculator, Cards, Curve, Results, Section, Stack, Table
from batchfit.gpus import Gpu, load_gpus
from batchfit.languages import catalogue
from batchfit.pictures import bar, curve
from batchfit.sections import Row, rows, samples
from batchfit.web.marks import draw_curve, draw_stack
from batchfit.wording import cell, chosen, in_words


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table, or of a bar's legend: its name, its cells, whether it is the one given, and its style."""

    name: str
    cells: list[str]
    here: bool = False
    style: str = ""


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture on one canvas."""

    name: str
    width: int
    height: int
    shapes: Markup


@dataclass(frozen=True, slots=True)
class CardGroup:
    """The cards of one size of memory, each with its name and bytes."""

    size: str
    cards: list[Gpu]


@dataclass(frozen=True, slots=True)
class View:
    """One section. What a kind of section does not have is empty."""

    kind: str
    title: str
    head: list[str]
    lines: list[Line]
    canvases: list[Canvas]
    cards: list[CardGroup]
    needed: float | None

    @property
    def is_blank(self) -> bool:
        """Whether it is a curve of which nothing can be drawn, such as zeros on a logarithmic axis."""
        return self.kind == "curve" and not any(canvas.shapes for canvas in self.canvases)

    def holds(self, card: Gpu) -> bool:
        """Whether it fits on a card."""
        return self.needed is not None and self.needed <= card.memory_bytes

    @property
    def steps(self) -> str:
        """How many bytes each card has more than the one before it, nothing where as many: much shorter than all bytes
        of each."""
        bytes_of = [card.memory_bytes for group in self.cards for card in group.cards]
        more = [after - before for before, after in pairwise([0, *bytes_of])]
        return " ".join(str(step or "") for step in more)

    def fits(self, group: CardGroup) -> bool:
        """Whether it fits on any of some cards."""
        return any(map(self.holds, group.cards))

    @property
    def fits_any(self) -> bool:
        """Whether it fits on any card."""
        return any(map(self.fits, self.cards))


def views(calculator: Calculator, results: Results | None, units: Mapping[str, str], lang: str) -> list[View]:
    """Every section; without results, empty ones that JavaScript may fill."""
    return [_view(calculator, section, results, units, lang) for section in calculator.sections]


def _view(
    calculator: Calculator, section: Section, results: Results | None, units: Mapping[str, str], lang: str
) -> View:
    texts = catalogue(lang).text
    head: list[str] = []
    lines: list[Line] = []
    canvases: list[Canvas] = []
    cards: list[CardGroup] = []
    needed: float | None = None
    match section:
        case Table():
            columns = [calculator.output(name) for name in section.columns]
            head = [texts(calculator.field(section.over).label), *(texts(column.label) for column in columns)]
            if results:
                lines = [
                    _table_line(calculator, section, row, units, lang)
                    for row in rows(calculator, section, results.inputs)
                ]
        case Curve():
            points = samples(calculator, section, results) if results else []
            canvases = [
                Canvas(
                    name,
                    width,
                    curve.HEIGHT,
                    draw_curve(calculator, section, results, points, units, lang, width, texts)
                    if results
                    else Markup(),
                )
                for name, width in zip(("narrow", "wide"), curve.WIDTHS, strict=True)
            ]
        case Stack():
            outputs = results.outputs if results else {}
            canvases = [
                Canvas(name, width, bar.HEIGHT, draw_stack(section, outputs, width))
                for name, width in zip(("narrow", "wide"), bar.WIDTHS, strict=True)
            ]
            for style, name in section.parts.items():
                output = calculator.output(name)
                value = outputs.get(name)
                shown = cell(output, value, lang, units)
                lines.append(Line(texts(output.label), [shown], style=style))
        case Cards():
            cards = _card_groups()
            needed = results.outputs.get(section.output) if results else None
    return View(type(section).__name__.lower(), texts(section.title), head, lines, canvases, cards, needed)


def _table_line(calculator: Calculator, table: Table, row: Row, units: Mapping[str, str], lang: str) -> Line:
    field = calculator.field(table.over)
    if field.is_choice:
        name = chosen(field, row.value, lang)
    else:
        assert isinstance(row.value, int | float)
        name = in_words(field, row.value, lang, units.get(field.name))
    cells = [cell(calculator.output(column), row.cell(column), lang, units) for column in table.columns]
    return Line(name, cells, row.here)


@cache
def _card_groups() -> list[CardGroup]:
    """The cards by the memory that is printed on the box, the smallest first."""
    found: dict[int, list[Gpu]] = {}
    for gpu in sorted(load_gpus(), key=lambda gpu: (gpu.marketed_gb, gpu.memory_bytes, gpu.name)):
        found.setdefault(gpu.marketed_gb, []).append(gpu)
    return [CardGroup(f"{size}\N{NO-BREAK SPACE}GB", cards) for size, cards in found.items()]


def for_script(calculator: Calculator) -> list[dict[str, Any]]:
    """What the page's JavaScript needs to show the sections anew."""
    found: list[dict[str, Any]] = []
    for section in calculator.sections:
        match section:
            case Table():
                field = calculator.field(section.over)
                values = [field.read(text).value for text in section.values]
                found.append(
                    {"kind": "table", "over": section.over, "columns": section.columns, "values": values}
                )
            case Curve():
                names = {field.name for field in calculator.fields}
                over = calculator.field(section.over)
                low, high = (
                    end if end in names else over.read(end).value for end in (section.low, section.high)
                )
                found.append(
                    {
                        "kind": "curve",
                        "over": section.over,
                        "outputs": section.outputs,
                        "samples": curve.SAMPLES,
                        "corners": section.corners,
                        "low": low,
                        "high": high,
                        "logX": int(section.log_x),
                        "logY": int(section.log_y),
                    }
                )
            case Stack():
                found.append({"kind": "stack", "parts": dict(section.parts)})
            case Cards():
                found.append({"kind": "cards", "output": section.output})
    return found
