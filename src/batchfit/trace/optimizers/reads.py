"""Optimizers that read numbers from tensors, where a trace has shapes only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from batchfit.trace.errors import DataNeeded
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

_READS: Mapping[Callable[..., Any], type] = {
    torch.Tensor.item: float,
    torch.Tensor.__float__: float,
    torch.Tensor.__int__: int,
}


class _ReadsAreOne(TorchFunctionMode):
    """Inside, a number read from a tensor without data is 1."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except DataNeeded:
            if func in _READS:
                return _READS[func](1)
            raise


def without_data(optimizer: Optimizer) -> Optimizer:
    """The same optimizer, with a step that also runs on tensors without data.

    Adafactor reads a parameter's norm. Such numbers go into the size of an update, never into a shape.
    """
    step = type(optimizer).step

    def step_without_data(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with _ReadsAreOne():
            return step(self, *args, **kwargs)

    optimizer.step = MethodType(step_without_data, optimizer)  # type: ignore[method-assign]
    return optimizer
