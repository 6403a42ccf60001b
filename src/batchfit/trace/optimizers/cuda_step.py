"""An optimizer's step with the choices PyTorch makes for parameters on CUDA, wherever the parameters are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any
from unittest.mock import patch

import torch
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from batchfit.trace.errors import DataNeeded

_DEVICES = ["cuda", "cpu", "meta"]
_READS: Mapping[Callable[..., Any], type] = {
    torch.Tensor.item: float,
    torch.Tensor.__float__: float,
    torch.Tensor.__int__: int,
}


@contextmanager
def kernels_as_on_cuda() -> Iterator[None]:
    """Inside, PyTorch finds multi-tensor and fused kernels for every device, as it does for CUDA.

    `torch.optim` and `torch.nn.utils.clip_grad_norm_` take their multi-tensor ("foreach") form for tensors on CUDA
    and loop elsewhere; `fused=True` is refused where there is no kernel (`torch.utils._foreach_utils`).
    """
    with (
        patch("torch.utils._foreach_utils._get_foreach_kernels_supported_devices", lambda: _DEVICES),
        patch("torch.optim.optimizer._get_foreach_kernels_supported_devices", lambda: _DEVICES),
        patch("torch.optim.optimizer._get_fused_kernels_supported_devices", lambda: list(_DEVICES)),
    ):
        yield


class _ReadsAreOne(TorchFunctionMode):
    """Inside, a number that is read from a tensor without data is 1.

    Adafactor reads a parameter's norm so. Such a number goes into the size of the update, never into a shape.
    """

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


def as_on_cuda(optimizer: Optimizer) -> Optimizer:
    """The same optimizer, its step taking the form that it has for parameters on CUDA."""
    step = type(optimizer).step

    def step_as_on_cuda(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with kernels_as_on_cuda(), _ReadsAreOne():
            return step(self, *args, **kwargs)

    optimizer.step = MethodType(step_as_on_cuda, optimizer)  # type: ignore[method-assign]
    return optimizer
