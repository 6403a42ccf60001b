"""Watches storages being born and dying while a step runs, real or fake, and writes the timeline."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from batchfit.trace.attending import Attending
from batchfit.trace.modules import ModulePaths
from batchfit.trace.stacks import Stacks
from batchfit.trace.timeline import ALLOC, FREE, MARK, Event, Mark, Timeline
from batchfit.trace.work import WorkCounter

#: A context in which tensors say the truth about themselves, although a function mode has them say otherwise.
true_tensors = torch._C.DisableTorchFunction

_SUM = torch.ops.aten.add.Tensor

#: Runs one operation: (operator, args, kwargs) -> its result. The default calls it.
Execute = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel written in Python. `called` says whether the operation at hand is meant for it."""

    run: Callable[..., Any]
    called: Callable[[], bool]


@contextmanager
def _again(mode: TorchDispatchMode) -> Iterator[None]:
    """A mode is off while it handles an operation; in here it is on."""
    TorchDispatchMode.__enter__(mode)
    try:
        yield
    finally:
        TorchDispatchMode.__exit__(mode, None, None, None)


class _Watched(weakref.ref[torch.UntypedStorage]):
    """A storage on the timeline: its number, its size as last seen, and where it is found in the tracker."""

    __slots__ = ("address", "nbytes", "number")

    address: int
    nbytes: int
    number: int


def _call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _are_alike(first: Any, second: Any) -> bool:
    """Whether both are tensors, of one shape."""
    both = isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    return both and first.shape == second.shape


def _all(tensor: torch.Tensor) -> bool:
    return True


