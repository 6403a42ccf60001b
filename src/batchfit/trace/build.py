"""Models without weights: a twin of a live module on the device we pretend to have."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.trace.blocks import Depths, dropped, fit_config, shorter
from batchfit.trace.meta import MetaDevice
from batchfit.trace.pretence import Pretence

Module = TypeVar("Module", bound=nn.Module)


def twin(model: Module, device: MetaDevice, depths: Depths | None = None) -> Module:
    """A copy of `model` whose tensors are on `device`, without data. `model` is left as it is.

    `depths` says of which runs of blocks only some copies are kept. Tensors that share a storage share one in the
    copy, so tied weights stay tied. Raises BadInput where a part of the model cannot be copied.
    """
    memo: dict[int, Any] = {}
    bases: dict[int, torch.Tensor] = {}
    lists = dropped(model, depths or {})
    for module in _kept(model, lists):
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in memo:
                memo[id(parameter)] = _parameter(parameter, _shared(parameter, bases))
        for buffer in module._buffers.values():
            if buffer is not None and id(buffer) not in memo:
                memo[id(buffer)] = (
                    device.bring(buffer) if not buffer.is_floating_point() else _shared(buffer, bases)
                )
    try:
        with Pretence(device, torch.device("cpu"), lambda: True):
            for whole, lost in lists.items():
                memo[id(whole)] = shorter(whole, lost, lambda block: copy.deepcopy(block, memo))
            copied = copy.deepcopy(model, memo)
    except (TypeError, RuntimeError) as error:
        raise BadInput(
            "model",
            "cannot be copied for the trace ({error}); give a function that makes it",
            error=str(error),
        ) from error
    for whole, lost in lists.items():
        for path, module in copied.named_modules():
            if memo[id(whole)] in module._modules.values() and hasattr(module, "config"):
                fit_config(module.config, path, len(whole._modules), lost)
    return copied


def _kept(model: nn.Module, lists: Mapping[nn.Module, Container[int]]) -> Iterator[nn.Module]:
    """The model's modules without those that are dropped."""
    yield model
    lost = lists.get(model, ())
    for index, child in enumerate(model._modules.values()):
        if child is not None and index not in lost:
            yield from _kept(child, lists)


def _shared(tensor: torch.Tensor, bases: dict[int, torch.Tensor]) -> torch.Tensor:
    """A meta tensor that lies in its storage as `tensor` lies in its own."""
    storage = tensor.untyped_storage()
    base = bases.get(storage._cdata)
    if base is None:
        base = bases[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
    empty = torch.empty(0, dtype=tensor.dtype, device="meta")
    with torch.no_grad():
        return empty.set_(base.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def _parameter(parameter: nn.Parameter, data: torch.Tensor) -> nn.Parameter:
    made = nn.Parameter(data, requires_grad=parameter.requires_grad)
    made.__dict__.update(parameter.__dict__)
    return made
