"""Which points of a timeline a profile keeps so that it can be sharded: the highest of each place, not only of all.

On one GPU the envelope over everything is enough. A replica that holds a share of the weights and gradients has
its peak elsewhere: where all gradients are alive stops mattering, and what comes next may have been hidden
below it. Blocks that are alike differ by a constant from one to the next, so their first and last stand for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from batchfit.trace.timeline import MARK, Timeline


class _Indexed(Protocol):
    index: int


Point = TypeVar("Point", bound=_Indexed)

#: A place: the mark's phase ("forward", "backward", ...), the path up to the block's number, that number.
Place = tuple[str, str, int]


def highest_by_place(
    timeline: Timeline, points: Iterable[Point], upper: Callable[[list[Point]], list[Point]]
) -> list[Point]:
    """The points that `upper` keeps of each place (each phase of a micro-batch, outside the blocks, in the
    first and in the last of them), and after them those it keeps of all, in its order. No point twice.
    """
    points = list(points)
    places = _places(timeline, {point.index for point in points})
    groups: dict[Place, list[Point]] = defaultdict(list)
    ends: dict[tuple[str, str], set[int]] = defaultdict(set)
    for point in points:
        place = places[point.index]
        groups[place].append(point)
        ends[place[:2]].add(place[2])
    envelope = upper(points)
    seen = {point.index for point in envelope}
    kept: list[Point] = []
    for (phase, stem, number), group in groups.items():
        if number in (min(ends[phase, stem]), max(ends[phase, stem])):
            kept += [point for point in upper(group) if point.index not in seen]
    return kept + envelope


def _places(timeline: Timeline, wanted: set[int]) -> dict[int, Place]:
    phase = ""
    found: dict[int, Place] = {}
    for index, event in enumerate(timeline.events):
        if event.kind == MARK:
            phase = timeline.marks[event.stack].phase
        if index in wanted:
            found[index] = (phase, *_block(timeline.modules.get(event.storage, "")))
    return found


def _block(module: str) -> tuple[str, int]:
    """The block a module is in: "model.layers.11.mlp" gives ("model.layers", 11); outside any, ("", 0)."""
    stem: list[str] = []
    for piece in module.split("."):
        if piece.isdigit():
            return ".".join(stem), int(piece)
        stem.append(piece)
    return "", 0
