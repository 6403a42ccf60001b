"""The first and the last block of each list stand for those between them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from batchfit.trace.fold import Fold, Repeat  # noqa: E402
from batchfit.trace.places import Places  # noqa: E402
from batchfit.trace.timeline import ALLOC, MARK, Event, Mark, Timeline  # noqa: E402

MODULES = ["embed", "layers.0.mlp", "layers.1.mlp", "layers.2.attn", "layers.2.mlp", "head"]


def timeline() -> Timeline:
    """Every module makes something in forward, and the first block in backward."""
    made = Timeline(marks=[Mark("forward", 0, 0), Mark("backward", 0, 0)])
    made.events.append(Event(MARK, -1, 0, 0))
    for storage, module in enumerate([*MODULES, "layers.0.mlp"]):
        if storage == len(MODULES):
            made.events.append(Event(MARK, -1, 0, 1))
        made.events.append(Event(ALLOC, storage, 1, 0))
        made.modules[storage] = module
    return made


def ends(order: list[int], points: list[int]) -> list[list[int]]:
    places = Places(timeline(), torch.tensor(order))
    return sorted(sorted(place.tolist()) for place in places.ends(torch.tensor(points, dtype=torch.long)))


def test_the_first_and_the_last_block_and_what_is_outside_of_them() -> None:
    order = list(range(len(timeline().events)))
    # What is outside: the embedding and the head (1, 6). Of the blocks the first (2) and the last (4, 5), not the
    # one between. Backward has its own.
    assert ends(order, [1, 2, 3, 4, 5, 6, 8]) == [[1, 6], [2], [4, 5], [8]]


def test_the_last_of_blocks_that_are_repeated_is_the_last_repetition() -> None:
    # The last block (events 4 and 5) happens three times: points 4 and 5, 6 and 7, 8 and 9.
    stretches = Fold((Repeat(4, 6, 2),)).order(len(timeline().events))
    order = [event for stretch in stretches for event in stretch]
    assert ends(order, list(range(1, 11))) == [[1, 10], [2], [8, 9]]


def test_nothing_is_kept_of_nothing() -> None:
    assert ends(list(range(9)), []) == []
