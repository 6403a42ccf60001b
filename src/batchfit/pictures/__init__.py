"""Pictures of calculators, each described once and drawn by server and browser alike.

A picture is a list of shapes whose places are formulas of the inputs and results: plain functions, translated to
JavaScript like every other formula. A calculator's picture is the module here that has its name.
"""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchfit.calculator import Calculator, Formula, Output


class Triangle(NamedTuple):
    """Three corners."""

    x0: float
    y0: float
    x1: float
    y1: float
    x2: float
    y2: float


class Line(NamedTuple):
    """From one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float


class Rectangle(NamedTuple):
    """Its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


class Circle(NamedTuple):
    """Centre and radius."""

    cx: float
    cy: float
    r: float


class Words(NamedTuple):
    """Where a text's baseline starts, or its middle or end, as its style says."""

    x: float
    y: float


#: The SVG element for each kind of place.
ELEMENTS: dict[type, str] = {
    Triangle: "polygon",
    Line: "line",
    Rectangle: "rect",
    Circle: "circle",
    Words: "text",
}
Place = Triangle | Line | Rectangle | Circle | Words


@dataclass(frozen=True, slots=True)
class Shape:
    """One SVG element, or a row of like ones. Formulas take inputs and results by name, `width`, and where a
    shape is repeated, `i`.

    style    its CSS classes: what a shape stands for decides how it looks
    place    a formula of where it is
    times    a formula of how often it is drawn, with `i` from 0; once where there is none
    text     for words: a template with inputs and results in words, and {number}
    number   a formula of what {number} is
    """

    style: str
    place: Callable[..., Place]
    times: Formula | None = None
    text: str = ""
    number: Formula | None = None

    @property
    def element(self) -> str:
        """The name of its SVG element, known from what `place` returns."""
        return _element(self.place)


@cache
def _element(place: Callable[..., Place]) -> str:
    return ELEMENTS[typing.get_type_hints(place)["return"]]


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes in drawing order, on a canvas that is drawn once for narrow and once for wide screens, so that text
    keeps its size.

    caption   what the picture shows, for those who read it and those who cannot see it
    extra     results that only caption and labels need
    """

    height: int
    widths: tuple[int, int]
    shapes: tuple[Shape, ...]
    caption: tuple[str, ...]
    extra: tuple[Output, ...] = ()

    def formulas(self) -> list[Callable[..., object]]:
        """Every formula that drawing it needs."""
        needed: list[Callable[..., object] | None] = [extra.formula for extra in self.extra]
        for shape in self.shapes:
            needed += [shape.place, shape.times, shape.number]
        return [formula for formula in dict.fromkeys(needed) if formula is not None]


def picture_of(calculator: Calculator) -> Picture | None:
    """The picture of a calculator, None where it has none."""
    name = calculator.slug.replace("-", "_")
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    picture: Picture = importlib.import_module(f"{__name__}.{name}").PICTURE
    return picture
