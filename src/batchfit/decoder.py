"""The true shape of a decoder of the catalogue, from its published configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from batchfit.models import ModelEntry


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's sizes; its layers are all alike.

    query_dim       values that all query heads take: heads times head size, which need not be the hidden size
    key_value_dim   the same of the key-value heads, fewer where queries are grouped
    gated           whether the MLP multiplies two projections up, so that it has three matrices and not two
    separate        whether each projection is a module of its own, not several fused into one
    """

    layers: int
    hidden_size: int
    heads: int
    key_value_heads: int
    head_size: int
    query_dim: int
    key_value_dim: int
    intermediate_size: int
    vocabulary: int
    gated: bool
    separate: bool


@dataclass(frozen=True, slots=True)
class _Family:
    """What the code of a model type fixes, beside what its configuration says."""

    gated: bool
    separate: bool


# Mixtures of experts are not here: their layers hold many MLPs of which a token takes some. Nor are those whose
# attention is compressed to a latent (DeepSeek).
_FAMILIES = {
    **dict.fromkeys(
        (
            "llama",
            "mistral",
            "qwen2",
            "qwen3",
            "gemma",
            "gemma2",
            "gemma3",
            "gemma3_text",
            "olmo",
            "olmo2",
            "smollm3",
        ),
        _Family(gated=True, separate=True),
    ),
    "phi": _Family(gated=False, separate=True),
    "phi3": _Family(gated=True, separate=False),
    "gpt_neox": _Family(gated=False, separate=False),
    "gpt2": _Family(gated=False, separate=False),
    "gptj": _Family(gated=False, separate=True),
}
#: What GPT-2 and GPT-J call what others call otherwise.
_OLD_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
}


def shape_of(model: ModelEntry) -> Shape | None:
    """The shape of a model; None where it is no decoder with layers all alike, or the catalogue lacks its
    configuration."""
    if not model.config.is_file():
        return None
    whole: dict[str, Any] = json.loads(model.config.read_text("utf-8"))
    family = _FAMILIES.get(whole.get("model_type", ""))
    if family is None:
        return None
    config: dict[str, Any] = whole.get("text_config", whole)

    def size(name: str) -> int | None:
        return config.get(name, config.get(_OLD_NAMES.get(name, "")))

    hidden, heads = size("hidden_size"), size("num_attention_heads")
    layers, vocabulary = size("num_hidden_layers"), size("vocab_size")
    if hidden is None or heads is None or layers is None or vocabulary is None:
        return None
    key_value_heads = size("num_key_value_heads") or heads
    head_size = size("head_dim") or hidden // heads
    return Shape(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        key_value_heads=key_value_heads,
        head_size=head_size,
        query_dim=heads * head_size,
        key_value_dim=key_value_heads * head_size,
        intermediate_size=size("intermediate_size") or 4 * hidden,
        vocabulary=vocabulary,
        gated=family.gated,
        separate=family.separate,
    )
