"""LoRA and DoRA adapters, made by PEFT on a model without weights."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.trace.gptq import LinearGptq
from batchfit.trace.quantized_linear import QuantizedLinear

#: Every linear layer but the output layer.
ALL_LINEAR = "all-linear"
BIASES = ("none", "all", "lora_only")


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters, in the terms of `peft.LoraConfig`, whose defaults these are.

    targets    names of the layers that get one ("q_proj"), or "all-linear"; None: PEFT's choice for the architecture
    rslora     scale by the square root of the rank; dora: also learn the weights' magnitudes
    train      modules that are trained whole beside the adapters, by name ("lm_head")
    """

    rank: int
    targets: tuple[str, ...] | None = None
    alpha: int = 8
    dropout: float = 0.0
    bias: str = "none"
    rslora: bool = False
    dora: bool = False
    train: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise BadInput("lora", "must be a rank of 1 or more; you gave {rank}", rank=self.rank)
        if not 0 <= self.dropout < 1:
            raise BadInput("lora_dropout", "must be from 0 to below 1; you gave {given}", given=self.dropout)
        if self.bias not in BIASES:
            raise BadInput(
                "lora_bias",
                "must be one of {known}; you gave {given}",
                known=", ".join(BIASES),
                given=repr(self.bias),
            )


def add_lora(model: nn.Module, lora: Lora) -> nn.Module:
    """`model` with adapters, as PEFT's model around it; the base is frozen.

    Adapters are made on the meta device, where their initialisers cost nothing. As PEFT does, they are kept in float32
    beside 16-bit weights, and their inputs are cast up to them.

    Raises BadInput where a target names no layer of the model or one that is trained whole, or PEFT knows none for its
    architecture.
    """
    import peft

    for field, names in (("lora_targets", lora.targets or ()), ("lora_train", lora.train)):
        _check_names(field, model, names)
    _check_apart(lora)
    _check_dora(model, lora)
    whole = _trained_whole(model, lora.train)
    # What is not asked for is not named: each came with a later PEFT.
    later: dict[str, Any] = {"exclude_modules": whole} if whole else {}
    later |= {name: True for name, asked in (("use_rslora", lora.rslora), ("use_dora", lora.dora)) if asked}
    config = peft.LoraConfig(
        r=lora.rank,
        target_modules=_targets(lora),
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        bias=lora.bias,  # type: ignore[arg-type]
        modules_to_save=list(lora.train) or None,
        task_type=_task(model),
        **later,
    )
    quantized = any(isinstance(module, QuantizedLinear) for module in model.modules())
    try:
        with torch.device("meta"), warnings.catch_warnings():
            # PEFT reads attributes that transformers has renamed since.
            warnings.simplefilter("ignore", FutureWarning)
            adapted: nn.Module = peft.get_peft_model(model, config)
    except ValueError as error:
        if lora.targets is None:
            raise BadInput(
                "lora_targets",
                "must name layers: PEFT has no default for {model}, which has {layers}",
                model=type(model).__name__,
                layers=", ".join(_layer_names(model)),
            ) from error
        raise
    if quantized:
        from batchfit.trace.qlora import as_over_quantized

        as_over_quantized(adapted)
    return adapted


def _targets(lora: Lora) -> str | list[str] | None:
    if lora.targets is None:
        return None
    return ALL_LINEAR if ALL_LINEAR in lora.targets else list(lora.targets)


def _check_names(field: str, model: nn.Module, names: Iterable[str]) -> None:
    paths = [path for path, _ in model.named_modules()]
    for name in names:
        if name != ALL_LINEAR and not any(path == name or path.endswith("." + name) for path in paths):
            raise BadInput(
                field,
                "must name layers of {model}: it has {layers} (or {all}); you typed {typed}",
                model=type(model).__name__,
                layers=", ".join(_layer_names(model)),
                all=ALL_LINEAR,
                typed=repr(name),
            )


def _check_apart(lora: Lora) -> None:
    both = [name for name in lora.targets or () if name.endswith(lora.train)]
    if both:
        raise BadInput(
            "lora_targets",
            "must not name what is trained whole; you gave {both}, and {train} to be trained",
            both=", ".join(both),
            train=", ".join(lora.train),
        )


def _check_dora(model: nn.Module, lora: Lora) -> None:
    if lora.dora and any(isinstance(module, LinearGptq) for module in model.modules()):
        raise BadInput("dora", "is not to be had over gptq-4bit: PEFT has no such layer; leave it out")


def _trained_whole(model: nn.Module, train: tuple[str, ...]) -> list[str]:
    """Layers that PEFT trains whole, which are those whose paths only end in one of these names: a `pre_classifier`
    with a `classifier`. It must not add adapters to them, too."""
    return [
        path for path, module in model.named_modules() if path.endswith(train) and not list(module.children())
    ]


def _layer_names(model: nn.Module) -> list[str]:
    """The last parts of the paths of layers that can have an adapter, each once, in the model's order."""
    kinds = ("Linear", "Embedding", "Conv")
    layers = (
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) or any(kind in type(module).__name__ for kind in kinds)
        if not list(module.children())
    )
    return list(dict.fromkeys(path.rpartition(".")[2] for path in layers))


def _task(model: nn.Module) -> Any:
    if type(model).__name__.endswith("ForCausalLM") or type(model).__name__.endswith("LMHeadModel"):
        return "CAUSAL_LM"
    # PEFT's model for sequences to sequences hands on token ids, which one that hears does not take.
    reads = "input_ids" in inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    return "SEQ_2_SEQ_LM" if reads and getattr(config, "is_encoder_decoder", False) else None
