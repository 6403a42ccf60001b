"""timm's models in the steps of timm's own programs, replayed on a card.

Its benchmark (pytorch-image-models, benchmark.py, `TrainBenchmarkRunner`, with PyTorch 1.10 to 1.12): backward inside
of autocast and without a gradient scaler, gradients zeroed and not dropped, Nesterov momentum one parameter at a time.
Its training (train.py of 2024, with its defaults): the next batch is on the card already, gradients are dropped, and
Nesterov momentum with weight decay steps over all parameters at once.
A program after PyTorch's ImageNet example (GPUMemNet's Test_Pipeline/models): Adam, gradients are dropped once the
batch is on the card, and torchvision's models beside timm's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from batchfit.trace import WholeStep
from batchfit.trace.allocator import replay
from batchfit.trace.gpu import Gpu
from batchfit.trace.own_step import OwnStep

#: Operators that torchvision's Python sources expect from its binaries.
_OPERATORS = ("nms", "qnms")

_held: list[torch.library.Library] = []

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}

#: Optimizer steps replayed, of one micro-batch each: later ones are like the second.
_STEPS = (1, 1)


def answer(asked: Mapping[str, Any], micro_batches: tuple[int, ...]) -> dict[str, Any]:
    """What two steps at each micro-batch allocate and reserve, and whether they fit `capacity_bytes`, where given.

    `timm` is the model's name, or `torchvision` its name in that library, `image` the side of its square images (the
    model's own without it), `memory_format` how they lie in memory, `mixed` the type that autocast computes in,
    `program` "benchmark", "train" or "imagenet".
    """
    import_torchvision()
    gpu = Gpu()
    with gpu.building():
        step = _PROGRAMS[asked["program"]](asked)
    own = OwnStep(step, gpu)
    return {"replays": {str(b): _on_card(own, b, asked.get("capacity_bytes")) for b in micro_batches}}


def _on_card(own: OwnStep, micro_batch: int, capacity: int | None) -> dict[str, Any]:
    events = own.timeline(micro_batch, _STEPS).events
    endless = replay(events)
    fits = (
        capacity is None
        or endless.reserved_peak_bytes <= capacity
        or replay(events, capacity_bytes=capacity).out_of_memory is None
    )
    return {"allocated": endless.allocated_peak_bytes, "reserved": endless.reserved_peak_bytes, "fits": fits}


def _benchmark(asked: Mapping[str, Any]) -> WholeStep:
    layout: torch.memory_format = getattr(torch, asked["memory_format"])
    model, size = _created(asked)
    model.to(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True, foreach=False)
    loss = nn.CrossEntropyLoss()

    def step(micro_batch: int, accumulation_steps: int) -> None:
        images = torch.empty(micro_batch, 3, size, size, device="cuda").contiguous(memory_format=layout)
        for _ in range(accumulation_steps):
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast("cuda", _DTYPES[asked["mixed"]]):
                output = model(images)
                if isinstance(output, tuple):
                    output = output[0]
                loss(output, _targets(micro_batch)).backward()
            optimizer.step()

    return WholeStep(model, step)


def _train(asked: Mapping[str, Any]) -> WholeStep:
    model, size = _created(asked)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-5, nesterov=True)

    def step(micro_batch: int, accumulation_steps: int) -> None:
        images, ahead = (torch.empty(micro_batch, 3, size, size, device="cuda") for _ in range(2))
        for _ in range(accumulation_steps):
            output = model(images)
            if isinstance(output, (tuple, list)):
                output = output[0]
            F.cross_entropy(output, _targets(micro_batch), label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
        del ahead

    return WholeStep(model, step)


def _imagenet(asked: Mapping[str, Any]) -> WholeStep:
    model, size = _created(asked)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(micro_batch: int, accumulation_steps: int) -> None:
        for _ in range(accumulation_steps):
            images = torch.empty(micro_batch, 3, size, size, device="cuda")
            optimizer.zero_grad()
            F.cross_entropy(model(images), _targets(micro_batch)).backward()
            optimizer.step()

    return WholeStep(model, step)


_PROGRAMS: dict[str, Callable[[Mapping[str, Any]], WholeStep]] = {
    "benchmark": _benchmark,
    "train": _train,
    "imagenet": _imagenet,
}


def _targets(micro_batch: int) -> torch.Tensor:
    return torch.zeros(micro_batch, dtype=torch.long, device="cuda")


def _created(asked: Mapping[str, Any]) -> tuple[nn.Module, int]:
    """The model, ready to be trained, and the side of its images."""
    if "torchvision" in asked:
        return _of_torchvision(asked["torchvision"]), asked["image"]
    timm: Any = importlib.import_module("timm")
    model: Any = timm.create_model(asked["timm"])
    model.train()
    return model, asked.get("image") or model.default_cfg["input_size"][-1]


def _of_torchvision(name: str) -> nn.Module:
    """The model without auxiliary outputs, ready to be trained."""
    models: Any = importlib.import_module("torchvision.models")
    options = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    model: nn.Module = models.get_model(name, weights=None, **options)
    return model.train()


def import_torchvision() -> None:
    """torchvision, which timm imports for images that are not read here. Its binaries need a CUDA build of PyTorch;
    without them its Python sources can be imported once the operators are declared that they describe."""
    try:
        importlib.import_module("torchvision")
        return
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _held.append(library)
    importlib.import_module("torchvision")
