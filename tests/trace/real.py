"""A training step run for real on the CPU, watched by the same tracker as a trace."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from torch import nn

from batchfit.trace.autocast import Autocast
from batchfit.trace.checkpointing import checkpoint_blocks
from batchfit.trace.job import adopt
from batchfit.trace.optimizers import create_optimizer
from batchfit.trace.protocol import Loss, model_loss
from batchfit.trace.settings import Settings
from batchfit.trace.step import Step
from batchfit.trace.timeline import Timeline
from batchfit.trace.tracker import Tracker


def real_timeline(
    model: nn.Module,
    batch: Any,
    micro_batch: int,
    settings: Settings,
    steps: Iterable[int],
    loss: Loss = model_loss,
) -> Timeline:
    """The timeline of optimizer steps that compute with data, on the CPU."""
    model = copy.deepcopy(model).train()
    checkpoint_blocks(model, settings.checkpointing)
    tracker = Tracker()
    with ExitStack() as stack:
        stack.enter_context(Autocast(lambda tensor: True, tracker))
        stack.enter_context(tracker)
        adopt(model, tracker)
        step = Step(model, loss, create_optimizer(settings.optimizer, model), settings, tracker)
        step.run(lambda: batch(micro_batch), steps)
        tracker.close()
    return tracker.timeline
