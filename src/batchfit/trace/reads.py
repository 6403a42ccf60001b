"""Code of libraries that reads numbers from tensors, where a trace has shapes only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from batchfit.trace.errors import DataNeeded

_READS: Mapping[Callable[..., Any], type] = {
    torch.Tensor.item: float,
    torch.Tensor.__float__: float,
    torch.Tensor.__int__: int,
}


class ReadsAreOne(TorchFunctionMode):
    """Inside, a number that is read from a tensor without data is 1, where the code that reads it is in `packages`.

    For code that puts such numbers into a log or into the size of an update, never into a shape. The person's own code
    still gets to know that there is no data.
    """

    def __init__(self, *packages: str) -> None:
        super().__init__()
        self._packages = packages

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
            reader = sys._getframe(1).f_globals.get("__name__", "")
            if func in _READS and f"{reader}.".startswith(tuple(f"{package}." for package in self._packages)):
                return _READS[func](1)
            raise


def without_data(optimizer: Optimizer) -> Optimizer:
    """The same optimizer, with a step that also runs on tensors without data: Adafactor reads a parameter's norm."""
    step = type(optimizer).step
    home = type(optimizer).__module__

    def step_without_data(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with ReadsAreOne("torch.optim", home):
            return step(self, *args, **kwargs)

    optimizer.step = MethodType(step_without_data, optimizer)  # type: ignore[method-assign]
    return optimizer


def step_if_finite(
    scaler: Any, optimizer: Optimizer, state: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """In the place of `GradScaler._maybe_opt_step`, which reads whether gradients overflowed: they did not."""
    return optimizer.step(*args, **kwargs)
