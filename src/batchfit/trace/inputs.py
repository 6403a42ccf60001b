"""Batches for a model whose task is known by its class: token ids, images, and labels of the shape it wants."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.trace.protocol import MakeBatch

#: Tokens of a sample where nothing is asked for and the model does not say.
DEFAULT_SEQ_LEN = 1024

#: Endings of class names whose labels are one number a sample; the others' are one a token.
_ONE_LABEL = (
    "ForSequenceClassification",
    "ForImageClassification",
    "ForVideoClassification",
    "ForMultipleChoice",
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The size of a sample: tokens, or an image's channels, height and width; None: what the model says."""

    seq_len: int | None = None
    image: tuple[int, ...] | None = None


def batches_for(model: nn.Module, inputs: Inputs) -> MakeBatch:
    """A function that makes batches for `model`, a model of transformers with a head that computes its loss.

    Raises BadInput where its inputs are neither text nor images, or it computes no loss.
    """
    takes = inspect.signature(model.forward).parameters
    config: Any = model.config
    kind = type(model).__name__
    if "labels" not in takes or not {"input_ids", "pixel_values"} & set(takes):
        raise BadInput(
            "model",
            "{kind} is not a model of text or images that computes its loss from labels; write a function that returns "
            "a batchfit.Training for it and give FILE.py:FUNCTION",
            kind=kind,
        )
    if "input_ids" not in takes:
        channels, height, width = inputs.image or _image_size(config)
        return lambda b: {
            "pixel_values": torch.zeros(b, channels, height, width),
            "labels": torch.zeros(b, dtype=torch.long),
        }
    length = seq_len_of(model, inputs)
    one = kind.endswith(_ONE_LABEL)
    decodes = getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes

    def batch(b: int) -> dict[str, torch.Tensor]:
        ids = torch.ones(b, length, dtype=torch.long)
        made = {"input_ids": ids, "labels": torch.zeros(b, dtype=torch.long) if one else ids.clone()}
        return made | {"decoder_input_ids": ids.clone()} if decodes else made

    return batch


def seq_len_of(model: nn.Module, inputs: Inputs) -> int:
    """Tokens of a sample: what was asked for, else the most the model takes, but not more than 1024."""
    most = _most_tokens(model)
    if inputs.seq_len is None:
        return min(most or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN)
    if most is not None and inputs.seq_len > most and _has_learned_positions(model):
        raise BadInput(
            "seq_len",
            "must be at most {most} tokens, which is how many positions the model has; you gave {given}",
            most=most,
            given=inputs.seq_len,
        )
    return inputs.seq_len


def _most_tokens(model: nn.Module) -> int | None:
    config: Any = model.config
    found = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    return found if isinstance(found, int) and found > 0 else None


def _has_learned_positions(model: nn.Module) -> bool:
    """Whether positions are rows of a table, so that there are no more of them."""
    tables = ("wpe", "position_embeddings", "embed_positions")
    return any(
        isinstance(module, nn.Embedding) and path.rpartition(".")[2] in tables
        for path, module in model.named_modules()
    )


def _image_size(config: Any) -> tuple[int, int, int]:
    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return getattr(config, "num_channels", 3), height, width
