"""Which layer of a model is which."""

from __future__ import annotations

from typing import Any

from torch import nn


def base_model(model: nn.Module) -> Any:
    """The model that PEFT's is around, or `model` itself."""
    get: Any = getattr(model, "get_base_model", None)
    return model if get is None else get()


def output_layer(model: nn.Module) -> Any:
    """The layer that makes logits out of hidden states, where a model of transformers or PEFT names one."""
    get: Any = getattr(model, "get_output_embeddings", None)
    return None if get is None else get()
