"""Lets code believe that its meta tensors are on a GPU: where they say they are, and what may be read from them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils
from torch.utils.checkpoint import _allowed_determinism_checks_to_fns

from batchfit.trace.errors import DataNeeded
from batchfit.trace.meta import MetaDevice
from batchfit.trace.reads import step_if_finite
from batchfit.trace.unknown import UnknownNumber

_META = torch.device("meta")

#: What the GPU can do, as an A100 answers: 16-bit floats of both kinds, and grouped matrix products.
_CAPABILITY = (8, 0)
_Function = Callable[..., Any]

#: How a property of Tensor is called when a function mode sees it.
_DEVICE: Any = torch.Tensor.device
_IS_META: Any = torch.Tensor.is_meta
_IS_CUDA: Any = torch.Tensor.is_cuda
_IS_CPU: Any = torch.Tensor.is_cpu


class Pretence(TorchFunctionMode):
    """A function mode under which tensors of `device` say they are on `shown` ("cuda:0", or "cpu" without a GPU).

    Whatever names `shown`'s kind of device is sent to the meta device. Values that are known can be read; a number
    that is not is an error while `strict` says so, and an unknown number otherwise.
    """

    def __init__(self, device: MetaDevice, shown: torch.device, strict: Callable[[], bool]) -> None:
        super().__init__()
        self._device = device
        self._shown = shown
        self._strict = strict
        self._patches: ExitStack | None = None
        self._replaced: dict[Any, _Function] = {
            _DEVICE.__get__: self._shown_device,
            _IS_META.__get__: lambda tensor: False,
            _IS_CUDA.__get__: lambda tensor: self._shown_device(tensor).type == "cuda",
            _IS_CPU.__get__: lambda tensor: self._shown_device(tensor).type == "cpu",
            torch.Tensor.to: self._to,
            torch.Tensor.cuda: lambda tensor, *_, **__: self._to(tensor, self._shown),
            torch.Tensor.cpu: lambda tensor, *_, **__: self._to(tensor, torch.device("cpu")),
            torch.Tensor.get_device: lambda tensor: (
                self._shown_device(tensor).index if tensor.is_meta else -1
            ),
            torch.Tensor.pin_memory: lambda tensor, *_: tensor,
            torch.Tensor.item: self._item,
            torch.Tensor.tolist: lambda tensor: self._value(tensor, "tolist").tolist(),
            torch.Tensor.numpy: lambda tensor, **_: self._value(tensor, "numpy").numpy(),
            torch.Tensor.__deepcopy__: self._deepcopy,
            torch.Tensor.__getitem__: self._getitem,
            torch.tensor: self._tensor,
            torch.as_tensor: self._tensor,
        }

    def __enter__(self) -> Pretence:
        with ExitStack() as stack:
            for patch in _patches(self._shown):
                stack.enter_context(patch)
            stack.enter_context(mock.patch("torch.autograd._engine_run_backward", self._backward))
            # Checkpointing compares what it saved with what it recomputes, some of it where this mode is off.
            stack.enter_context(mock.patch.dict(_allowed_determinism_checks_to_fns, default=_comparable))
            super().__enter__()  # type: ignore[no-untyped-call]
            self._patches = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        assert self._patches is not None
        self._patches.close()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        replaced = self._replaced.get(func)
        if kwargs is None:
            return func(*args) if replaced is None else replaced(*args)
        if replaced is not None:
            return replaced(*args, **kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = self._true(kwargs["device"])
        return func(*args, **kwargs)

    def _backward(self, *args: Any, **kwargs: Any) -> Any:
        """A function mode is off while it handles a call, and `backward` is one; but a checkpointed block's forward,
        which runs again in there, must find what it found before."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            return _engine_run_backward(*args, **kwargs)
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _true(self, device: Any) -> torch.device:
        """The device that is meant by `device`, which may be a number, a name or a device."""
        asked = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return _META if asked.type == self._shown.type else asked

    def _shown_device(self, tensor: torch.Tensor) -> torch.device:
        if self._device.on_device(tensor):
            return self._shown
        return torch.device("cpu") if tensor.is_meta else tensor.device

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        args = tuple(self._true(a) if isinstance(a, (str, torch.device)) else a for a in args)
        if kwargs.get("device") is not None:
            kwargs["device"] = self._true(kwargs["device"])
        if tensor.is_meta and not self._device.on_device(tensor) and _META in (*args, kwargs.get("device")):
            # Both are meta tensors to PyTorch, which would do nothing.
            kwargs["copy"] = True
        return tensor.to(*args, **kwargs)

    def _tensor(self, data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`torch.tensor` and `torch.as_tensor` read data, which the host has; the result is sent to the device."""
        device = kwargs.pop("device", None)
        make = torch.as_tensor if isinstance(data, torch.Tensor) else torch.tensor
        made: torch.Tensor = make(data, *args, **kwargs)
        if device is None:
            return made if self._device.host else made.to(_META)
        return made.to(self._true(device))

    def _value(self, tensor: torch.Tensor, operation: str) -> torch.Tensor:
        if not self._device.known.knows(tensor):
            raise DataNeeded(operation)
        with torch._C._DisableTorchDispatch():
            return self._device.known.value(tensor.detach()).clone()

    def _item(self, tensor: torch.Tensor) -> Any:
        if self._device.known.knows(tensor):
            return tensor.item()
        if self._strict() or not tensor.is_floating_point():
            raise DataNeeded("item")
        return UnknownNumber("nan")

    def _getitem(self, tensor: torch.Tensor, index: Any) -> torch.Tensor:
        """A list as an index becomes a tensor where no mode sees it, and on meta its numbers would be lost."""
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, list) for part in parts):
            index = tuple(torch.tensor(part) if isinstance(part, list) else part for part in parts)
        return tensor[index]

    def _deepcopy(self, tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
        """A real tensor copied while a model is: its twin is on the device."""
        if id(tensor) not in memo:
            copied = tensor.__deepcopy__(memo) if tensor.is_meta else self._device.bring(tensor)
            memo[id(tensor)] = copied
        return memo[id(tensor)]


def _comparable(tensor: torch.Tensor) -> dict[str, object]:
    return {"shape": tensor.shape, "dtype": tensor.dtype}


def _patches(shown: torch.device) -> list[Any]:
    """Questions about devices that never reach a function mode."""
    if shown.type != "cuda":
        return []
    supported = [*_foreach_utils._get_foreach_kernels_supported_devices(), "meta"]
    fused = [*_foreach_utils._get_fused_kernels_supported_devices(), "meta"]
    return [
        mock.patch("torch.amp.GradScaler._maybe_opt_step", step_if_finite),
        mock.patch("torch.cuda.current_device", return_value=0),
        mock.patch("torch.cuda.device_count", return_value=1),
        mock.patch("torch.cuda.get_device_capability", return_value=_CAPABILITY),
        mock.patch("torch.cuda.synchronize", return_value=None),
        mock.patch("torch.cuda.empty_cache", return_value=None),
        mock.patch.object(_foreach_utils, "_get_foreach_kernels_supported_devices", return_value=supported),
        mock.patch.object(_foreach_utils, "_get_fused_kernels_supported_devices", return_value=fused),
        mock.patch("torch.optim.optimizer._get_foreach_kernels_supported_devices", return_value=supported),
        mock.patch("torch.optim.optimizer._get_fused_kernels_supported_devices", return_value=fused),
    ]
