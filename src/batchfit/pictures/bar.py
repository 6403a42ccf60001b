"""A bar of parts to scale. Along it everything is a part of it, from 0 to 1."""

from __future__ import annotations

from batchfit.pictures import Rectangle

HEIGHT = 28
WIDTHS = (304, 640)


def block(from_x: float, to_x: float, width: int) -> Rectangle:
    """A part, with a hair's breadth to the next."""
    return Rectangle(from_x * width, 0, max(0, (to_x - from_x) * width - 1), HEIGHT)
