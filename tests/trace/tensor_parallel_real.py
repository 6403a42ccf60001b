"""Prints the peaks of forward, of backward, and after it: of a whole model, of one rank of it under PyTorch's tensor
parallelism, and of one that is divided for a trace."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from batchfit.trace.tensor_parallel import GROUP, TensorParallel, divide, vocabulary_parallel_loss
from batchfit.trace.timeline import MARK, Timeline
from batchfit.trace.tracker import Tracker

BATCH, LENGTH, VOCABULARY, WIDTH = 2, 256, 2048, 128


class LocalTracker(Tracker):
    """Sees the tensors a rank holds: a DTensor first runs its own dispatch, on its local share, and what a collective
    gave first waits."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.mlp(self.norm(x))
        return out


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down(F.silu(self.up(x)))
        return down


class Decoder(nn.Module):
    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.loss = loss

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embedding(ids)
        for block in self.blocks:
            h = block(h)
        return self.loss(self.output(self.norm(h)).flatten(0, 1), ids.flatten(0, 1))


def parallelized(ranks: int) -> nn.Module:
    model, mesh = Decoder(), init_device_mesh("cpu", (ranks,))
    sequence, whole = Shard(1), Replicate()
    plan = {
        "embedding": RowwiseParallel(input_layouts=whole, output_layouts=sequence),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=sequence, output_layouts=Shard(-1), use_local_output=False),
        "blocks.*.norm": SequenceParallel(),
        "blocks.*.mlp": PrepareModuleInput(input_layouts=(sequence,), desired_input_layouts=(whole,)),
        "blocks.*.mlp.up": ColwiseParallel(),
        "blocks.*.mlp.down": RowwiseParallel(output_layouts=sequence),
    }
    return parallelize_module(model, mesh, plan)


def divided(ranks: int) -> nn.Module:
    model, parallel = Decoder(vocabulary_parallel_loss), TensorParallel(ranks)
    divide(model, {"output": "gather"}, parallel)
    plan = {
        "embedding": "vocabulary",
        "blocks.*.mlp": "gather",
        "blocks.*.mlp.up": "colwise",
        "blocks.*.mlp.down": "rowwise",
        "output": "colwise",
    }
    divide(model, plan, parallel)
    return model


def run(model: nn.Module, tracker: Tracker, losses: Callable[[], AbstractContextManager[object]]) -> Timeline:
    with tracker:
        for parameter in model.parameters():
            local = parameter._local_tensor if isinstance(parameter, DTensor) else parameter
            tracker.adopt(local, "weights")
        for step in range(2):
            with losses():
                tracker.mark("forward", step, 0)
                loss = model(torch.zeros(BATCH, LENGTH, dtype=torch.long))
                tracker.mark("backward", step, 0)
                loss.backward()
            del loss
            tracker.mark("between", step, 0)
            model.zero_grad()
        tracker.close()
    return tracker.timeline


def peaks(timeline: Timeline) -> dict[str, int]:
    """The most bytes alive in each phase of the second step."""
    found: dict[str, int] = {}
    phase = ""
    for event, alive in timeline.live():
        if event.kind == MARK:
            mark = timeline.marks[event.stack]
            phase = mark.phase if mark.step else ""
        if phase:
            found[phase] = max(alive, found.get(phase, 0))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ranks = int(sys.argv[1])
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    # With data, collectives look up their group.
    torch._C._distributed_c10d._register_process_group(GROUP, dist.group.WORLD)  # type: ignore[arg-type]
    found = [
        peaks(run(Decoder(), Tracker(), nullcontext)),
        peaks(run(parallelized(ranks), LocalTracker(), loss_parallel)),
        peaks(run(divided(ranks), Tracker(), nullcontext)),
    ]
    for phase in found[0]:
        print(phase, *(peak[phase] for peak in found))
    sys.stdout.flush()
    os._exit(0)
