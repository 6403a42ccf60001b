"""What a person's function gives a trace: a model, and how a micro-batch of it is made and trained on.

    from batchfit import Training

    def training():
        model = MyModel()
        return Training(model, make_batch=lambda b: (torch.randn(b, 3, 32, 32), torch.zeros(b, dtype=torch.long)),
                        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))

The function runs where tensors have no data, so a model of any size is made in an instant and takes no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput

#: Makes a batch of so many samples: a dict (the model's keyword arguments), a tuple (its positional ones) or a tensor.
#: One that takes two numbers is given the tokens of a sample too, where they are asked for.
MakeBatch = Callable[..., Any]

#: From the model and a batch to the loss: a tensor of one number, or an output that has it as `loss` or comes first.
Loss = Callable[[nn.Module, Any], Any]

PROTOCOL = (
    "a batchfit.Training(model, make_batch), a batchfit.WholeStep(model, step), or a tuple (model, make_batch) or "
    "(model, make_batch, loss); make_batch(b) makes a micro-batch of b samples, loss(model, batch) gives a tensor of "
    "one number, step(micro_batch, accumulation_steps) runs one optimizer step"
)


def model_loss(model: nn.Module, batch: Any) -> Any:
    """The output of a model that computes its loss itself, as those of transformers do, given `labels`."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


def loss_in(output: Any) -> Any:
    """The loss in an output: its `loss`, the first of a tuple, or the output itself."""
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if found is not None:
        return found
    return output[0] if isinstance(output, (tuple, list)) and output else output


@dataclass(frozen=True, slots=True)
class Training:
    """A model, how its micro-batches are made, and what is trained on them.

    `loss(model, batch)` is the loss, by default the one the model computes itself. `optimizer(model)` makes the
    optimizer, for those who bring their own; the model is a copy of the one given.
    """

    model: nn.Module
    make_batch: MakeBatch
    loss: Loss = model_loss
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    name: str | None = None

    @classmethod
    def lightning(cls, module: nn.Module, make_batch: MakeBatch) -> Training:
        """A LightningModule: its `training_step(batch, 0)` is the loss, its `configure_optimizers()` the optimizer."""

        def loss(model: Any, batch: Any) -> Any:
            return model.training_step(batch, 0)

        return cls(module, make_batch, loss, optimizer=_first_optimizer)


@dataclass(frozen=True, slots=True)
class WholeStep:
    """A person's whole optimizer step: `step(micro_batch, accumulation_steps)` makes the batches, runs forward and
    backward of each, and steps the optimizer."""

    model: nn.Module
    step: Callable[[int, int], object]
    name: str | None = None


def _first_optimizer(module: Any) -> torch.optim.Optimizer:
    """The optimizer among what `configure_optimizers` may return: it, a list, lists of both, or a dict."""
    configured = module.configure_optimizers()
    while not isinstance(configured, torch.optim.Optimizer):
        if isinstance(configured, Mapping):
            configured = configured["optimizer"]
        elif isinstance(configured, (tuple, list)) and configured:
            configured = configured[0]
        else:
            raise BadInput(
                "configure_optimizers",
                "must give an optimizer; it gave {found}",
                found=type(configured).__name__,
            )
    return configured


def as_training(given: object, where: str) -> Training | WholeStep:
    """What the person's function at `where` returned, if it is of the protocol. Raises BadInput showing it if not."""
    if isinstance(given, (Training, WholeStep)):
        return given
    is_tuple = isinstance(given, tuple) and len(given) in (2, 3) and isinstance(given[0], nn.Module)
    if is_tuple and all(callable(part) for part in given[1:]):  # type: ignore[index]
        return Training(*given)  # type: ignore[misc]
    raise BadInput(
        where, "must return {protocol}; it returned {found}", protocol=PROTOCOL, found=_shown(given)
    )


def _shown(given: object) -> str:
    if isinstance(given, tuple):
        return f"({', '.join(type(part).__name__ for part in given)})"
    return type(given).__name__


def check_loss(loss: object) -> torch.Tensor:
    """`loss`, if it is a tensor of one number that gradients flow to. Raises BadInput saying what it is instead."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        return loss
    found = type(loss).__name__
    if isinstance(loss, torch.Tensor):
        found = f"a tensor of shape {tuple(loss.shape)}"
        if loss.numel() == 1:
            found = "one that no gradient flows to"
    raise BadInput(
        "loss",
        "must be a tensor of one number with a gradient, and the model gave {found}; give loss=..., a function from "
        "model and batch to the loss, such as `lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])`",
        found=found,
    )
