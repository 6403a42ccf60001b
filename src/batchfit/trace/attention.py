"""Scaled dot product attention as CUDA would run it: which kernel, what it keeps for backward, and no causal mask made.

The choice is that of `sdp_utils.cpp` in ATen/native/transformers/cuda for the A100 we pretend to have: flash attention
where it can, else the memory-efficient kernel, else plain mathematics. (On Hopper and data-centre Blackwell PyTorch
prefers cuDNN's attention, which keeps for backward what flash attention does.)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.torch_version import TorchVersion

from batchfit.errors import BadInput

_FLASH_TYPES = (torch.float16, torch.bfloat16)
_EFFICIENT_TYPES = (torch.float16, torch.bfloat16, torch.float32)

#: The largest head that flash attention takes (check_head_dim_size_flash).
_FLASH_HEAD = 256

#: Whether the memory-efficient kernel takes grouped queries (documented so since PyTorch 2.14).
_EFFICIENT_GROUPS = TorchVersion(torch.__version__) >= "2.14"

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
    if query.is_meta and flash_takes(query, key, value, attn_mask, is_causal, enable_gqa):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if query.is_meta and efficient_takes(query, key, value, attn_mask, enable_gqa):
        return _efficient(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return plain_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def flash_attention(
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
    """The same by flash attention alone. Raises BadInput, with the reason, where it cannot.

    A mask of truths is left out: the flash-attn package, which models call by this name, has no masks; it knows of
    windows and of sequences' ends by itself.
    """
    if not query.is_meta:
        return plain_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    mask = None if attn_mask is not None and attn_mask.dtype is torch.bool else attn_mask
    reason = why_not_flash(query, key, value, mask, is_causal, enable_gqa)
    if reason is not None:
        raise BadInput("attention", "cannot be flash here: {reason}; choose sdpa or eager", reason=reason)
    return _flash(query, key, value, dropout_p, is_causal, scale)


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


def flash_takes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, grouped: bool
) -> bool:
    """Whether CUDA chooses flash attention (`can_use_flash_attention`)."""
    return why_not_flash(query, key, value, mask, causal, grouped) is None


def why_not_flash(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, grouped: bool
) -> str | None:
    """The first reason, in words, for which CUDA does not take flash attention; None where it does."""
    heads = {t.size(-1) for t in (query, key, value)}
    reasons = {
        "an attention mask is given": mask is not None,
        "tensors are not of 4 dimensions": not query.dim() == key.dim() == value.dim() == 4,
        f"the type is {query.dtype}, not float16 or bfloat16": not _one_type(query, key, value, _FLASH_TYPES),
        f"heads are of size {', '.join(map(str, sorted(heads)))}, not one of at most {_FLASH_HEAD}": (
            len(heads) > 1 or max(heads) > _FLASH_HEAD
        ),
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    if found is not None:
        return found
    if causal and query.size(2) != key.size(2):
        return f"there are {query.size(2)} queries to {key.size(2)} keys in causal attention"
    return None if _dense(query, key, value, grouped) else "shapes or strides do not match"


def efficient_takes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool) -> bool:
    """Whether CUDA chooses the memory-efficient kernel (`can_use_mem_efficient_attention`): heads of a size that is
    aligned for its products, and before PyTorch 2.14 as many of keys as of queries."""
    alignment = 4 if query.dtype is torch.float32 else 8
    return (
        query.dim() == key.dim() == value.dim() == 4
        and _one_type(query, key, value, _EFFICIENT_TYPES)
        and query.size(-1) == key.size(-1)
        and query.size(-1) % alignment == 0
        and value.size(-1) % alignment == 0
        and _dense(query, key, value, grouped and _EFFICIENT_GROUPS)
        and (mask is None or mask.stride(-1) == 1 or mask.size(-1) == 1)
    )


def _one_type(query: Tensor, key: Tensor, value: Tensor, allowed: tuple[torch.dtype, ...]) -> bool:
    return query.dtype in allowed and query.dtype == key.dtype == value.dtype


def _dense(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> bool:
    """What the fused kernels ask of shapes (`check_batch_size_and_num_heads_dense` and those after it)."""
    heads, key_heads = query.size(1), key.size(1)
    return (
        query.size(0) == key.size(0) == value.size(0)
        and key_heads == value.size(1)
        and (heads % key_heads == 0 if grouped else heads == key_heads)
        and min(query.size(2), key.size(2)) > 0
        and all(t.stride(-1) == 1 or t.size(-1) == 1 for t in (query, key, value))
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
