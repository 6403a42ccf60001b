"""Batches for a model whose task is known by its class: token ids, images, sounds, and labels of the shape it wants."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.samples import AUDIO, IMAGES
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


#: A sample of a model that hears raw sound, as in speech recognition: 10 s at 16 kHz, and letters of its transcript.
_SOUND = 10 * 16_000
_LETTERS = 128


@dataclass(frozen=True, slots=True)
class Inputs:
    """The size of a sample: tokens, or an image's channels, height and width; None: what the model says."""

    seq_len: int | None = None
    image: tuple[int, ...] | None = None


def batches_for(model: nn.Module, inputs: Inputs) -> MakeBatch:
    """A function that makes batches for `model`, a model of transformers with a head that computes its loss.

    Raises BadInput where it takes none of text, images and sound, or computes no loss.
    """
    takes = set(inspect.signature(model.forward).parameters)
    if {"input_ids", "pixel_values", "return_loss"} <= takes:
        return _pairs(model, inputs)
    if "labels" in takes and "input_features" in takes:
        return _spectra(model)
    if "labels" in takes and "input_values" in takes:
        return _sounds
    if "labels" in takes and "input_ids" in takes:
        return _texts(model, inputs, decodes="decoder_input_ids" in takes)
    if "labels" in takes and "pixel_values" in takes:
        return _images(model, inputs)
    raise BadInput(
        "model",
        "{kind} is not a model of text, images or sound that computes its loss from labels; write a function that "
        "returns a batchfit.Training for it and give FILE.py:FUNCTION",
        kind=type(model).__name__,
    )


def samples_in(batch: object) -> str | None:
    """What a batch's samples are, by the names of its tensors or their shape: images or audio clips, as a profile's
    setting has it. None for texts, pairs of text and image, and whatever else."""
    names = batch.keys() if isinstance(batch, Mapping) else ()
    if "input_ids" in names:
        return None
    if "input_features" in names or "input_values" in names:
        return AUDIO
    first = next(_tensors(batch), None)
    return IMAGES if first is not None and first.dim() == 4 and first.is_floating_point() else None


def _tensors(batch: object) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping | list | tuple):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(part)


def _texts(model: nn.Module, inputs: Inputs, decodes: bool) -> MakeBatch:
    """Token ids; where a decoder reads them again, as many target tokens."""
    length = seq_len_of(model, inputs)
    one = type(model).__name__.endswith(_ONE_LABEL)
    config: Any = model.config
    decodes = decodes and getattr(config, "is_encoder_decoder", False)

    def batch(b: int) -> dict[str, torch.Tensor]:
        ids = torch.ones(b, length, dtype=torch.long)
        made = {"input_ids": ids, "labels": torch.zeros(b, dtype=torch.long) if one else ids.clone()}
        return made | {"decoder_input_ids": ids.clone()} if decodes else made

    return batch


def _images(model: nn.Module, inputs: Inputs) -> MakeBatch:
    """Images with one of their classes each."""
    size = inputs.image or _image_size(model.config)
    return lambda b: {"pixel_values": torch.zeros(b, *size), "labels": torch.zeros(b, dtype=torch.long)}


def _pairs(model: nn.Module, inputs: Inputs) -> MakeBatch:
    """Images, each with its text, which is as long as the model's positions: what is trained by contrast."""
    config: Any = model.config
    size = inputs.image or _image_size(config.vision_config)
    length = inputs.seq_len or config.text_config.max_position_embeddings
    return lambda b: {
        "input_ids": torch.ones(b, length, dtype=torch.long),
        "pixel_values": torch.zeros(b, *size),
        "return_loss": True,
    }


def _spectra(model: nn.Module) -> MakeBatch:
    """Spectra of sound, two frames for each of the encoder's positions, and the longest transcript."""
    config: Any = model.config
    return lambda b: {
        "input_features": torch.zeros(b, config.num_mel_bins, 2 * config.max_source_positions),
        "labels": torch.ones(b, config.max_target_positions, dtype=torch.long),
    }


def _sounds(b: int) -> dict[str, torch.Tensor]:
    """Raw sound and its transcript in letters."""
    return {"input_values": torch.zeros(b, _SOUND), "labels": torch.ones(b, _LETTERS, dtype=torch.long)}


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
