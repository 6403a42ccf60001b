"""The Pareto front of memory against time: plans that no other beats in both."""

from __future__ import annotations

from batchfit.planning.rank import Scores


def front(scores: Scores) -> list[int]:
    """Indices of the candidates for which none is both smaller and at least as fast, by rising memory."""
    import numpy as np

    by_memory = np.lexsort((scores.seconds, scores.peak_bytes))
    fastest_so_far = np.minimum.accumulate(scores.seconds[by_memory])
    before = np.concatenate([[np.inf], fastest_so_far[:-1]])
    return [int(index) for index in by_memory[scores.seconds[by_memory] < before]]
