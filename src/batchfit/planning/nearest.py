"""What is nearest where a target is not met: in batch, on each side of it; in memory, where nothing fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from batchfit.planning.options import Option
from batchfit.planning.request import Request
from batchfit.planning.result import Nearest, Plan
from batchfit.planning.search import best_first, make_plan, search
from batchfit.planning.target import LARGEST_BATCH, Target
from batchfit.samples import Samples
from batchfit.sentences import Counted, Sentence, Size

#: Batches tried on each side of the target; only pinned or limited steps can leave the first ones unreachable.
_TRIES = 50


def beside(found: Sequence[Option], request: Request) -> tuple[Nearest, ...]:
    """The best plan of the largest batch below the target and of the smallest above it that all the GPUs reach."""
    replicas = request.replicas or request.gpus
    on_all = [option for option in found if option.replicas == replicas and _fits_at_all(option, request)]
    if not on_all:
        return ()
    sides = {"below": _below(on_all, request, replicas), "above": _above(request, replicas)}
    nearest = []
    for side, batches in sides.items():
        for batch in batches:
            scores = search(on_all, replace(request, target=Target(batch, batch, batch)))
            if len(scores):
                first = best_first(scores, on_all)[0]
                option = on_all[int(scores.option[first])]
                counts = int(scores.micro_batch[first]), int(scores.accumulation_steps[first])
                plan = make_plan(option, request, *counts)
                nearest.append(Nearest(side, _apart(plan, request.target.kind), plan))
                break
    return tuple(nearest)


def _apart(plan: Plan, samples: Samples) -> Sentence:
    """How far a plan's batch is from the target."""
    apart = {
        "samples": samples.counted(abs(plan.drift)),
        "gpus": Counted("{n} GPU", "{n} GPUs", plan.replicas),
    }
    if plan.drift < 0:
        return Sentence("{samples} below the target, on {gpus}", **apart)
    return Sentence("{samples} above the target, on {gpus}", **apart)


def _unit(request: Request, replicas: int) -> int:
    """Every batch that can be reached is a multiple of this."""
    return replicas * (request.micro_batch or 1) * (request.accumulation_steps or 1)


def _below(on_all: Sequence[Option], request: Request, replicas: int) -> Iterator[int]:
    unit = _unit(request, replicas)
    highest = (request.target.samples - 1) // unit * unit
    if request.most_accumulation is not None:
        fitting = max((_largest(option) for option in on_all), default=0)
        highest = min(highest, fitting * request.most_accumulation * replicas // unit * unit)
    yield from (batch for batch in range(highest, max(0, highest - _TRIES * unit), -unit))


def _above(request: Request, replicas: int) -> Iterator[int]:
    unit = _unit(request, replicas)
    lowest = request.target.samples // unit * unit + unit
    yield from (lowest + place * unit for place in range(_TRIES) if lowest + place * unit <= LARGEST_BATCH)


def _fits_at_all(option: Option, request: Request) -> bool:
    largest = option.envelope.largest(option.capacity.capacity_bytes, accumulates=False)
    return largest >= (request.micro_batch or 1)


def _largest(option: Option) -> int:
    return option.envelope.largest(option.capacity.capacity_bytes, accumulates=True)


def in_memory(found: Sequence[Option], request: Request) -> tuple[Nearest, ...]:
    """Where nothing fits: the plan with the smallest peak, and how much memory it lacks.

    Of the options that reach the target exactly where there are any, at the pinned or smallest micro-batch.
    """
    import numpy as np

    micro = request.micro_batch or 1
    one = np.array([micro], dtype=np.int64)

    def steps_on(replicas: int) -> int:
        steps = request.accumulation_steps or max(1, request.target.samples // (micro * replicas))
        return min(steps, request.most_accumulation or steps)

    def away(option: Option) -> int:
        return abs(micro * steps_on(option.replicas) * option.replicas - request.target.samples)

    def peak(option: Option) -> int:
        return int(option.envelope.allocated(one, steps_on(option.replicas) > 1)[0])

    nearest = min(map(away, found), default=0)
    chosen = min((option for option in found if away(option) == nearest), key=peak, default=None)
    if chosen is None:
        return ()
    smallest = make_plan(chosen, request, micro, steps_on(chosen.replicas))
    lacking = smallest.peak_allocated_bytes - smallest.capacity_bytes
    if lacking <= 0:
        return ()
    return (Nearest("memory", Sentence("{lacking} too much on each GPU", lacking=Size(lacking)), smallest),)
