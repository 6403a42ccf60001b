"""Which plan comes first: the fastest, and among those that the model of time cannot tell apart, the simplest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchfit.planning.traits import CHECKPOINTING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: From the simplest to set up and to debug to the most involved.
SHARDINGS = ("none", "ddp", "fsdp", "zero1", "zero2", "zero3")


@dataclass(frozen=True, slots=True)
class Scores:
    """Candidates as columns: `option` is the index of their option, the rest is theirs. Bytes and seconds.

    `seconds` are per sample; where no time can be told, one over the samples of a micro-batch on all replicas, which
    puts the fewest micro-batches first.
    """

    option: NDArray[np.int32]
    micro_batch: NDArray[np.int64]
    accumulation_steps: NDArray[np.int64]
    drift: NDArray[np.int64]
    peak_bytes: NDArray[np.int64]
    tight: NDArray[np.bool_]
    seconds: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.option)


def order(scores: Scores, simplicity: NDArray[np.int64], error: float) -> NDArray[np.intp]:
    """The indices of the candidates, best first.

    Plans that surely fit come before tight ones. Then time decides in tiers as wide as `error`, the model's relative
    error: within a tier come the exact batch, the simplest option (`simplicity`, one number for each option), and
    only then the time.
    """
    import numpy as np

    if not len(scores):
        return np.empty(0, dtype=np.intp)
    fastest = scores.seconds[~scores.tight].min() if not scores.tight.all() else scores.seconds.min()
    tier = np.floor(np.log(scores.seconds / fastest) / math.log1p(error)).astype(np.int64)
    return np.lexsort(
        (
            scores.peak_bytes,
            scores.seconds,
            simplicity[scores.option],
            np.abs(scores.drift),
            np.maximum(tier, 0),
            scores.tight,
        )
    )


def simplicity(sharding: str, checkpointing: str) -> int:
    """How involved an option is: sharding first, then checkpointing."""
    return SHARDINGS.index(sharding) * len(CHECKPOINTING) + CHECKPOINTING.index(checkpointing)
