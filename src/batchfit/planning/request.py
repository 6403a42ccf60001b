"""What a person asks of the planner, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from batchfit.errors import BadInput
from batchfit.gpus import Gpu
from batchfit.planning.rank import SHARDINGS
from batchfit.planning.target import Target
from batchfit.planning.traits import CHECKPOINTING, Kind

#: GPUs planned for at most: more than any published data-parallel run has, and few enough to search at once.
MOST_GPUS = 100_000


@dataclass(frozen=True, slots=True)
class Request:
    """The batch, the cards and what is pinned. None where the planner chooses.

    `interconnect` is bytes per second and GPU between nodes; `headroom` as `fit.capacity` reads it.
    Raises BadInput naming the field.
    """

    target: Target
    gpu: Gpu
    gpus: int = 1
    seq_len: int | None = None
    kind: Kind = field(default_factory=Kind)
    micro_batch: int | None = None
    accumulation_steps: int | None = None
    most_accumulation: int | None = None
    replicas: int | None = None
    sharding: str | None = None
    checkpointing: str | None = None
    headroom: str | int | None = None
    interconnect: float | None = None

    def __post_init__(self) -> None:
        names = {"most_accumulation": "max_accumulation"}
        for name in ("gpus", "seq_len", "micro_batch", "accumulation_steps", "most_accumulation", "replicas"):
            _check_count(names.get(name, name), getattr(self, name))
        if self.gpus > MOST_GPUS:
            raise BadInput(
                "gpus", "must be at most {limit}; you gave {given}", limit=MOST_GPUS, given=self.gpus
            )
        if self.replicas is not None and self.replicas > self.gpus:
            template = "must be at most the {gpus} GPUs; you gave {given}"
            raise BadInput("replicas", template, gpus=self.gpus, given=self.replicas)
        limit = self.most_accumulation
        if self.accumulation_steps is not None and limit is not None and self.accumulation_steps > limit:
            template = "must be at most {limit}, the most that may be accumulated; you gave {given}"
            raise BadInput("accumulation_steps", template, limit=limit, given=self.accumulation_steps)
        _check_choice("sharding", self.sharding, SHARDINGS)
        _check_choice("checkpointing", self.checkpointing, CHECKPOINTING)
        if self.sharding == "none" and (self.replicas or 1) > 1:
            template = "must be ddp or one that shards for {replicas} replicas; you gave {given}"
            raise BadInput("sharding", template, replicas=self.replicas, given=repr(self.sharding))
        if self.interconnect is not None and not self.interconnect > 0:
            raise BadInput("interconnect", "must be above 0; you gave {given}", given=repr(self.interconnect))

    def shardings(self, replicas: int) -> tuple[str, ...]:
        """The shardings to try on this many replicas: nothing is shared on one."""
        if self.sharding is not None:
            return (self.sharding,) if (self.sharding == "none") == (replicas == 1) or replicas == 1 else ()
        return ("none",) if replicas == 1 else tuple(name for name in SHARDINGS if name != "none")

    def reaches(self, replicas: int) -> bool:
        """Whether any batch within the target is a multiple of what these replicas do at once, as far as pinned."""
        unit = replicas * (self.micro_batch or 1) * (self.accumulation_steps or 1)
        return self.target.high // unit * unit >= self.target.low

    def replica_counts(self) -> list[int]:
        """The numbers of replicas to try, most first: those that divide the target, and those that divide the GPUs,
        which is how clusters are cut; among them all the GPUs."""
        if self.replicas is not None:
            return [self.replicas]
        counts = _divisors(self.gpus, self.gpus) | _divisors(self.target.samples, self.gpus)
        return sorted(counts, reverse=True)


@lru_cache(maxsize=1024)
def _divisors(number: int, largest: int) -> frozenset[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return frozenset(d for d in [*small, *(number // d for d in small)] if d <= largest)


def _check_count(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInput(name, "must be a whole number of 1 or more; you gave {given}", given=repr(value))


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise BadInput(
            name, "must be one of {allowed}; you gave {given}", allowed=", ".join(allowed), given=repr(value)
        )
