"""PyTorch's flash attention under the name of the package flash_attn, for transformers that look for that package.

Both are the same kernels (PyTorch has its copy of flash_attn's): heads of keys and values that several query heads
share are not repeated, no mask is made, and queries, keys, values, the result and a float32 log-sum a head and row are
kept.
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    **ignored: Any,
) -> torch.Tensor:
    """Attention over (batch, tokens, heads, size of a head)."""
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        dropout_p=dropout_p,
        is_causal=causal,
        scale=softmax_scale,
        enable_gqa=q.size(2) != k.size(2),
    )
    return out.transpose(1, 2)


def _unpadded(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("samples without padding lie in rectangular batches here")


def is_wanted() -> bool:
    """Whether transformers' own way to PyTorch's attention repeats keys and values, and masks windows as long as the
    samples: until 4.56 it did."""
    import transformers

    return tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (4, 56)


def stand_in() -> None:
    """Makes transformers find it; to be called before anything of transformers' models is imported."""
    package, padding = ModuleType("flash_attn"), ModuleType("flash_attn.bert_padding")
    package.__dict__.update(flash_attn_func=flash_attn_func, flash_attn_varlen_func=_unpadded)
    package.__dict__["__version__"] = "2.6.3"
    padding.__dict__.update(index_first_axis=_unpadded, pad_input=_unpadded, unpad_input=_unpadded)
    for module in (package, padding):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
    from transformers import utils

    for place in (utils, utils.import_utils):
        place.is_flash_attn_2_available = lambda: True  # type: ignore[attr-defined]
        place.is_flash_attn_greater_or_equal = lambda version: True  # type: ignore[attr-defined]
        place.is_flash_attn_greater_or_equal_2_10 = lambda: True  # type: ignore[attr-defined]
