"""What is asked by name, as options of the command and fields of an address have it, and the answer as data: one
way for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchfit.planning import Elastic, Kind, Plans, Situation, situate
from batchfit.planning.rates import parse_rate
from batchfit.profile import MemoryProfile

#: Names that a request has otherwise.
_RENAMED = {"most_accumulation": "max_accumulation"}
_FIELDS = (
    "seq_len",
    "micro_batch",
    "accumulation_steps",
    "most_accumulation",
    "replicas",
    "sharding",
    "checkpointing",
    "headroom",
)


def situation_of(
    profiles: Sequence[MemoryProfile], wanted: Mapping[str, Any], gpus: int, **pinned: Any
) -> Situation:
    """What was asked, in the planner's terms. `wanted` has the command's options by name, None or left out where
    they are open; `pinned` are fields of a request that override them. Raises BadInput naming the option."""
    kind = Kind(
        wanted.get("precision"),
        wanted.get("optimizer"),
        wanted.get("lora"),
        wanted.get("quantize"),
        wanted.get("attention"),
        wanted.get("trainer"),
    )
    given = {name: wanted.get(_RENAMED.get(name, name)) for name in _FIELDS}
    rate = wanted.get("interconnect")
    return situate(
        profiles,
        kind,
        batch=wanted["batch"],
        tolerance=wanted.get("tolerance") or "0",
        gpu=wanted["gpu"],
        gpus=gpus,
        interconnect=parse_rate(rate) if rate else None,
        **{**given, **pinned},
    )


def first_that_fits(answers: Sequence[Plans]) -> Plans:
    """Of one answer for each number of GPUs, that of the fewest on which anything fits, else of the most."""
    return next((each for each in answers if each.plans), answers[-1])


def as_data(answers: Sequence[Plans], ready: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The answers, one for each number of GPUs, as one JSON document; `ready` is a framework's file beside them."""
    several = Elastic(tuple(answers)) if len(answers) > 1 else None
    data = (several or first_that_fits(answers)).to_dict()
    return data if ready is None else {**data, "emitted": dict(ready)}
