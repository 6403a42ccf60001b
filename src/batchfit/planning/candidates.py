"""Every micro-batch and number of accumulation steps that reach a target on a number of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchfit.errors import BadInput
from batchfit.planning.target import Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

#: Pairs tried for one number of replicas at most: some seconds, and less memory than a browser tab.
MOST_PAIRS = 5_000_000


def candidates(
    target: Target,
    replicas: int,
    *,
    most_micro_batch: int,
    micro_batch: int | None = None,
    accumulation_steps: int | None = None,
    most_accumulation_steps: int | None = None,
) -> tuple[Counts, Counts]:
    """Arrays of micro-batches and of accumulation steps whose product with `replicas` is within the target.

    Ascending in the micro-batch, which is at most `most_micro_batch` samples; `micro_batch` and
    `accumulation_steps` pin one value. The time is linear in the micro-batches tried and the pairs found.
    Raises BadInput where a wide tolerance leaves more than MOST_PAIRS.
    """
    import numpy as np

    largest = min(most_micro_batch, target.high // replicas)
    tried: Counts = np.arange(1, largest + 1, dtype=np.int64)
    if micro_batch is not None:
        tried = tried[micro_batch - 1 : micro_batch]
    elif target.exact:
        # Where the replicas do not divide the target, no micro-batch does.
        tried = tried[target.samples % (tried * replicas) == 0]
    return _with_steps(tried, target, replicas, accumulation_steps, most_accumulation_steps)


def _with_steps(
    micro: Counts, target: Target, replicas: int, pinned: int | None, most: int | None
) -> tuple[Counts, Counts]:
    """Each micro-batch with all of its numbers of steps: a run of consecutive numbers, maybe empty."""
    import numpy as np

    samples = micro * replicas
    first, last = -(-target.low // samples), target.high // samples
    first = np.maximum(first, 1)
    if pinned is not None:
        first, last = np.maximum(first, pinned), np.minimum(last, pinned)
    if most is not None:
        last = np.minimum(last, most)
    runs = np.maximum(last - first + 1, 0)
    if (pairs := int(runs.sum())) > MOST_PAIRS:
        raise BadInput(
            "tolerance",
            "leaves {pairs} ways to reach the batch, of which at most {limit} are tried; narrow it",
            pairs=pairs,
            limit=MOST_PAIRS,
        )
    # The steps of all runs, one run after the other: each run counts up from its first.
    begins = np.cumsum(runs) - runs
    steps = np.arange(pairs, dtype=np.int64) - np.repeat(begins, runs) + np.repeat(first, runs)
    return np.repeat(micro, runs), steps
