"""Runs the same training on real tensors and without data, and compares what they allocate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from batchfit.trace.gpu import Gpu
from batchfit.trace.job import adopt
from batchfit.trace.timeline import ALLOC, FREE, Timeline
from batchfit.trace.tracker import Tracker

#: Trains a model, telling the tracker where it is.
Training = Callable[[nn.Module, Any, Tracker], None]


def on_cpu(make: Callable[[], nn.Module], batch: Any, train: Training) -> Timeline:
    """The timeline of real training on the CPU."""
    model = make().train()
    tracker = Tracker()
    with tracker:
        return _run(model, batch, train, tracker)


def without_data(make: Callable[[], nn.Module], batch: Any, train: Training, shown: str = "cpu") -> Timeline:
    """The timeline of the same training without data, as the CPU ("cpu") or a GPU ("cuda:0") would do it."""
    with torch.device("meta"):
        model = make().train()
    gpu = Gpu(shown)
    there = gpu.bring(batch)
    with gpu.watched() as tracker:
        return _run(model, there, train, tracker)


def _run(model: nn.Module, batch: Any, train: Training, tracker: Tracker) -> Timeline:
    adopt(model, tracker)
    train(model, batch, tracker)
    tracker.close()
    return tracker.timeline


def sizes(timeline: Timeline) -> list[tuple[int, int]]:
    """Births and deaths in order, with their bytes, of whatever is more than a single number.

    Single numbers are left out, since counters and constants are on the host in one run and not in the other.
    """
    return [(e.kind, e.nbytes) for e in timeline.events if e.kind in (ALLOC, FREE) and e.nbytes > 8]


def two_micro_batches(model: nn.Module, batch: Any, tracker: Tracker) -> None:
    """Forward and backward, twice; the batch is a dict of the model's arguments, which computes its own loss."""
    for micro in range(2):
        tracker.mark("forward", 0, micro)
        loss = model(**batch).loss
        tracker.mark("backward", 0, micro)
        loss.backward()
        del loss
