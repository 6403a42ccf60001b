"""timm's own training benchmark, as published: which batch of a model ran on an RTX 3090, and which one did not.

`timm_fits.csv` has 40 rows of results/benchmark-train-amp-{nchw,nhwc}-pt112-cu113-rtx3090.csv (pytorch-image-models,
July 2022). The step is that of its benchmark.py: mixed precision in float16 without a gradient scaler, backward inside
autocast, gradients zeroed and not dropped, Nesterov momentum one parameter at a time. Nothing was fitted.

`python -m tests.trace.timm_benchmark` prints all rows. timm needs torchvision, so it needs an environment of its own
(5.5 GB): `pip install torch==2.14.1 torchvision==0.29.1 timm transformers pytest click rich numpy babel`. With
`timm==0.6.7` the models are those that were measured.
"""

from __future__ import annotations

import csv
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from batchfit.trace import WholeStep
from batchfit.trace.allocator import Replay, replay
from batchfit.trace.gpu import Gpu
from batchfit.trace.own_step import OwnStep

#: What PyTorch sees of the card ("23.70 GiB total capacity" in its messages of that time).
CARD_BYTES = int(23.70 * 2**30)

#: What a process takes beside its tensors with the software of that time, which loads every kernel of PyTorch at the
#: start: 1343 MiB after the first tensor (transformers' page on training on one GPU, 2022). cuDNN's own is not in it.
CONTEXT_BYTES = 1343 * 2**20

#: Their next batch is traced to fit, and failed: what cuDNN takes, for its kernels and for its workspaces, is nowhere
#: documented, and not modelled.
SAID_TO_FIT = ("dpn98", "legacy_seresnet152", "seresnext26ts", "wide_resnet101_2")


@dataclass(frozen=True, slots=True)
class Published:
    """A row: the largest batch that ran, and the next one that was tried before, which failed."""

    model: str
    memory_format: str
    image_size: int
    ran: int
    failed: int


def published() -> list[Published]:
    """All rows."""
    with (Path(__file__).parent / "timm_fits.csv").open() as file:
        return [
            Published(
                row["model"],
                row["memory_format"],
                int(row["image_size"]),
                int(row["ran"]),
                int(row["failed"]),
            )
            for row in csv.DictReader(file)
        ]


class Benchmark:
    """The benchmark's loop on a model that takes no memory."""

    def __init__(self, row: Published) -> None:
        self._row = row
        self._format: torch.memory_format = getattr(torch, row.memory_format)
        gpu = Gpu()
        with gpu.building():
            step = self._step()
        self._own = OwnStep(step, gpu)

    def replay(self, batch: int) -> Replay:
        """Two steps of so many samples on the card."""
        timeline = self._own.timeline(batch, (1, 1))
        return replay(timeline.events, capacity_bytes=CARD_BYTES - CONTEXT_BYTES)

    def _step(self) -> WholeStep:
        model: nn.Module = _created(self._row.model)
        model.train().to(memory_format=self._format)  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True, foreach=False)
        loss = nn.CrossEntropyLoss()
        size = self._row.image_size

        def step(micro_batch: int, accumulation_steps: int) -> None:
            images = torch.empty(micro_batch, 3, size, size, device="cuda")
            images = images.contiguous(memory_format=self._format)
            for _ in range(accumulation_steps):
                optimizer.zero_grad(set_to_none=False)
                with torch.autocast("cuda", torch.float16):
                    output = model(images)
                    target = torch.zeros(micro_batch, dtype=torch.long, device="cuda")
                    loss(output, target).backward()
                optimizer.step()

        return WholeStep(model, step)


def _created(name: str) -> Any:
    """The model, with attention written out, as all had it at that time."""
    create_model = importlib.import_module("timm").create_model
    try:
        layers: Any = importlib.import_module("timm.layers")
    except ModuleNotFoundError:  # before 0.8 there was no other
        return create_model(name)
    fused = layers.use_fused_attn()
    layers.set_fused_attn(False)
    try:
        return create_model(name)
    finally:
        layers.set_fused_attn(fused)


def main() -> None:
    """Prints each row, and how many of them the trace is right about."""
    right = 0
    for row in published():
        benchmark = Benchmark(row)
        ran, failed = benchmark.replay(row.ran), benchmark.replay(row.failed)
        fits, next_fits = ran.out_of_memory is None, failed.out_of_memory is None
        right += fits and not next_fits
        print(
            f"{row.model:32} {row.memory_format:18} {row.ran:4} {'fits' if fits else 'does not fit':14} {row.failed:4} "
            f"{'fits' if next_fits else 'does not fit':14} {failed.requested_peak_bytes / 2**30:6.2f} GiB",
            flush=True,
        )
    print(f"{right} of {len(published())} right at both batches")


if __name__ == "__main__":
    main()
