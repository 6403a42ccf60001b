"""An optimizer step of one rank of Megatron-DeepSpeed, by its pipeline's schedule, replayed on its card.

Sources: microsoft/DeepSpeed of January 2022, `runtime/pipe/schedule.py` (`TrainSchedule`) and `runtime/pipe/engine.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from batchfit.trace import WholeStep
from batchfit.trace.allocator import replay
from batchfit.trace.gpu import Gpu
from batchfit.trace.own_step import OwnStep
from bench.accuracy.deepspeed_optimizers import Whole, Zero1
from bench.accuracy.megatron import Place, Stage, loss

#: One optimizer step is replayed; how many micro-batches it has at least.
_STEPS = (1,)


def answer(asked: Mapping[str, Any], micro_batches: tuple[int, ...]) -> dict[str, Any]:
    """What steps of a rank at each micro-batch allocate and reserve: of the first stage, or of that which reserves the
    most, as `rank` says."""
    stages = asked["rank"]["stages"]
    numbers = {0} if asked["rank"]["stage"] == "first" else {0, stages - 1}
    steps = [_prepared(asked, number) for number in sorted(numbers)]
    return {"replays": {str(b): _fullest(steps, b, asked["capacity_bytes"]) for b in micro_batches}}


def _prepared(asked: Mapping[str, Any], stage: int) -> OwnStep:
    gpu = Gpu(attention="eager")
    with gpu.building():
        step = whole_step(asked, stage)
    return OwnStep(step, gpu)


def _fullest(steps: Iterable[OwnStep], micro_batch: int, capacity: int) -> dict[str, Any]:
    """What the fullest of the ranks takes, and whether all of them fit the card."""
    timelines = [step.timeline(micro_batch, _STEPS).events for step in steps]
    endless = [replay(events) for events in timelines]
    most = max(endless, key=lambda found: found.reserved_peak_bytes)
    fits = most.reserved_peak_bytes <= capacity or all(
        replay(events, capacity_bytes=capacity).out_of_memory is None for events in timelines
    )
    return {"allocated": most.allocated_peak_bytes, "reserved": most.reserved_peak_bytes, "fits": fits}


def whole_step(asked: Mapping[str, Any], stage: int) -> WholeStep:
    """The step of one rank of that stage, which a question's `rank` describes."""
    rank = asked["rank"]
    place = Place(stage, rank["stages"], rank["tensor"])
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[asked["weights"]]
    with torch.device("meta"):
        model = Stage(
            asked["config"], asked["seq_len"], place, checkpointing=asked["checkpointing"] == "full"
        ).to(dtype)
    optimizer = (Zero1 if rank["zero"] == 1 else Whole)(model, rank["replicas"])
    pipeline = _Pipeline(model, place, rank["micro_batches"])

    def step(micro_batch: int, accumulation_steps: int) -> None:
        pipeline.run(micro_batch, accumulation_steps)
        optimizer.step()

    return WholeStep(model, step)


class _Pipeline:
    """One forward, one backward: a stage runs ahead by as many micro-batches as stages follow it."""

    def __init__(self, model: Stage, place: Place, micro_batches: int) -> None:
        self._model, self._place = model, place
        self._in_flight = min(place.stages - place.stage, micro_batches)
        self._micro_batches = min(micro_batches, self._in_flight + 1)

    def run(self, micro_batch: int, accumulation_steps: int) -> None:
        """Runs what is needed for the stage to hold all that it ever does: more micro-batches hold no more."""
        shape = (self._model.seq_len, micro_batch, self._model.hidden)
        dtype = next(self._model.parameters()).dtype
        received = None if self._place.is_first else self._part(shape, dtype)
        gradient = None if self._place.is_last else self._part(shape, dtype)
        waiting: deque[_Flight] = deque()
        # The engine has two buffers for outputs at least, and the last stage leaves its logits there.
        outputs: deque[Tensor] = deque(maxlen=2)
        count = max(self._micro_batches, accumulation_steps)
        for number in range(count):
            waiting.append(_Flight(self._model, self._place, micro_batch, received, shape))
            if waiting[-1].logits is not None:
                outputs.append(waiting[-1].logits)
            if len(waiting) == self._in_flight and number + 1 < count:
                waiting.popleft().backward(gradient, shape)
        while waiting:
            waiting.popleft().backward(gradient, shape)

    def _part(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """What comes from another stage: where ranks share layers, each is sent its part and gathers the whole."""
        count = shape[0] * shape[1] * shape[2] // self._place.tensor
        return torch.empty(count, dtype=dtype, device="cuda")


class _Flight:
    """A micro-batch between its forward and its backward: what the engine's buffers keep of it."""

    def __init__(
        self, model: Stage, place: Place, micro_batch: int, received: Tensor | None, shape: tuple[int, ...]
    ) -> None:
        self._place = place
        labels = torch.ones(micro_batch, shape[0], dtype=torch.long, device="cuda")
        self._input = labels if received is None else self._gathered(received.clone(), shape)
        if received is not None:
            self._input.requires_grad_()
        result = model(self._input.clone())
        self.logits = result if place.is_last else None
        if place.is_last:
            result = loss(result, labels)
        self._part: Tensor | None = None
        if not place.is_last and place.tensor > 1:
            # The result is sent and kept in parts; the graph stays, its data goes.
            self._part = result.detach().flatten().chunk(place.tensor)[0].clone()
            result.data = torch.zeros(1, dtype=result.dtype, device="cuda")
        self._result = result

    def _gathered(self, part: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self._place.tensor == 1:
            return part.view(shape)
        return torch.empty(shape, dtype=part.dtype, device="cuda")

    def backward(self, gradient: Tensor | None, shape: tuple[int, ...]) -> None:
        if gradient is None:
            self._result.backward()
            return
        if self._part is not None:
            self._result.data = self._gathered(self._part, shape)
        torch.autograd.backward([self._result], [self._gathered(gradient, shape)])
