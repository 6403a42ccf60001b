"""Values of small fake tensors, so that code which looks at masks, positions or lengths runs as it does for real.

A meta tensor has no data. For some of them we know what it would be: masks, indices, counters, the inputs a
person's function made. Their storages' contents are kept here, as real storages of the same layout; a tensor's
value is then its own view of that storage, so views need no bookkeeping.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

#: Whole numbers and truths up to so many elements are kept: a mask over a long batch, token ids.
_MOST_DISCRETE = 1 << 20

#: Floating-point values up to so many elements are kept: schedules, scales, single numbers, masks of a few samples.
_MOST_FLOATING = 1 << 14


class KnownValues:
    """Contents of meta storages, for as long as these live."""

    def __init__(self) -> None:
        self._contents: dict[int, _Content] = {}

    def __bool__(self) -> bool:
        return bool(self._contents)

    def spoil(self, tensor: torch.Tensor) -> None:
        """`tensor` was written to with what is not known."""
        self._contents.pop(tensor.untyped_storage()._cdata, None)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor`'s value is known: a real tensor's is."""
        return tensor.untyped_storage()._cdata in self._contents if tensor.is_meta else True

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """The real tensor that a known `tensor` stands for; writing to it writes what is known."""
        if not tensor.is_meta:
            return tensor
        content = self._contents[tensor.untyped_storage()._cdata].data
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(content, tensor.storage_offset(), tensor.size(), tensor.stride())

    def values(self, tree: Any) -> Any:
        """`tree` with every tensor in it replaced by its value."""
        return tree_map_only(torch.Tensor, self.value, tree)

    def learn(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """From now on the meta `tensor`, alone on its storage so far, is known to be `value`."""
        storage = tensor.untyped_storage()
        content = _Content(storage, self._forget)
        content.address = storage._cdata
        content.data = torch.UntypedStorage(storage.nbytes())
        self._contents[content.address] = content
        self.value(tensor).copy_(value.detach())

    def _forget(self, content: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(content, _Content)
        if self._contents.get(content.address) is content:
            del self._contents[content.address]


class _Content(weakref.ref[torch.UntypedStorage]):
    """What a meta storage would hold, found by its address; gone with it."""

    __slots__ = ("address", "data")

    address: int
    data: torch.UntypedStorage


def discrete(tensor: torch.Tensor) -> bool:
    """Whether `tensor` holds what decisions are made by: whole numbers, truths, or a single number of any kind."""
    return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex) or tensor.numel() == 1


def small(tensor: torch.Tensor) -> bool:
    """Whether `tensor`'s value is worth keeping."""
    most = _MOST_DISCRETE if discrete(tensor) else _MOST_FLOATING
    return tensor.numel() <= most and tensor.layout is torch.strided
