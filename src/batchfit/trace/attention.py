"""Scaled dot product attention as CUDA would run it: which kernel, what it keeps for backward, and no causal mask made.

The choice is that of `sdp_utils.cpp` in ATen/native/transformers/cuda: flash attention where it can, else the
memory-efficient kernel, else plain mathematics.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_FLASH_TYPES = (torch.float16, torch.bfloat16)
_EFFICIENT_TYPES = (torch.float16, torch.bfloat16, torch.float32)

#: The largest head that flash attention takes (check_head_dim_size_flash).
_FLASH_HEAD = 256

#: The memory-efficient kernel reads a bias in rows of this many elements (pad_bias); flash heads are padded to 8.
_BIAS_ALIGNMENT = 8
_HEAD_ALIGNMENT = 8


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As `torch.nn.functional.scaled_dot_product_attention`; real tensors take plain mathematics."""
    if query.is_meta and flash_takes(query, key, value, attn_mask):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if query.is_meta and efficient_takes(query, key, value, attn_mask, enable_gqa):
        return _efficient(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return plain_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def attention_on_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The same as the CPU would run it: its own flash attention unless something is dropped (sdp_utils_cpp.cpp)."""
    if dropout_p or query.dim() != 4 or query.size(-1) != value.size(-1):
        return plain_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = _added(attn_mask, query.dtype)
    out: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return out


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The same in plain operations, which every device can run: scores, their softmax, and the values' weighted sum."""
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = _added(attn_mask, query.dtype)
    out: Tensor = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return out


def flash_takes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether CUDA chooses flash attention: 16-bit, no mask, one head size of at most 256, 4 dimensions."""
    return (
        mask is None
        and query.dim() == 4
        and query.dtype in _FLASH_TYPES
        and query.dtype == key.dtype == value.dtype
        and query.size(-1) == key.size(-1) == value.size(-1)
        and query.size(-1) <= _FLASH_HEAD
        and min(query.size(2), key.size(2)) > 0
    )


def efficient_takes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool) -> bool:
    """Whether CUDA chooses the memory-efficient kernel: as many heads in all, their size aligned for its products."""
    alignment = 4 if query.dtype is torch.float32 else 8
    return (
        query.dim() == 4
        and query.dtype in _EFFICIENT_TYPES
        and query.dtype == key.dtype == value.dtype
        and not (grouped and query.size(1) != key.size(1))
        and query.size(-1) % alignment == 0
        and value.size(-1) % alignment == 0
        and min(query.size(2), key.size(2)) > 0
    )


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, causal: bool, scale: float | None
) -> Tensor:
    head = query.size(-1)
    if scale is None:
        scale = 1 / math.sqrt(head)
    if head % _HEAD_ALIGNMENT:
        padding = (0, _HEAD_ALIGNMENT - head % _HEAD_ALIGNMENT)
        query, key, value = (functional.pad(t, padding) for t in (query, key, value))
    out: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout, causal, False, scale=scale
    )[0]
    return out[..., :head]


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> Tensor:
    inputs: list[Any] = [query, key, value, mask]
    keeps = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    bias = None if mask is None else _bias(mask, query, key)
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, keeps, dropout, causal, scale=scale
    )[0]
    return out


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask as the kernel wants it: numbers to add, aligned rows, one (strided) copy for every batch and head."""
    if mask.dtype is torch.bool:
        mask = _added(mask, query.dtype)
    length = mask.size(-1)
    if length % _BIAS_ALIGNMENT:
        mask = functional.pad(mask, (0, _BIAS_ALIGNMENT - length % _BIAS_ALIGNMENT))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of truths as one of numbers to add (convert_boolean_attn_mask)."""
    nothing = torch.scalar_tensor(0.0, dtype=dtype, device=mask.device)
    return torch.where(mask, nothing, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))
