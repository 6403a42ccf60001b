"""Frozen weights that lie in one flat parameter with trained ones, where FSDP1 wraps both as one unit.

The flat parameter needs a gradient, so each of its pieces gets one: autograd keeps what a frozen weight was multiplied
with, and computes its gradient in backward. The optimizer steps the trained ones alone.
Source: torch/distributed/fsdp/_flat_param.py (`_get_unflat_views`, `_use_unsharded_views`), PyTorch 2.13, and the notes
of `FullyShardedDataParallel` on `use_orig_params`.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from batchfit.trace.checkpointing import repeated_blocks

_FROZEN = "_frozen_in_flat_parameter"


def flatten_gradients(model: nn.Module) -> None:
    """Gives the frozen weights of each repeated block, and of the rest of the model, a gradient, where some weight
    beside them is trained."""
    seen: set[nn.Parameter] = set()
    for unit in (*repeated_blocks(model), model):
        own = [parameter for parameter in unit.parameters() if parameter not in seen]
        seen.update(own)
        _flatten(own)


def _flatten(parameters: Iterable[nn.Parameter]) -> None:
    parameters = list(parameters)
    if not any(parameter.requires_grad for parameter in parameters):
        return
    for parameter in parameters:
        if not parameter.requires_grad and parameter.is_floating_point():
            parameter.requires_grad_(True)
            setattr(parameter, _FROZEN, True)


def is_trained(parameter: nn.Parameter) -> bool:
    """Whether the optimizer is to step a parameter."""
    return parameter.requires_grad and not hasattr(parameter, _FROZEN)


def zero_flat_gradients(model: nn.Module) -> None:
    """Lets go of frozen weights' gradients, which no optimizer knows."""
    for parameter in model.parameters():
        if hasattr(parameter, _FROZEN):
            parameter.grad = None
