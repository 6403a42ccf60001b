"""A curve on its canvas: where each piece of it is, and what stands along its axes. Formulas like those of every
picture, so that server and browser draw alike; along an axis everything is a part of it, from 0 to 1."""

from __future__ import annotations

import math

from batchfit.pictures import Circle, Line, Words

HEIGHT = 260
WIDTHS = (304, 640)
#: Pieces that a line is drawn of.
SAMPLES = 64

#: The empty margins: room for the numbers left of the axis and under it, and for the line's names.
LEFT = 64
RIGHT = 14
TOP = 34
BOTTOM = 44
MARKS = 5


def sample(i: int, low: float, high: float, log: int, whole: int) -> float:
    """A place on the x axis: number `i` of SAMPLES + 1 from `low` to `high`, evenly or by equal factors."""
    value = low * (high / low) ** (i / SAMPLES) if log == 1 else low + (high - low) * i / SAMPLES
    return math.floor(value + 0.5) if whole == 1 else value


def part(value: float, low: float, high: float, log: int) -> float:
    """Where a value is along an axis, from 0 to 1."""
    if high <= low:
        return 0.5
    inside = min(high, max(low, value))
    return math.log(inside / low) / math.log(high / low) if log == 1 else (inside - low) / (high - low)


def first_power(low: float) -> float:
    """The power of ten at or under a value."""
    return 10.0 ** math.floor(math.log10(low))


def round_step(span: float) -> float:
    """The distance of marks that cuts a span into three to six: 1, 2 or 5 times a power of ten."""
    power: float = first_power(span / MARKS)
    times = span / MARKS / power
    return (1 if times <= 1 else 2 if times <= 2 else 5 if times <= 5 else 10) * power


def power_step(low: float, high: float) -> int:
    """Powers of ten from one mark to the next of a logarithmic axis."""
    return max(1, math.ceil((math.log10(high) - math.log10(low)) / MARKS))


def mark_count(low: float, high: float, log: int) -> int:
    """Marks that an axis has."""
    if high <= low:
        return 1
    if log == 1:
        first = math.ceil(math.log10(low) - 1e-9)
        return (math.floor(math.log10(high) + 1e-9) - first) // power_step(low, high) + 1
    step = round_step(high - low)
    return math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1


def mark_value(i: int, low: float, high: float, log: int) -> float:
    """The value at mark `i` of an axis."""
    if high <= low:
        return low
    if log == 1:
        return 10.0 ** (math.ceil(math.log10(low) - 1e-9) + i * power_step(low, high))
    step = round_step(high - low)
    return (math.ceil(low / step - 1e-9) + i) * step


def here(from_x: float, from_y: float, width: int) -> Circle:
    """The mark at the value given; its centre is where a line goes through."""
    return Circle(
        LEFT + from_x * (width - LEFT - RIGHT), HEIGHT - BOTTOM - from_y * (HEIGHT - TOP - BOTTOM), 4.5
    )


def drop(from_x: float, from_y: float, width: int) -> Line:
    """From that mark down to the axis."""
    x = LEFT + from_x * (width - LEFT - RIGHT)
    return Line(x, HEIGHT - BOTTOM - from_y * (HEIGHT - TOP - BOTTOM), x, HEIGHT - BOTTOM)


def base(width: int) -> Line:
    """The x axis."""
    return Line(LEFT, HEIGHT - BOTTOM, width - RIGHT, HEIGHT - BOTTOM)


def rung(from_y: float, width: int) -> Line:
    """A line across at a mark of the y axis."""
    y = HEIGHT - BOTTOM - from_y * (HEIGHT - TOP - BOTTOM)
    return Line(LEFT, y, width - RIGHT, y)


def tick(from_x: float, width: int) -> Line:
    """A mark on the x axis."""
    x = LEFT + from_x * (width - LEFT - RIGHT)
    return Line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4)


def x_number(from_x: float, width: int) -> Words:
    """A number under a mark of the x axis."""
    return Words(LEFT + from_x * (width - LEFT - RIGHT), HEIGHT - BOTTOM + 17)


def y_number(from_y: float) -> Words:
    """A number left of a mark of the y axis."""
    return Words(LEFT - 7, HEIGHT - BOTTOM - from_y * (HEIGHT - TOP - BOTTOM) + 4)


def x_name(width: int) -> Words:
    """What the x axis shows, at its end."""
    return Words(width - RIGHT, HEIGHT - BOTTOM + 35)


def y_name() -> Words:
    """What the y axis shows, above it."""
    return Words(0, TOP - 20)


def line_name(from_x: float, from_y: float, width: int) -> Words:
    """A line's name at one of its points."""
    x = LEFT + from_x * (width - LEFT - RIGHT)
    return Words(x, HEIGHT - BOTTOM - from_y * (HEIGHT - TOP - BOTTOM) - 8)
