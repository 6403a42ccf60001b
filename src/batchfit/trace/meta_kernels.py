"""Shapes of results where PyTorch has no meta kernel, or its own refuses what its CUDA kernel takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def _grouped_mm(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Products of groups of rows (or columns) with a matrix each, as experts compute them.

    The meta kernel takes bfloat16 only. CUDA takes float32 and float16 too, a product a group, without temporaries
    (`_grouped_mm_fallback` in ATen/native/GroupedMMUtils.h); autocast does not know the operation.
    """
    groups = () if offs is None else (offs.size(0),)
    if left.dim() == right.dim() == 2:
        size = (*groups, left.size(0), right.size(1))
    elif left.dim() == 2:
        size = (left.size(0), right.size(-1))
    elif right.dim() == 2:
        size = (left.size(1), right.size(1))
    else:
        size = (left.size(0), left.size(1), right.size(-1))
    return left.new_empty(size, dtype=out_dtype or left.dtype)


def _ctc_loss_backward(grad: Tensor, log_probs: Tensor, *_: Any, **__: Any) -> Tensor:
    """The gradient by log-probabilities is of their shape (ctc_loss_backward_gpu_template in LossCTC.cu)."""
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


META_KERNELS: dict[Any, Callable[..., Any]] = {_aten._ctc_loss_backward.Tensor: _ctc_loss_backward}
if hasattr(_aten, "_grouped_mm"):
    META_KERNELS[_aten._grouped_mm.default] = _grouped_mm
