"""What a person asks of a trace: how the step is trained."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import torch

from batchfit.errors import BadInput
from batchfit.settings import COMPILE
from batchfit.trace.adapters import Lora
from batchfit.trace.losses import LOSSES
from batchfit.trace.optimizers import OptimizerFactory, find_optimizer
from batchfit.trace.quantize import QUANTIZERS
from batchfit.trace.trainers import TRAINERS

#: Each precision: the type the weights are kept in, the type autocast computes in (None: no autocast).
PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "fp32": (torch.float32, None),
    "bf16": (torch.bfloat16, None),
    "fp16": (torch.float16, None),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    # A model loaded in 16 bit, and a trainer told `bf16=True`: norms and losses compute in float32 all the same.
    "bf16-autocast": (torch.bfloat16, torch.bfloat16),
    "fp16-mixed": (torch.float32, torch.float16),
}
CHECKPOINTING = ("none", "full", "selective")
ATTENTION = ("flash", "sdpa", "eager")


@dataclass(frozen=True, slots=True)
class Settings:
    """The step as it is trained. Each default is what most people run.

    `optimizer` is a name or a function from parameters to an optimizer; `max_grad_norm` clips gradients to this
    norm (None: no clipping, or what a trainer does by itself); `set_to_none` as in `zero_grad`; `ema` keeps a moving
    average of the weights; `loss` says how a causal language model gets from its last hidden states to its loss;
    `quantize` keeps the base weights in few bits, and `kbit` prepares them by PEFT's `prepare_model_for_kbit_training`.
    `flat_gradients` gives frozen weights a gradient where they share a unit of FSDP1 with trained ones. `compile` says
    what torch.compile is called on: "block" each of the model's repeated blocks, and its loss where that is a module;
    "whole" the model.
    """

    precision: str = "bf16"
    optimizer: str | OptimizerFactory = "adamw"
    checkpointing: str = "none"
    attention: str = "sdpa"
    max_grad_norm: float | None = None
    set_to_none: bool = True
    ema: bool = False
    loss: str = "full"
    lora: Lora | None = None
    quantize: str | None = None
    kbit: bool = False
    trainer: str = "none"
    flat_gradients: bool = False
    compile: str = "none"

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str):
            find_optimizer(self.optimizer)
        _one_of("loss", self.loss, LOSSES)
        _one_of("trainer", self.trainer, TRAINERS)
        if self.trainer == "trl" and self.loss != "full":
            raise BadInput(
                "loss",
                "must be full with the trainer trl, which has its own; you gave {given}",
                given=repr(self.loss),
            )
        if self.flat_gradients and self.trainer != "none":
            raise BadInput(
                "flat_gradients",
                "is for a bare loop: trainers wrap adapters in units of their own; you gave the trainer {given}",
                given=repr(self.trainer),
            )
        if self.quantize is not None:
            _one_of("quantize", self.quantize, QUANTIZERS)
            if self.lora is None:
                raise BadInput(
                    "quantize",
                    "needs adapters to train (lora); you gave {given} alone",
                    given=repr(self.quantize),
                )
        _one_of("compile", self.compile, COMPILE)
        if self.compile == "whole" and self.checkpointing != "none":
            raise BadInput(
                "compile",
                "must be block with activation checkpointing, which is of blocks; you gave {given}",
                given=repr(self.compile),
            )
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("checkpointing", self.checkpointing, CHECKPOINTING)
        _one_of("attention", self.attention, ATTENTION)
        if self.attention == "flash" and (self.autocast_dtype or self.weights_dtype) is torch.float32:
            raise BadInput(
                "attention",
                "cannot be flash in {precision}: flash attention computes in float16 and bfloat16 only; choose sdpa, "
                "or the precision bf16 or bf16-mixed",
                precision=self.precision,
            )
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise BadInput(
                "max_grad_norm", "must be above 0; you gave {given}", given=repr(self.max_grad_norm)
            )

    @property
    def weights_dtype(self) -> torch.dtype:
        """The type the weights are kept in."""
        return PRECISIONS[self.precision][0]

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """The type autocast computes in, None where there is no autocast."""
        return PRECISIONS[self.precision][1]

    @property
    def inputs_dtype(self) -> torch.dtype | None:
        """The type that floating-point inputs are cast to; None: they stay as they are, and autocast sees to it."""
        return self.weights_dtype if self.autocast_dtype is None else None

    def described(self) -> dict[str, Any]:
        """The settings as a profile holds them."""
        optimizer = self.optimizer
        return {
            "precision": self.precision,
            "optimizer": optimizer
            if isinstance(optimizer, str)
            else getattr(optimizer, "__name__", repr(optimizer)),
            "checkpointing": self.checkpointing,
            "attention": self.attention,
            "max_grad_norm": self.max_grad_norm,
            "set_to_none": self.set_to_none,
            "ema": self.ema,
            "loss": self.loss,
            "lora": None if self.lora is None else asdict(self.lora),
            "quantize": self.quantize,
            "kbit": self.kbit,
            "trainer": self.trainer,
            **({"flat_gradients": True} if self.flat_gradients else {}),
            **({"compile": self.compile} if self.compile != "none" else {}),
        }


def _one_of(field: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise BadInput(
            field, "must be one of {allowed}; you gave {given}", allowed=", ".join(allowed), given=repr(value)
        )
