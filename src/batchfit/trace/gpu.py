"""The GPU we pretend to have: meta tensors that code believes to be on CUDA, watched by a tracker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from batchfit.trace.autocast import Autocast
from batchfit.trace.composites import Composites
from batchfit.trace.kernels import Kernels
from batchfit.trace.meta import MetaDevice
from batchfit.trace.pretence import Pretence
from batchfit.trace.tracker import Tracker, true_tensors


class Gpu:
    """A device without memory or data. `shown` is what tensors on it say their device is: "cuda:0", or "cpu" for a
    run as a CPU would do it (its own attention and dropout kernels, no host beside it, no workspaces)."""

    def __init__(self, shown: str = "cuda:0") -> None:
        self.shown = torch.device(shown)
        self.is_cuda = self.shown.type == "cuda"
        self.device = MetaDevice(host=self.is_cuda)

    @contextmanager
    def pretending(self) -> Iterator[None]:
        """Code in here finds the GPU; nothing watches it. The random state outside stays as it was."""
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(Pretence(self.device, self.shown))
            yield

    @contextmanager
    def watched(self) -> Iterator[Tracker]:
        """Code in here runs on the GPU, and the tracker writes the timeline of what it does."""
        tracker = Tracker(self.device, self.device.on_device, Kernels() if self.is_cuda else None)
        tracker.on_death = self.device.forget
        with ExitStack() as stack:
            stack.enter_context(self.pretending())
            stack.enter_context(Autocast(self.device.on_device, tracker))
            stack.enter_context(Composites(self.shown, tracker))
            stack.enter_context(tracker)
            yield tracker

    def bring(self, batch: Any) -> Any:
        """A batch, of any structure, with its tensors on the GPU."""
        with true_tensors():
            return tree_map_only(torch.Tensor, lambda t: t if t.is_meta else self.device.bring(t), batch)
