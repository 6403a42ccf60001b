"""A picture as SVG. The twin of static/drawing.js, which draws it anew as a person types."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from markupsafe import Markup, escape

from batchfit.calculator import Value
from batchfit.numbers import format_number
from batchfit.pictures import ELEMENTS, Picture, Place, Shape, Triangle


def draw(
    picture: Picture,
    values: Mapping[str, Value],
    words: Mapping[str, str],
    width: int,
    lang: str,
    texts: Texts,
) -> Markup:
    """The shapes of a picture on a canvas of that width, as the content of an <svg>.

    `values` are inputs and results by name, `words` the same as they stand in sentences; `texts` translates.
    """
    drawn: list[str] = []
    for shape in picture.shapes:
        known = {**values, "width": width}
        for i in range(int(_call(shape.times, known)) if shape.times else 1):
            drawn.append(_element(shape, {**known, "i": i}, words, lang, texts))
    return Markup("".join(drawn))


Texts = Callable[[str], str]


def _element(
    shape: Shape, known: Mapping[str, Value], words: Mapping[str, str], lang: str, texts: Texts
) -> str:
    text = ""
    if shape.text:
        if shape.number:
            words = {**words, "number": format_number(_call(shape.number, known), lang)}
        text = escape(texts(shape.text).format(**words))
    return element(_call(shape.place, known), shape.style, text)


def element(place: Place, style: str, text: str = "") -> str:
    """One SVG element. All but the text, which must be escaped, is ours: names of elements and styles, and numbers."""
    name = ELEMENTS[type(place)]
    if isinstance(place, Triangle):
        numbers = [_short(length) for length in place]
        corners = " ".join(f"{x},{y}" for x, y in zip(numbers[::2], numbers[1::2], strict=True))
        where = f'points="{corners}"'
    else:
        where = " ".join(f'{name}="{_short(length)}"' for name, length in place._asdict().items())
    return f'<{name} class="{style}" {where}>{text}</{name}>'


def polyline(style: str, points: Iterable[tuple[float, float]]) -> str:
    """A line through points, as one SVG element."""
    corners = " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
    return f'<polyline class="{style}" points="{corners}"></polyline>'


def _short(length: float) -> str:
    """A length to a tenth of a unit, rounded so that JavaScript rounds alike."""
    return f"{math.floor(length * 10 + 0.5) / 10:g}"


def _call(formula: Callable[..., Any], known: Mapping[str, Value]) -> Any:
    return formula(*[known[name] for name in _parameters(formula)])


@cache
def _parameters(formula: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(formula).parameters)