class Tracker(TorchDispatchMode):
    """A dispatch mode that notes each new storage an operation returns and, through a weak reference, its death.

    It works on real tensors, on fake ones and on meta ones alike; `execute` says how operations run,
    `counts` which tensors live on the GPU (default: all), and `inside` is told of each operation after it ran,
    to add what its kernel takes beside its results. A storage resized to nothing is dead (FSDP2 frees
    gathered parameters that way), and one that grows again is born anew.
    """

    def __init__(
        self,
        execute: Execute = _call,
        counts: Callable[[torch.Tensor], bool] | None = None,
        inside: Callable[[Any, tuple[Any, ...], Any, Tracker], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.timeline = Timeline()
        self.category = "activations"
        self.paths = ModulePaths()
        self._stacks = Stacks()
        self._work = WorkCounter()
        self._attending = Attending(self.timeline.attention)
        self._execute = execute
        self.counts = counts or _all
        self._inside = inside
        self._kernels: dict[Any, Kernel] = {}
        self._watched: dict[int, _Watched] = {}
        self._next = 0
        self.in_backward = False
        self._origins = Origins()
        self._exit: ExitStack | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise PyTorch wraps __torch_dispatch__ to keep torch.compile out of it, at several microseconds an
        # operation, and imports all of torch._dynamo at the first one.
        return False

    def __enter__(self) -> Tracker:
        self.timeline.stacks = self._stacks.stacks
        with ExitStack() as stack:
            stack.enter_context(self.paths)
            stack.enter_context(_watching_resizes(self))
            for mode in (_CachingTorchDispatchMode, _CachedTorchDispatchMode):
                stack.enter_context(mock.patch.object(mode, "__torch_dispatch__", self._below(mode)))
            super().__enter__()  # type: ignore[no-untyped-call]
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        assert self._exit is not None
        self._exit.close()

    def close(self) -> None:
        """Stops watching: deaths after this are no part of the timeline."""
        self._watched.clear()

    def stand_in(self, operator: Any, kernel: Kernel) -> None:
        """Runs `kernel`, watched, where the dispatcher hands over `operator` for a kernel written in Python.

        While a dispatch mode is active, the dispatcher gives the mode what it would give to such a kernel
        (PythonKernelHolder in torch/csrc/utils/python_dispatch.cpp), so it is the mode that has to call it.
        """
        self._kernels[operator] = kernel

    def fused(self, tensors: Iterable[Any]) -> None:
        """A kernel ran that is no operation of PyTorch's: a compiler's, that reads and writes these tensors."""
        self._work.count_fused(tensors)

    @property
    def kernels(self) -> Mapping[Any, Kernel]:
        """The kernels that stand in, by operator."""
        return self._kernels

    def _below(self, mode: type[TorchDispatchMode]) -> Callable[..., Any]:
        """What `mode`, one of selective checkpointing that is put above this one, does with an operation: it must
        see what a kernel written in Python does, and not the operation that stands for it."""
        handle = mode.__torch_dispatch__

        def handle_parts(
            self_: TorchDispatchMode, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kernel = self._kernels.get(func)
            if kernel is not None and kernel.called():
                with true_tensors(), _again(self_):
                    return kernel.run(*args, **(kwargs or {}))
            return handle(self_, func, types, args, kwargs)  # type: ignore[no-untyped-call]

        return handle_parts

    def mark(self, phase: str, step: int, micro: int = -1) -> None:
        """Notes that the step enters `phase`; everything born from here on belongs to it."""
        self.timeline.events.append(Event(MARK, -1, 0, len(self.timeline.marks)))
        mark = Mark(phase, step, micro)
        self.timeline.marks.append(mark)
        self._work.enter(mark)
        self.timeline.work = self._work.work
        self.category = "optimizer" if phase == "optimizer" else "activations"
        self.in_backward = phase == "backward"
        if phase == "begin":
            self._origins.clear()

    @contextmanager
    def categorised(self, category: str) -> Iterator[None]:
        """What is born in here is for `category`."""
        outer, self.category = self.category, category
        try:
            yield
        finally:
            self.category = outer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with true_tensors():
            kernel = self._kernels.get(func)
            if kernel is not None and kernel.called():
                with _again(self):
                    return kernel.run(*args, **(kwargs or {}))
            if kwargs is None:
                kwargs = {}
            out = self._execute(func, args, kwargs)
            self._work.count(func, args, kwargs, out)
            self._attending.note(func, args, self.paths.current)
            before = self._next
            if isinstance(out, torch.Tensor):
                self._see(out)
            elif isinstance(out, (list, tuple)):
                for item in out:
                    if isinstance(item, torch.Tensor):
                        self._see(item)
            if func is _SUM and self._next > before and _are_alike(*args[:2]):
                self.timeline.sums.add(before)
            if self._inside is not None:
                self._inside(func, args, out, self)
            return out

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        watched = self._watched.get(storage._cdata)
        nbytes = storage.nbytes()
        if watched is not None and watched.nbytes == nbytes:
            return
        if not self.counts(tensor):
            return
        if watched is not None:
            self._die(watched)
        stack, module = self._origin()
        self._born(storage, nbytes, stack, module, self.category)

    def adopt(self, tensor: torch.Tensor, category: str, module: str = "") -> int:
        """Puts `tensor`'s storage, which is there already, on the timeline as `category`; answers its number."""
        storage = tensor.untyped_storage()
        watched = self._watched.get(storage._cdata)
        if watched is None:
            self._born(storage, storage.nbytes(), 0, module, category)
            watched = self._watched[storage._cdata]
        return watched.number

    def label(self, tensor: torch.Tensor, category: str) -> None:
        """Says what `tensor`'s storage turned out to be for, such as "gradients"."""
        number = self.number_of(tensor)
        if number is not None:
            self.timeline.categories[number] = category

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """The number of `tensor`'s storage on the timeline, or None where it is not there."""
        watched = self._watched.get(tensor.untyped_storage()._cdata)
        return None if watched is None else watched.number

    def transient(self, nbytes: int, category: str = "activations") -> None:
        """Memory that a kernel takes and gives back within the running operation."""
        number, self._next = self._next, self._next + 1
        stack, module = self._origin()
        self._note(number, module, category)
        self.timeline.events.append(Event(ALLOC, number, nbytes, stack))
        self.timeline.events.append(Event(FREE, number, nbytes, stack))

    def permanent(self, nbytes: int, category: str) -> None:
        """Memory that a library takes once and keeps to the end, such as a cuBLAS workspace."""
        number, self._next = self._next, self._next + 1
        self._note(number, "", category)
        self.timeline.events.append(Event(ALLOC, number, nbytes, 0))

    def _born(
        self, storage: torch.UntypedStorage, nbytes: int, stack: int, module: str, category: str
    ) -> None:
        watched = _Watched(storage, self._dead)
        watched.address = storage._cdata
        watched.nbytes = nbytes
        watched.number = number = self._next
        self._next += 1
        self._watched[watched.address] = watched
        if nbytes:
            self._note(number, module, category)
            self.timeline.events.append(Event(ALLOC, number, nbytes, stack))

    def _note(self, number: int, module: str, category: str) -> None:
        self.timeline.categories[number] = category
        if module:
            self.timeline.modules[number] = module

    def _die(self, watched: _Watched) -> None:
        if watched.nbytes:
            self.timeline.events.append(Event(FREE, watched.number, watched.nbytes, 0))

    def _dead(self, watched: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(watched, _Watched)
        if self._watched.get(watched.address) is watched:
            del self._watched[watched.address]
            self._die(watched)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage was resized in place, outside any operation: its old bytes die, its new ones are born."""
        watched = self._watched.get(storage._cdata)
        if watched is None or watched.nbytes == storage.nbytes():
            return
        category = self.timeline.categories.get(watched.number, self.category)
        module = self.timeline.modules.get(watched.number, "")
        self._die(watched)
        self._born(storage, storage.nbytes(), self._origin()[0], module, category)

    def _origin(self) -> tuple[int, str]:
        """Whose operation this is: the stack and the module. In backward, those of the operation differentiated."""
        if self.in_backward and not self.paths.current:
            node = torch._C._current_autograd_node()
            found = self._origins.of(node) if node is not None else None
            if found is not None:
                return found
        origin = self._stacks.here(3), self.paths.current
        if torch.is_grad_enabled():
            self._origins.note(origin)
        return origin


class Origins:
    """Leads from an autograd node back to the line of code whose operation it differentiates.

    A node takes its sequence number just before its forward operation runs, so the first operation that runs after
    a number was given out is the node's own. Operations that allocate nothing (views) are not noted; their nodes are
    led to the nearest one before.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._origins: list[tuple[int, str]] = []

    def note(self, origin: tuple[int, str]) -> None:
        """The operation that runs now comes from `origin`."""
        number = torch._C._autograd._get_sequence_nr() - 1
        if not self._numbers or number > self._numbers[-1]:
            self._numbers.append(number)
            self._origins.append(origin)

    def of(self, node: torch.autograd.graph.Node) -> tuple[int, str] | None:
        """The origin of the forward operation behind `node`, None if it ran before any was noted."""
        index = bisect_right(self._numbers, node._sequence_nr()) - 1
        return self._origins[index] if index >= 0 else None

    def clear(self) -> None:
        """Forgets: their graphs are gone."""
        self._numbers.clear()
        self._origins.clear()


class _watching_resizes:  # noqa: N801  (a context manager, used as one)
    """Tells the tracker of `UntypedStorage.resize_`, which no dispatch mode sees."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def __enter__(self) -> None:
        self._original = torch.UntypedStorage.resize_
        original, tracker = self._original, self._tracker

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = original(storage, size)
            tracker.resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]

    def __exit__(self, *exc: object) -> None:
        torch.UntypedStorage.resize_ = self._original  # type: ignore[method-assign]


def current_tracker() -> Tracker | None:
    """The tracker that watches now, if one does."""
    modes = reversed(_get_current_dispatch_mode_stack())
    return next((mode for mode in modes if isinstance(mode, Tracker)), None)
