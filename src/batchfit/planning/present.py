"""A run as it is set up now: the peak of just these settings, to be held against the best plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from batchfit.errors import BadInput
from batchfit.planning.options import options
from batchfit.planning.request import Request
from batchfit.planning.result import VERDICT_NAMES, Plan
from batchfit.planning.search import make_plan
from batchfit.planning.throughput import model_error
from batchfit.profile import MemoryProfile
from batchfit.sentences import Rounded, Sentence, Size


@dataclass(frozen=True, slots=True)
class Comparison:
    """Present settings beside the best plan. `speed` is how many times as fast the best plan is, None where no time
    can be told or nothing fits."""

    present: Plan
    best: Plan | None

    @property
    def speed(self) -> float | None:
        """Time per sample now over that of the best plan."""
        if self.best is None or self.best.time is None or self.present.time is None:
            return None
        now = self.present.time.seconds / self.present.effective_batch
        return now / (self.best.time.seconds / self.best.effective_batch)

    @property
    def changes(self) -> dict[str, tuple[object, object]]:
        """What the best plan sets otherwise: the name with the value now and there."""
        names = ("micro_batch", "accumulation_steps", "replicas", "sharding", "checkpointing")
        if self.best is None:
            return {}
        pairs = {name: (getattr(self.present, name), getattr(self.best, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    @property
    def alike(self) -> bool:
        """Whether the best plan is neither faster by more than the model's error nor needed for it to fit."""
        return self.present.verdict == "fits" and self.speed is not None and self.speed <= 1 + model_error()

    @property
    def sentence(self) -> Sentence:
        """Both in a sentence each."""
        present = self.present
        now = Sentence(
            "As set now, {batch} = {effective} ({how}) takes {memory}: {verdict}.",
            batch=present.batch,
            effective=present.effective_batch,
            how=present.how,
            memory=present.memory,
            verdict=VERDICT_NAMES[present.verdict],
        )
        if self.best is None:
            return now
        if not self.changes:
            return Sentence("{now} That is the best plan.", now=now)
        if self.alike:
            return Sentence("{now} No plan is better by more than the model's error.", now=now)
        return Sentence(
            "{now} The best plan is {batch} ({how}): {memory}{speed}.",
            now=now,
            batch=self.best.batch,
            how=self.best.how,
            memory=_apart(self.best.peak_allocated_bytes - present.peak_allocated_bytes),
            speed=""
            if self.speed is None
            else Sentence(", {speed} times as fast", speed=Rounded(self.speed, 2)),
        )

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return {
            "plan": self.present.to_dict(),
            "sentence": self.sentence,
            "speed": self.speed,
            "changes": {name: {"now": now, "best": best} for name, (now, best) in self.changes.items()},
        }


def _apart(more: int) -> Sentence:
    """How much more memory the best plan takes, or less."""
    if more > 0:
        return Sentence("{size} more memory", size=Size(more))
    return Sentence("{size} less memory", size=Size(-more))


def predict(profiles: Sequence[MemoryProfile], request: Request) -> Plan:
    """The plan that a request with micro-batch, steps and replicas pinned describes, whether it fits or not.

    Where sharding is open, it is the first of those that the replicas allow, which is the simplest.
    Raises BadInput on what is not pinned.
    """
    for name in ("micro_batch", "accumulation_steps", "replicas"):
        if getattr(request, name) is None:
            raise BadInput(
                name,
                "is needed to predict the peak of present settings: the file does not give it, so type it",
            )
    found = options(profiles, replace(request, gpus=max(request.gpus, request.replicas or 1)))
    assert request.micro_batch is not None
    assert request.accumulation_steps is not None
    return make_plan(found[0], request, request.micro_batch, request.accumulation_steps)
