"""An optimizer step of one rank of Megatron-DeepSpeed: its pipeline schedule, and its optimizer by ZeRO stage.

Sources: microsoft/DeepSpeed of January 2022, `runtime/pipe/schedule.py` (`TrainSchedule`), `runtime/pipe/engine.py`,
`runtime/zero/stage_1_and_2.py` and `runtime/fp16/fused_optimizer.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from batchfit.trace import WholeStep
from batchfit.trace.allocator import replay
from batchfit.trace.gpu import Gpu
from batchfit.trace.own_step import OwnStep
from bench.accuracy.megatron import Place, Stage, loss

#: One optimizer step is replayed; how many micro-batches it has at least.
_STEPS = (1,)

#: Elements that gradients are reduced by, and updated weights gathered by (`reduce_bucket_size`,
#: `allgather_bucket_size`).
_BUCKET = 500_000_000


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
    optimizer = (_Zero1 if rank["zero"] == 1 else _Whole)(model, rank["replicas"])
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


class _Optimizer(ABC):
    """Adam on flat float32 copies of 16-bit weights, which are views of flat tensors, one with and one without decay."""

    def __init__(self, model: nn.Module, replicas: int) -> None:
        self._groups = [list(group) for group in _by_decay(model.parameters()) if group]
        self._flat, masters = [], []
        for group in self._groups:
            count = sum(p.numel() for p in group)
            count = -(-count // replicas) * replicas
            flat = torch.empty(count, dtype=group[0].dtype, device="meta")
            start = 0
            for p in group:
                p.data = flat[start : start + p.numel()].view_as(p)
                start += p.numel()
            self._flat.append(flat)
            masters.append(nn.Parameter(torch.empty(count // self._shards(replicas), device="meta")))
        self._masters = masters
        self._optimizer = torch.optim.AdamW(masters, fused=True)

    def _shards(self, replicas: int) -> int:
        return 1

    def step(self) -> None:
        """Reduces the gradients, updates, and copies the result to the 16-bit weights."""
        self._prepare()
        self._optimizer.step()
        for master in self._masters:
            master.grad = None
            # The tracer puts an optimizer's state on the timeline; the copy that is updated is of it.
            self._optimizer.state[master]["master"] = master.data
        for flat, master in zip(self._flat, self._masters, strict=True):
            flat[: master.numel()].copy_(master.data)
        self._gather()

    @abstractmethod
    def _gather(self) -> None:
        """Brings the replicas' weights together."""

    @abstractmethod
    def _prepare(self) -> None:
        """From the parameters' gradients to those of the flat float32 copies."""


def _by_decay(parameters: Iterable[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Megatron's two groups: biases and norms are not decayed."""
    decayed: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for p in parameters:
        (decayed if p.dim() > 1 else rest).append(p)
    return decayed, rest


def _buckets(group: Iterable[nn.Parameter]) -> Iterator[list[Tensor]]:
    """The gradients that are reduced together."""
    bucket: list[Tensor] = []
    for p in group:
        if p.grad is None:
            continue
        if bucket and sum(t.numel() for t in bucket) + p.numel() > _BUCKET:
            yield bucket
            bucket = []
        bucket.append(p.grad)
    yield bucket


def _flattened(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


class _Zero1(_Optimizer):
    """ZeRO stage 1: each replica updates its partition; gradients are whole until the step, and in 16 bits."""

    def _shards(self, replicas: int) -> int:
        self._replicas = replicas
        return replicas

    def _prepare(self) -> None:
        # Nothing waits for a collective before the next is called, so all that they read and write stays.
        in_transit = [self._all_reduced(bucket) for group in self._groups for bucket in _buckets(group)]
        partitions = [self._partition(group) for group in self._groups]
        for group in self._groups:
            for p in group:
                p.grad = None
        for partition in partitions:
            for gradient in partition:
                gradient.float().sum()  # looks for infinities, and waits for the answer
                in_transit.clear()
        for number, master in enumerate(self._masters):
            for gradient in partitions[number]:
                gradient.double().norm(2)
            master.grad = self._padded(_flattened(partitions[number]), master).float()
            partitions[number] = []

    def _all_reduced(self, bucket: list[Tensor]) -> Tensor:
        flat = _flattened(bucket)
        flat.div_(self._replicas)
        start = 0
        for gradient in bucket:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return flat

    def _gather(self) -> None:
        in_transit = []
        for flat in self._flat:
            shards = max(1, flat.numel() // _BUCKET)
            # NCCL gathers a list of tensors by way of a flat one.
            in_transit += [torch.empty_like(flat[: flat.numel() // shards]) for _ in range(shards)]

    def _partition(self, group: list[nn.Parameter]) -> list[Tensor]:
        """The first replica's gradients: whole tensors, and the part of the last one that it updates."""
        left = -(-sum(p.numel() for p in group) // self._replicas)
        found: list[Tensor] = []
        for p in group:
            if left <= 0 or p.grad is None:
                break
            found.append(p.grad if p.numel() <= left else p.grad.view(-1)[:left])
            left -= p.numel()
        return found

    def _padded(self, flat: Tensor, master: Tensor) -> Tensor:
        missing = master.numel() - flat.numel()
        return flat if not missing else torch.cat([flat, flat.new_zeros(missing)])


class _Whole(_Optimizer):
    """No ZeRO: every replica updates all weights; their gradients become float32 one by one, and then flat."""

    def _prepare(self) -> None:
        for group, master in zip(self._groups, self._masters, strict=True):
            upcast = [p.grad.float() if p.grad is not None else torch.zeros_like(p).float() for p in group]
            flat = _flattened(upcast)
            del upcast
            for p in group:
                p.grad = None
            missing = master.numel() - flat.numel()
            master.grad = flat if not missing else torch.cat([flat, flat.new_zeros(missing)])

    def _gather(self) -> None:
        """Every replica has updated all weights."""
