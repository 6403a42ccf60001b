"""What is reserved over samples of several lengths, in orders drawn by chance: a run's own order is never published."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from batchfit.gpus import find_gpu
from batchfit.planning.fit import capacity
from batchfit.trace.varying import VaryingLengths, telling

#: Orders drawn, each with a seed of its own.
ORDERS = 10

#: Of each order so many micro-batches are replayed, and later ones that are longer than all before.
FIRST = 60


def orders(steps: VaryingLengths, lengths: Mapping[str, Any], longest: int, micro_batch: int) -> list[int]:
    """The bytes reserved in the end in each order, lowest first.

    `lengths` tell of a dataset's tokens a sample: their `mean`, `deviation`, `shortest`, `samples`, the
    `accumulation_steps` of training and the `gpu`. Samples of more than `longest` tokens are left out.
    """
    room = capacity(find_gpu(lengths["gpu"]), 1).capacity_bytes
    accumulation_steps = lengths["accumulation_steps"]
    found = []
    for seed in range(ORDERS):
        drawn = telling(_micro_batches(lengths, longest, micro_batch, random.Random(seed)), FIRST)
        found.append(max(steps.reserved(drawn, micro_batch, accumulation_steps, capacity_bytes=room)))
    return sorted(found)


def _micro_batches(
    lengths: Mapping[str, Any], longest: int, micro_batch: int, chance: random.Random
) -> Iterator[int]:
    """The longest sample of each micro-batch of an epoch. Tokens are spread as the logarithm's normal distribution of
    the published mean and deviation, the usual shape of texts' lengths."""
    variance = math.log(1 + (lengths["deviation"] / lengths["mean"]) ** 2)
    middle = math.log(lengths["mean"]) - variance / 2
    drawn = (int(chance.lognormvariate(middle, math.sqrt(variance))) for _ in range(lengths["samples"]))
    kept = [tokens for tokens in drawn if lengths["shortest"] <= tokens <= longest]
    for at in range(0, len(kept) - micro_batch + 1, micro_batch):
        yield max(kept[at : at + micro_batch])
