"""Peak memory against the micro-batch for one option: what a picture of it is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchfit.planning.options import Option

if TYPE_CHECKING:
    from batchfit.planning.result import Plan

#: Points of a curve at most: enough for a picture, few enough to read.
_POINTS = 64


@dataclass(frozen=True, slots=True)
class Curve:
    """Micro-batches, ascending, the bytes each takes on one GPU, what the card has, and the micro-batch of the plan."""

    micro_batches: Sequence[int]
    allocated_bytes: Sequence[int]
    reserved_bytes: Sequence[int] | None
    capacity_bytes: int
    chosen: int


def sensitivity(option: Option, plan: Plan) -> Curve:
    """The curve of the plan's setting, to a quarter beyond the largest micro-batch that fits, and beyond the plan's."""
    import numpy as np

    accumulates = plan.accumulation_steps > 1
    largest = option.envelope.largest(option.capacity.capacity_bytes, accumulates)
    end = max(4, 2 * plan.micro_batch, min(largest + largest // 4 + 1, 16 * plan.micro_batch))
    tried = {plan.micro_batch, *(round(b) for b in np.linspace(1, end, min(end, _POINTS)).tolist())}
    micro = np.array(sorted(tried), dtype=np.int64)
    allocated = option.envelope.allocated(micro, accumulates)
    reserved = option.envelope.reserved(micro, allocated, accumulates)
    return Curve(
        micro.tolist(),
        allocated.tolist(),
        None if reserved is None else reserved.tolist(),
        option.capacity.capacity_bytes,
        plan.micro_batch,
    )
