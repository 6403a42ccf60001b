"""Runs optimizer steps of a model under the tracker, as a training loop does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from batchfit.trace.flat import zero_flat_gradients
from batchfit.trace.protocol import Loss, check_loss, loss_in
from batchfit.trace.settings import Settings
from batchfit.trace.tracker import Tracker

#: Micro-batches of each optimizer step that is traced. The first step makes the optimizer's state; the second
#: runs with it and has a first and a later micro-batch. More of either adds nothing.
STEPS = (1, 2)


class Step:
    """A model in training: its loss, its optimizer, and what goes with the precision."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        settings: Settings,
        tracker: Tracker,
    ) -> None:
        self._model = model
        self._loss = loss
        self._optimizer = optimizer
        self._settings = settings
        self._tracker = tracker
        self._average = _Average(model, tracker) if settings.ema else None
        scaled = settings.autocast_dtype is torch.float16
        self._scaler = torch.amp.GradScaler("cuda", enabled=scaled) if scaled else None

    def run(self, batch: Callable[[], Any], steps: Iterable[int] = STEPS) -> None:
        """Runs optimizer steps; `steps` gives the number of micro-batches in each."""
        tracker = self._tracker
        steps = tuple(steps)
        for step, micros in enumerate(steps):
            tracker.mark("begin", step)
            for micro in range(micros):
                self._micro(batch, step, micro, micros)
            tracker.mark("optimizer", step)
            self._update()
            tracker.mark("zero_grad", step)
            self._optimizer.zero_grad(set_to_none=self._settings.set_to_none)
            zero_flat_gradients(self._model)
        tracker.mark("end", len(steps) - 1)

    def _micro(self, batch: Callable[[], Any], step: int, micro: int, micros: int) -> None:
        tracker = self._tracker
        tracker.mark("forward", step, micro)
        with tracker.categorised("input"):
            inputs = batch()
        with self._autocast():
            # A loop holds what its model gave it until backward is done, logits and all.
            output = self._loss(self._model, inputs)
            loss = check_loss(loss_in(output))
        if micros > 1:
            loss = loss / micros
        tracker.mark("backward", step, micro)
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        del loss, output
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                tracker.label(parameter.grad, "gradients")

    def _autocast(self) -> AbstractContextManager[object]:
        dtype = self._settings.autocast_dtype
        return nullcontext() if dtype is None else torch.autocast("cuda", dtype)

    def _update(self) -> None:
        limit, scaler = self._settings.max_grad_norm, self._scaler
        if limit is not None:
            if scaler is not None:
                scaler.unscale_(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), limit)
        if scaler is None:
            self._optimizer.step()
        else:
            scaler.step(self._optimizer)
            scaler.update()
        if self._average is not None:
            self._average.update(self._model)


class _Average:
    """An exponential moving average of the weights, as torch.optim.swa_utils.AveragedModel keeps it: a second copy."""

    def __init__(self, model: nn.Module, tracker: Tracker) -> None:
        with torch.no_grad():
            self._averages = [torch.empty_like(p) for p in model.parameters()]
        for average in self._averages:
            tracker.label(average, "buffers")

    def update(self, model: nn.Module) -> None:
        torch._foreach_lerp_(self._averages, [p.detach() for p in model.parameters()], 0.001)
