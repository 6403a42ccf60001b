"""DeepSpeed's optimizers of January 2022 on one rank: without ZeRO, and ZeRO's first stage under a pipeline.

Sources: microsoft/DeepSpeed, `runtime/zero/stage_1_and_2.py` (`reduce_gradients`, `buffered_reduce_fallback`, `step`),
`runtime/engine.py` (stage 1 ignores contiguous gradients and overlapped communication) and
`runtime/fp16/fused_optimizer.py`; NVIDIA's apex for an Adam that makes nothing on the way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

#: Elements that gradients are reduced by, and updated weights gathered by (`reduce_bucket_size`,
#: `allgather_bucket_size`).
_BUCKET = 500_000_000


class _Optimizer(ABC):
    """Adam on flat float32 copies of 16-bit weights, which are views of flat tensors: one decayed, one not."""

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


class Zero1(_Optimizer):
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


class Whole(_Optimizer):
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
