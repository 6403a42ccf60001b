"""Curves and bars as SVG. The twin of static/sections.js, which draws them anew as a person types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from batchfit.calculator import Calculator, Curve, Output, Results, Stack, Value, parameters
from batchfit.fields import Field
from batchfit.numbers import format_compact, format_figure
from batchfit.pictures import Place, bar, curve
from batchfit.sections import Point, ends
from batchfit.units import UNITS
from batchfit.web.drawing import element, polyline
from batchfit.wording import DURATIONS, fitting_unit, in_words, parts

Known = Mapping[str, float]

#: Units of a canvas that a line may be drawn higher or lower than it is: a canvas is shown about as wide as its units.
UNSEEN = 0.1


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: what it shows, its ends in what that is held in, and the unit that its marks are round in."""

    of: Field | Output
    low: float
    high: float
    log: int
    unit: str
    scale: float

    def part(self, value: float) -> float:
        """Where a value is along it."""
        return curve.part(value, self.low, self.high, self.log)

    def marks(self) -> list[float]:
        """Where round values are."""
        low, high = self.low / self.scale, self.high / self.scale
        return [
            curve.mark_value(i, low, high, self.log) * self.scale
            for i in range(curve.mark_count(low, high, self.log))
        ]

    def text(self, value: float, lang: str) -> str:
        """A mark's number."""
        if self.of.kind == "bytes":
            return parts(self.of, value, lang, self.unit)[1]
        if self.of.kind in ("share", "seconds"):
            return in_words(self.of, value, lang)
        return format_compact(value, lang) or format_figure(value, lang)


def axis(of: Field | Output, values: list[float], log: bool, unit: str, *, from_zero: bool) -> Axis:
    """The axis that holds these values; a linear one from zero where it is for results."""
    low, high = min(values), max(values)
    if from_zero and not log:
        low, high = min(0, low), max(0, high)
    scale: float = 1
    if of.kind == "bytes":
        scale = UNITS[unit]
    elif of.kind == "share":
        scale = 0.01
    elif of.kind == "seconds":
        scale = next((each for each, _ in DURATIONS if each <= high), DURATIONS[-1][0])
    return Axis(of, low, high, int(log), unit, scale)


def draw_curve(
    calculator: Calculator,
    section: Curve,
    results: Results,
    points: list[Point],
    units: Mapping[str, str],
    lang: str,
    width: int,
    texts: Callable[[str], str],
) -> Markup:
    """A curve through points on a canvas of that width."""
    outputs = [calculator.output(name) for name in section.outputs]
    values = [
        float(value)
        for _, line in points
        for value in line
        if value is not None and (value > 0 or not section.log_y)
    ]
    if not values:
        return Markup()
    over = calculator.field(section.over)
    across = axis(
        over,
        [float(end) for end in ends(calculator, section, results)],
        section.log_x,
        units.get(over.name, over.unit),
        from_zero=False,
    )
    unit = units.get(outputs[0].name, outputs[0].unit)
    if outputs[0].kind == "bytes":
        unit = fitting_unit(results.outputs.get(outputs[0].name, 0), unit)
    up = axis(outputs[0], values, section.log_y, unit, from_zero=True)
    canvas = _Canvas(width)
    for value in up.marks():
        known = {"from_y": up.part(value)}
        canvas.add(curve.rung, "rung", known)
        canvas.add(curve.y_number, "end", known, up.text(value, lang))
    canvas.add(curve.base, "axis", {})
    for value in across.marks():
        known = {"from_x": across.part(value)}
        canvas.add(curve.tick, "axis", known)
        canvas.add(curve.x_number, "centred", known, across.text(value, lang))
    canvas.add(curve.x_name, "end", {}, _axis_name(over, across.unit, texts))
    naming = _axis_name if len(outputs) == 1 else _unit  # each of several lines has its own name
    canvas.add(curve.y_name, "label", {}, naming(outputs[0], unit, texts))
    for number, output in enumerate(outputs):
        corners = [
            (across.part(float(at)), up.part(float(value)))
            for at, line in points
            for value in [line[number]]
            if value is not None and (value > 0 or not section.log_y)
        ]
        canvas.add_line(f"curve curve-{number + 1}", corners)
        if len(outputs) > 1 and corners:
            # Each name stands farther left than the one before, so that lines that end together keep theirs apart.
            from_x, from_y = corners[max(0, len(corners) - 1 - number * curve.SAMPLES // 4)]
            known = {"from_x": from_x, "from_y": from_y}
            canvas.add(curve.line_name, f"end name-{number + 1}", known, texts(output.label))
    given = results.numbers[over.name]
    if across.low <= given <= across.high:
        for number, output in enumerate(outputs):
            value_here = results.outputs.get(output.name)
            if value_here is None or (value_here <= 0 and section.log_y):
                continue
            known = {"from_x": across.part(float(given)), "from_y": up.part(float(value_here))}
            canvas.add(curve.drop, "drop", known)
            canvas.add(curve.here, f"here here-{number + 1}", known)
    return canvas.svg()


def draw_stack(section: Stack, outputs: Mapping[str, Value], width: int) -> Markup:
    """A bar on a canvas of that width."""
    canvas = _Canvas(width)
    whole = sum(outputs.get(name, 0) for name in section.parts.values())
    before: float = 0
    for style, name in section.parts.items():
        after = before + outputs.get(name, 0)
        if whole:
            canvas.add(bar.block, style, {"from_x": before / whole, "to_x": after / whole})
        before = after
    return canvas.svg()


class _Canvas:
    """Collects elements of one width."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._drawn: list[str] = []

    def add(self, place: Callable[..., Place], style: str, known: Known, text: str = "") -> None:
        given: dict[str, Any] = {**known, "width": self._width}
        where = place(*[given[name] for name in parameters(place)])
        self._drawn.append(element(where, style, str(escape(text))))

    def add_line(self, style: str, corners: Iterable[tuple[float, float]]) -> None:
        """A line through the places of some values."""
        spots = [curve.here(across, up, self._width) for across, up in corners]
        self._drawn.append(polyline(style, without_needless([(spot.cx, spot.cy) for spot in spots])))

    def svg(self) -> Markup:
        return Markup("".join(self._drawn))


def without_needless(spots: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A line without the corners that lie on it anyway, but for less than is seen (Douglas and Peucker, 1973)."""
    if len(spots) < 3:
        return spots
    (from_x, from_y), *between, (to_x, to_y) = spots
    # Lines go from left to right, and what counts is how high they are.
    slope = (to_y - from_y) / (to_x - from_x) if to_x != from_x else 0
    aside = [abs(y - from_y - slope * (x - from_x)) for x, y in between]
    farthest = max(aside)
    if farthest <= UNSEEN:
        return [spots[0], spots[-1]]
    at = aside.index(farthest) + 1
    return without_needless(spots[: at + 1])[:-1] + without_needless(spots[at:])


def _axis_name(of: Field | Output, unit: str, texts: Callable[[str], str]) -> str:
    shown = _unit(of, unit, texts)
    return f"{texts(of.label)} ({shown})" if shown else texts(of.label)


def _unit(of: Field | Output, unit: str, texts: Callable[[str], str]) -> str:
    """The unit that an axis's numbers lack."""
    if of.kind == "bytes":
        return unit
    return "" if of.kind in ("share", "seconds") else texts(of.unit)
