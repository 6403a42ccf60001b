from __future__ import annotations

from dataclasses import dataclass

from batchfit.trace.places import highest_by_place
from batchfit.trace.timeline import ALLOC, MARK, Event, Mark, Timeline


@dataclass
class Height:
    height: int
    index: int


def tallest(points: list[Height]) -> list[Height]:
    return [max(points, key=lambda point: point.height)]


def test_the_first_and_last_block_and_what_is_outside_are_kept_beside_the_highest_of_all() -> None:
    modules = [
        "embed",
        "layers.0.mlp",
        "layers.1.mlp",
        "layers.2.attn",
        "layers.2.mlp",
        "head",
        "layers.0.mlp",
    ]
    timeline = Timeline(marks=[Mark("forward", 0, 0), Mark("backward", 0, 0)])
    timeline.events.append(Event(MARK, -1, 0, 0))
    for storage, module in enumerate(modules):
        if storage == 6:
            timeline.events.append(Event(MARK, -1, 0, 1))
        timeline.events.append(Event(ALLOC, storage, 1, 0))
        timeline.modules[storage] = module
    heights = {1: 3, 2: 5, 3: 99, 4: 7, 5: 8, 6: 4, 8: 1}
    points = [Height(height, index) for index, height in heights.items()]
    kept = highest_by_place(timeline, points, tallest)
    # The middle block's is the highest of all; of the last block the higher of two; backward has its own.
    assert [point.index for point in kept] == [6, 2, 5, 8, 3]


def test_nothing_is_kept_of_nothing() -> None:
    assert highest_by_place(Timeline(), [], lambda points: points) == []
