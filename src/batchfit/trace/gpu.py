"""The GPU we pretend to have: meta tensors that code believes to be on CUDA, watched by a tracker."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from batchfit.trace.autocast import Autocast
from batchfit.trace.composites import Composites
from batchfit.trace.kernels import Kernels
from batchfit.trace.meta import MetaDevice
from batchfit.trace.pretence import Pretence
from batchfit.trace.tracker import Tracker, true_tensors
from batchfit.tracing import being_traced

#: `gc.get_freeze_count` would tell, but counts a million objects.
_frozen = False


@contextmanager
def frozen_heap() -> Iterator[None]:
    """In here the garbage collector looks only at what is new: libraries have made a million objects, and walking
    them each time that tensors come and go takes longer than the trace. Inside of itself it does nothing."""
    global _frozen
    if _frozen:
        yield
        return
    gc.freeze()
    _frozen = True
    try:
        yield
    finally:
        _frozen = False
        gc.unfreeze()


def _without_redraws() -> AbstractContextManager[object]:
    """In here `trunc_normal_` draws nothing: it looks at what it drew, to draw again what fell outside its bounds."""
    return mock.patch("torch.nn.init._no_grad_trunc_normal_", lambda tensor, *_, **__: tensor)


class _Unwatched(TorchDispatchMode):
    """Operations run on the device, and no timeline is written."""

    def __init__(self, device: MetaDevice) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with true_tensors():
            return self._device(func, args, kwargs or {})


class Gpu:
    """A device without memory or data. `shown` is what tensors on it say their device is: "cuda:0", or "cpu" for a
    run as a CPU would do it (its own attention and dropout kernels, no host beside it, no workspaces). `attention`
    is "eager" for plain mathematics where the device would choose a fused kernel."""

    def __init__(self, shown: str = "cuda:0", attention: str = "sdpa") -> None:
        self.attention = attention
        self.shown = torch.device(shown)
        self.is_cuda = self.shown.type == "cuda"
        self.device = MetaDevice(host=self.is_cuda)
        #: Graphs of compiled modules, which modules that are alike share, of whatever copy of the model.
        self.graphs: dict[Any, Any] = {}

    @contextmanager
    def pretending(self, strict: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Code in here finds the GPU; nothing watches it. The random state outside stays as it was."""
        with ExitStack() as stack:
            stack.enter_context(being_traced())
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(Pretence(self.device, self.shown, strict))
            yield

    @contextmanager
    def building(self) -> Iterator[None]:
        """Code in here makes models: every tensor is on the GPU, wherever it is made, so none takes memory."""
        outer, self.device.host = self.device.host, False
        try:
            with self.pretending(), _Unwatched(self.device), _without_redraws():
                yield
        finally:
            self.device.host = outer

    @contextmanager
    def watched(self) -> Iterator[Tracker]:
        """Code in here runs on the GPU, and the tracker writes the timeline of what it does."""
        tracker = Tracker(self.device, self.device.on_device, Kernels() if self.is_cuda else None)
        with ExitStack() as stack:
            stack.enter_context(frozen_heap())
            # A training loop may print what a model must not decide by.
            stack.enter_context(
                self.pretending(lambda: bool(tracker.paths.current) or tracker.category == "optimizer")
            )
            stack.enter_context(Autocast(self.device.on_device, tracker))
            stack.enter_context(Composites(self.shown, tracker, self.attention))
            stack.enter_context(tracker)
            yield tracker

    def bring(self, batch: Any, dtype: torch.dtype | None = None) -> Any:
        """A batch, of any structure, with its tensors on the GPU, floating-point ones as `dtype` if it is given."""

        def brought(tensor: torch.Tensor) -> torch.Tensor:
            if dtype is not None and tensor.is_floating_point():
                tensor = tensor.to(dtype)
            return tensor if tensor.is_meta else self.device.bring(tensor)

        with true_tensors():
            return tree_map_only(torch.Tensor, brought, batch)
