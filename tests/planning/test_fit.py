"""What a card has for training, and the verdicts."""

import pytest

from batchfit.errors import BadInput
from batchfit.gpus import find_gpu
from batchfit.planning.fit import HEADROOM_REASON, NCCL_BYTES, Capacity, capacity

GIB = 2**30


def test_the_context_and_communication_are_taken_off() -> None:
    card = find_gpu("h100-80gb")
    alone, several = capacity(card), capacity(card, 8)
    assert card.context_bytes is not None
    assert alone.capacity_bytes == card.memory_bytes - card.context_bytes
    assert several.capacity_bytes == alone.capacity_bytes - NCCL_BYTES
    assert alone.headroom_bytes == int(card.memory_bytes * 0.05)
    assert alone.headroom_reason == HEADROOM_REASON
    assert "less" in str(several)
    assert "communication" in str(several)


def test_a_card_without_a_published_context_says_so() -> None:
    card = find_gpu("mi300x")
    found = capacity(card)
    assert card.context_bytes is None
    assert found.context_bytes > 0
    assert card.name in found.assumptions[0]


@pytest.mark.parametrize(
    ("allocated", "reserved", "verdict"),
    [
        (70, 80, "fits"),
        (70, 91, "tight"),
        (91, 95, "tight"),
        (99, 120, "tight"),
        (101, 120, "does not fit"),
        (90, None, "fits"),
        (91, None, "tight"),
        (101, None, "does not fit"),
    ],
)
def test_verdicts(allocated: int, reserved: int | None, verdict: str) -> None:
    room = Capacity(110 * GIB, 6 * GIB, 4 * GIB, 10 * GIB, "as asked", ())
    assert room.verdict(allocated * GIB, None if reserved is None else reserved * GIB) == verdict


@pytest.mark.parametrize(
    ("asked", "kept"), [("2GiB", 2 * GIB), ("1", 10**9), (0, 0), (123, 123), ("0%", 0), ("10%", None)]
)
def test_headroom_as_asked(asked: str | int, kept: int | None) -> None:
    card = find_gpu("l4")
    expected = int(card.memory_bytes * 0.1) if kept is None else kept
    found = capacity(card, headroom=asked)
    assert abs(found.headroom_bytes - expected) <= 1
    assert found.headroom_reason == "as asked"


@pytest.mark.parametrize("asked", ["x%", "many", "-1", "200%", 10**15, -1, True, "nan%"])
def test_headroom_that_cannot_be_kept(asked: str | int) -> None:
    with pytest.raises(BadInput) as wrong:
        capacity(find_gpu("l4"), headroom=asked)
    assert wrong.value.field == "headroom"
