"""What earlier versions of PyTorch keep for backward, where today's keeps less.

Before 2.2, the mean over some dimensions kept its input, of which backward needs no more than the shape (the struct
MeanBackward1 in torch/csrc/autograd/generated/Functions.h of 2.1.2 and of 2.2.0). A norm such as Llama's takes a mean
of squares, so each kept one more tensor of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

#: The first version whose mean keeps no input.
_LIGHT_MEAN = (2, 2)

_mean: Callable[..., Tensor] = torch.Tensor.mean


@contextmanager
def keeping_as(version: str | None) -> Iterator[None]:
    """In here operations keep what they did in a version of PyTorch such as "2.1.2"; None: as it is installed."""
    if version is None or tuple(map(int, version.split(".")[:2])) >= _LIGHT_MEAN:
        yield
        return
    with mock.patch.object(torch.Tensor, "mean", _mean_of), mock.patch.object(torch, "mean", _mean_of):
        yield


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dims: Sequence[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.dims, ctx.keepdim = [dim % x.dim() for dim in dims], keepdim
        return _mean(x, dims, keepdim, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (x,), (grad,) = ctx.saved_tensors, grads
        if not ctx.keepdim:
            for dim in sorted(ctx.dims):
                grad = grad.unsqueeze(dim)
        return grad.to(x.dtype).expand_as(x) / math.prod(x.size(dim) for dim in ctx.dims), None, None, None


def _mean_of(
    x: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    dims = [dim] if isinstance(dim, int) else dim
    if not dims:  # over all dimensions, it never kept more
        return _mean(x, dtype=dtype)
    return _Mean.apply(x, dims, keepdim, dtype)  # type: ignore[no-any-return, no-untyped-call]
