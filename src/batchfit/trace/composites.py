"""Composite operations that PyTorch takes apart by device: attention, dropout, softmax out of half precision.

Each stands, while a trace runs, where PyTorch's own composite kernel stands, so calls out of Python and out of other
composite operations all find it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from batchfit.trace.attention import (
    attention_on_cpu,
    flash_attention,
    plain_attention,
    scaled_dot_product_attention,
)
from batchfit.trace.tracker import Kernel, Tracker

_aten = torch.ops.aten


class Composites:
    """A context in which composite operations are taken apart as on `device`, watched by `tracker`.

    `attention` "eager" is plain mathematics, with the scores of all tokens at once; "flash" is flash attention or an
    error.
    """

    def __init__(self, device: torch.device, tracker: Tracker, attention: str = "sdpa") -> None:
        self._kernels = _ON_CUDA if device.type == "cuda" else _ON_CPU
        asked = _ASKED_FOR.get(attention)
        if asked is not None:
            self._kernels = {**self._kernels, _aten.scaled_dot_product_attention.default: asked}
        self._tracker = tracker

    def __enter__(self) -> Composites:
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # "Overriding a previously registered kernel" is what we mean to do.
            warnings.simplefilter("ignore")
            for operator, kernel in self._kernels.items():
                self._library.impl(operator, kernel, "CompositeImplicitAutograd")
                self._tracker.stand_in(operator, Kernel(kernel, called=lambda: True))
        return self

    def __exit__(self, *exc: object) -> None:
        self._library._destroy()


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """at::dropout (ATen/native/Dropout.cpp): on CUDA one fused kernel, whose mask takes a byte an element."""
    if p == 0 or not train or not input.numel():
        return input
    if p == 1:
        return input.mul(torch.zeros((), dtype=input.dtype, device=input.device))
    dropped: Tensor = _aten.native_dropout(input, p, True)[0]
    return dropped


def _softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:  # noqa: A002
    """at::softmax (ATen/native/SoftMax.cpp): on CUDA from half to float in one kernel, without a float copy first."""
    return _normalised(_aten._softmax, input, dim, dtype)


def _log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:  # noqa: A002
    """at::log_softmax: as at::softmax."""
    return _normalised(_aten._log_softmax, input, dim, dtype)


def _normalised(kernel: Any, input: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:  # noqa: A002
    if input.is_meta and input.dtype is torch.float16 and dtype is torch.float32:
        return kernel(input, dim, True)  # type: ignore[no-any-return]
    return kernel(input if dtype is None else input.to(dtype), dim, False)  # type: ignore[no-any-return]


class _FusedRmsNorm(torch.autograd.Function):
    """aten::_fused_rms_norm, which CUDA has a kernel for (ATen/native/cuda/layer_norm_kernel.cu, PyTorch 2.8): it keeps
    the input and a number a row. Elsewhere it is taken apart, and keeps squares and products too."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: Tensor,
        weight: Tensor | None,
        normalized_shape: list[int],
    ) -> tuple[Tensor, Tensor]:
        rows = tensor.shape[: tensor.dim() - len(normalized_shape)]
        precise = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
        deviations = tensor.new_empty((*rows, *(1 for _ in normalized_shape)), dtype=precise)
        ctx.save_for_backward(tensor, weight, deviations)
        ctx.mark_non_differentiable(deviations)
        return torch.empty_like(tensor), deviations

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        kept, weight, _ = ctx.saved_tensors
        needs_input, needs_weight = ctx.needs_input_grad[:2]
        return (
            torch.empty_like(kept) if needs_input else None,
            torch.empty_like(weight) if needs_weight and weight is not None else None,
            None,
        )


def _fused_rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor]:
    out: tuple[Tensor, Tensor] = _FusedRmsNorm.apply(input, weight, normalized_shape)  # type: ignore[no-untyped-call]
    return out


_ASKED_FOR: dict[str, Callable[..., Any]] = {"eager": plain_attention, "flash": flash_attention}

_ON_CUDA: dict[Any, Callable[..., Any]] = {
    _aten.dropout.default: _dropout,
    _aten.softmax.int: _softmax,
    _aten.log_softmax.int: _log_softmax,
    _aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
}

if hasattr(_aten, "_fused_rms_norm"):
    _ON_CUDA[_aten._fused_rms_norm.default] = _fused_rms_norm

_ON_CPU: dict[Any, Callable[..., Any]] = {_aten.scaled_dot_product_attention.default: attention_on_cpu}
