"""What a person's function gives a trace: a model, and how a micro-batch of it is made and trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput

#: Makes a batch of so many samples: a dict (the model's keyword arguments), a tuple (its positional ones) or a tensor.
MakeBatch = Callable[[int], Any]

#: From the model and a batch to the loss, a tensor of one number.
Loss = Callable[[nn.Module, Any], torch.Tensor]


def model_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The loss that the model computes itself: its output, or its output's `loss`, or that of a tuple first.

    Models of transformers do, given `labels`. Raises BadInput where the output holds no single number.
    """
    if isinstance(batch, Mapping):
        output = model(**batch)
    elif isinstance(batch, (tuple, list)):
        output = model(*batch)
    else:
        output = model(batch)
    found = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    if found is None and isinstance(output, (tuple, list)) and output:
        found = output[0]
    if found is None:
        found = output
    return found if isinstance(found, torch.Tensor) else check_loss(output)


def check_loss(loss: object) -> torch.Tensor:
    """`loss`, if it is a tensor of one number that gradients flow to. Raises BadInput saying what it is instead."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss
    found = (
        f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
    )
    raise BadInput(
        "loss",
        "must be a tensor of one number, and the model gave {found}; give loss=..., a function from model and batch "
        "to the loss, such as `lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])`",
        found=found,
    )
