"""What a step computes: floating-point operations, kernels, and the bytes they move, counted as they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from batchfit.trace.timeline import Mark, Work

#: Operators that run no kernel, although their schema does not say that they only look at memory another way.
_NO_KERNEL = (
    "_unsafe_view",
    "_reshape_alias",
    "detach",
    "alias",
    "lift_fresh",
    "empty",
    "empty_like",
    "empty_strided",
)


class WorkCounter:
    """Counts the first micro-batch that it sees, and the last update of the optimizer; every other is like them.

    FLOPs are PyTorch's own count (`torch.utils.flop_counter`): matrix products, convolutions and attention, two for
    a multiplication and an addition.
    """

    def __init__(self) -> None:
        self.work = Work()
        self._kinds: dict[Any, Any] = {}
        self._phase = ""

    def enter(self, mark: Mark) -> None:
        """The step enters another phase."""
        self._phase = mark.phase if mark.micro == 0 and mark.step == 0 else ""
        if mark.phase == "optimizer":
            self._phase = mark.phase
            self.work.optimizer_bytes = self.work.optimizer_kernels = 0

    def count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """One operation ran."""
        phase = self._phase
        if not phase:
            return
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _kind(func)
        if kind is _NOTHING:
            return
        work, moved = self.work, sum(_moved((args, kwargs.values(), out)))
        if phase == "optimizer":
            work.optimizer_kernels += 1
            work.optimizer_bytes += moved
            return
        work.kernels += 1
        if kind is _KERNEL:
            work.other_bytes += moved
            return
        work.products_bytes += moved
        # PyTorch's counts do not know of a product's own result type, which comes after the matrices.
        factors = (value for value in args if not isinstance(value, torch.dtype))
        flops = int(kind(*factors, **kwargs, out_val=out))
        if "attention" in func._schema.name:
            work.attention_flops += flops
        if phase == "backward":
            work.backward_flops += flops
        else:
            work.forward_flops += flops

    def count_fused(self, tensors: Iterable[Any]) -> None:
        """A kernel ran that a compiler wrote; `tensors` are those it reads and writes."""
        if self._phase and self._phase != "optimizer":
            self.work.kernels += 1
            self.work.other_bytes += sum(_moved(tensors))


_NOTHING, _KERNEL = object(), object()


def _kind(func: Any) -> Any:
    """How an operator is counted: not at all, as a kernel, or as a kernel with so many FLOPs."""
    schema = func._schema
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    if is_view or schema.name.removeprefix("aten::") in _NO_KERNEL:
        return _NOTHING
    return flop_registry.get(func._overloadpacket, _KERNEL)


def _moved(values: Any) -> Iterator[int]:
    """Bytes of the tensors in `values`, of an expanded one those that are there."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
        elif isinstance(value, (list, tuple)) or type(value) is _DICT_VALUES:
            yield from _moved(value)


_DICT_VALUES: type = type({}.values())
