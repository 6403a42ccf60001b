"""Diffusion models of the diffusers library: how they are made from a config, and a micro-batch of their training."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from batchfit.errors import BadInput
from batchfit.extras import need
from batchfit.trace.protocol import Training

#: Text embeddings of a sample: what CLIP's text encoder gives a UNet, and T5's a FLUX transformer.
_CLIP_TOKENS = 77
_T5_TOKENS = 512

#: FLUX reads latents of 16 channels at an eighth of the image's size in patches of 2 x 2: 1024 x 1024 pixels.
_FLUX_PATCHES = (1024 // 16) ** 2

#: From a config and a number of samples to the model's arguments.
_Arguments = Callable[[Mapping[str, Any], int], dict[str, Any]]


def diffusion_training(config: Mapping[str, Any], where: str) -> Training:
    """The model of a diffusers `config.json`, on the meta device, with its usual training: from latents with noise,
    made beforehand, to the noise (or velocity) in them, by the mean squared error in 32 bits.

    Raises BadInput on `where` for a class whose training is not known here.
    """
    kind = config["_class_name"]
    if kind not in _KINDS:
        raise BadInput(
            where,
            "has the class {kind}, which batchfit cannot make samples for; known are {known}. Write a function that "
            "returns a batchfit.Training for it and give FILE.py:FUNCTION",
            kind=repr(kind),
            known=", ".join(_KINDS),
        )
    need("diffusers", extra="diffusion", wanted_for=f"tracing {kind}")
    diffusers: Any = importlib.import_module("diffusers")
    with torch.device("meta"):
        model = getattr(diffusers, kind).from_config(dict(config))
    return Training(model, lambda b: _KINDS[kind](config, b), _denoising_loss)


def _denoising_loss(model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    predicted = model(**batch, return_dict=False)[0]
    noise = torch.zeros_like(predicted)
    return functional.mse_loss(predicted.float(), noise.float())


def _unet(config: Mapping[str, Any], b: int) -> dict[str, Any]:
    size = config["sample_size"]
    arguments: dict[str, Any] = {
        "sample": torch.zeros(b, config["in_channels"], size, size),
        "timestep": torch.ones(b, dtype=torch.long),
        "encoder_hidden_states": torch.zeros(b, _CLIP_TOKENS, config["cross_attention_dim"]),
    }
    if config.get("addition_embed_type") == "text_time":
        sizes = 6  # original, cropped and target height and width
        pooled = config["projection_class_embeddings_input_dim"] - sizes * config["addition_time_embed_dim"]
        arguments["added_cond_kwargs"] = {
            "text_embeds": torch.zeros(b, pooled),
            "time_ids": torch.zeros(b, sizes),
        }
    return arguments


def _flux(config: Mapping[str, Any], b: int) -> dict[str, Any]:
    arguments = {
        "hidden_states": torch.zeros(b, _FLUX_PATCHES, config["in_channels"]),
        "encoder_hidden_states": torch.zeros(b, _T5_TOKENS, config["joint_attention_dim"]),
        "pooled_projections": torch.zeros(b, config["pooled_projection_dim"]),
        "timestep": torch.zeros(b),
        "img_ids": torch.zeros(_FLUX_PATCHES, 3),
        "txt_ids": torch.zeros(_T5_TOKENS, 3),
    }
    return arguments | ({"guidance": torch.ones(b)} if config.get("guidance_embeds") else {})


_KINDS: dict[str, _Arguments] = {"UNet2DConditionModel": _unet, "FluxTransformer2DModel": _flux}
