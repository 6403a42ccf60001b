"""What batchfit says about a published row, and how far off it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from batchfit.errors import BadInput
from batchfit.gpus import find_gpu
from batchfit.planning.fit import capacity
from batchfit.profile import MemoryProfile
from batchfit.sharding import shard
from bench.accuracy.beside import beside_allocator
from bench.accuracy.question import Question
from bench.accuracy.rows import Row

_ROOT = Path(__file__).parents[2]

#: The answer where a trace was not made.
UNTRACED = {"error": "not traced yet"}


@dataclass(frozen=True, slots=True)
class Score:
    """A row's outcome.

    `low` and `high` are the bytes predicted: the same where one figure is compared, else allocated and reserved (and
    what is beside them). `error` is relative: of the prediction, or of the nearest end of the interval, 0 within it.
    For rows that only say what fits, `error` is None and `right` the verdict. A row without a prediction has a
    `reason`.
    """

    id: str
    family: str
    group: str
    measure: str
    versions: str
    measured: int | None = None
    low: int | None = None
    high: int | None = None
    error: float | None = None
    right: bool | None = None
    reason: str = ""

    @property
    def untraced(self) -> bool:
        """Whether there is no prediction because the trace was not made."""
        return self.reason == _no_trace(UNTRACED)


def score(row: Row, question: Question, answer: Mapping[str, Any]) -> Score:
    """The row against the answer to its question."""
    blank = Score(
        row.id, row.family, question.group, question.measure, question.era or "today", row.measured_bytes
    )
    if "error" in answer:
        return replace(blank, reason=_no_trace(answer))
    if "replays" in answer and question.measure in ("fits", "bracket"):
        return _replayed(blank, question, answer["replays"])
    try:
        low, high = predicted(question, answer)
    except BadInput as refusal:
        return replace(blank, reason=f"refused: {refusal}")
    if question.measure in ("fits", "oom"):
        return _judged(replace(blank, low=low, high=high), question)
    measured = row.measured_bytes
    if measured is None:
        return replace(blank, reason="the row has no figure")
    if low <= measured <= high:
        error = 0.0 if low < high else low / measured - 1
    else:
        error = (low if measured < low else high) / measured - 1
    return replace(blank, low=low, high=high, error=error)


def _no_trace(answer: Mapping[str, Any]) -> str:
    return f"no trace: {_without_folders(answer['error'])}"


def _without_folders(message: str) -> str:
    """A message without where libraries and this repository lie on this machine."""
    message = re.sub(r"/\S*/(?=(site-packages|dist-packages|eras)/)", "", message)
    return message.replace(f"{_ROOT}/", "")


def _judged(blank: Score, question: Question) -> Score:
    """A run that was published to fit must be let; one that ran out of memory must not be called fitting, even with
    what the allocator reserves."""
    assert question.gpu is not None
    assert blank.low is not None
    assert blank.high is not None
    room = question.room_bytes
    if room is None:
        room = capacity(find_gpu(question.gpu), question.replicas).capacity_bytes
    if question.measure == "fits":
        return replace(blank, right=blank.low <= room)
    return replace(blank, right=blank.high > room)


def _replayed(blank: Score, question: Question, replays: Mapping[str, Any]) -> Score:
    """Batches that were replayed on the card: what they allocate and would reserve there, and which of them fit."""
    at = replays[str(question.micro_batch)]
    right = at["fits"]
    if question.measure == "bracket":
        at = replays[str(question.next_batch)]
        right = right and not at["fits"]
    return replace(blank, low=at["allocated"], high=at["reserved"], right=right)


def predicted(question: Question, answer: Mapping[str, Any]) -> tuple[int, int]:
    """The bytes that batchfit predicts for the measure, from and to."""
    if "moments" in answer:
        at = answer["moments"][str(question.micro_batch)][question.measure]
        return at, at
    if "orders" in answer:
        reserved_in = answer["orders"][str(question.micro_batch)]
        return reserved_in[0], reserved_in[-1]
    if "replays" in answer:
        at, beside = answer["replays"][str(question.micro_batch)], question.beside_bytes or 0
        return at["allocated"] + beside, at["reserved"] + beside
    profile = profile_of(question, answer)
    peak = profile.peak(question.micro_batch, question.accumulation_steps)
    missed = _trained_bytes(profile) if question.misses_trained else 0
    if question.measure == "steady":
        # Workspaces are there from the first matrix product on.
        total = profile.states.total_bytes + peak.parts.get("overhead", 0)
        total -= 0 if question.keeps_gradients else profile.states.gradients_bytes
        return total - missed, total - missed
    if question.measure == "allocated":
        return peak.allocated_bytes - missed, peak.allocated_bytes - missed
    least, most = _beside(question)
    reserved = max(peak.allocated_bytes, peak.reserved_bytes or 0)
    return peak.allocated_bytes + least, reserved + most


def _beside(question: Question) -> tuple[int, int]:
    """What a process holds beside PyTorch's allocator, at least and at most."""
    if question.measure != "device" or question.beside_bytes is not None:
        return question.beside_bytes or 0, question.beside_bytes or 0
    assert question.gpu is not None
    return beside_allocator(question.gpu, question.replicas)


def _trained_bytes(profile: MemoryProfile) -> int:
    return sum(unit.count * unit.trainable_weights_bytes for unit in profile.model.units)


def profile_of(question: Question, answer: Mapping[str, Any]) -> MemoryProfile:
    """The profile of one replica."""
    profile = _loaded(answer["profile"])
    return shard(profile, question.sharding, question.replicas)


@lru_cache(maxsize=64)
def _loaded(text: str) -> MemoryProfile:
    return MemoryProfile.from_json(text)
