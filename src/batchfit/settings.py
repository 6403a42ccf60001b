"""TrainingSettings: how one training run is set up, in batchfit's words, whatever framework runs it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from batchfit.errors import BadInput

#: "bf16" keeps weights, gradients and optimizer state in 16 bits; "bf16-mixed" keeps 32-bit weights and
#: computes in 16 bits. The same for fp16.
PRECISIONS = ("fp32", "bf16", "fp16", "bf16-mixed", "fp16-mixed")

#: "adamw" is what PyTorch does by default on a GPU (foreach); "adamw-single" loops over parameters.
OPTIMIZERS = (
    "adamw",
    "adamw-fused",
    "adamw-single",
    "adamw-8bit",
    "adam",
    "adafactor",
    "lion",
    "muon",
    "momentum",
    "sgd",
)
#: What a step can be traced in: "bf16-autocast" is 16-bit weights under autocast, as transformers' Trainer has it with
#: `bf16=True` over a model loaded in bf16. No calculator and no framework's file tells it from "bf16".
TRACED_PRECISIONS = (*PRECISIONS, "bf16-autocast")

CHECKPOINTING = ("none", "full", "selective")
ATTENTION = ("flash", "sdpa", "eager")
SHARDING = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")
QUANTIZE = ("nf4", "int8")
#: What torch.compile is called on: nothing; each of the model's repeated blocks by itself, and its loss where that is a
#: module; or the model as a whole.
COMPILE = ("none", "block", "whole")
#: What a step can be traced with: GPTQ's models come quantised, so no framework is told to quantise by it.
TRACED_QUANTIZE = (*QUANTIZE, "nf4-double", "gptq-4bit", "gptq-4bit-per-channel")

#: Fields that count something: each at least 1.
COUNTS = ("micro_batch", "accumulation_steps", "replicas", "nodes", "effective_batch", "seq_len", "lora_rank")
_CHOICES = {
    "precision": PRECISIONS,
    "optimizer": OPTIMIZERS,
    "checkpointing": CHECKPOINTING,
    "attention": ATTENTION,
    "sharding": SHARDING,
    "quantize": QUANTIZE,
}


@dataclass(frozen=True)
class TrainingSettings:
    """One run's settings. A field is None where it is not known: a framework's file need not say everything.

    `micro_batch` and `effective_batch` are in samples (sequences for language models), `seq_len` in tokens.
    `replicas` counts data-parallel replicas over all `nodes`. `effective_batch` matters where a file gives
    the whole batch without all three factors; where the three are known, their product is the batch.
    `lora_rank` is None when every weight is trained, or when nothing is said. `lora_targets` are module
    names; ("all-linear",) means every linear layer but the head. `notes` say in plain words what a file
    holds that these fields cannot; they do not take part in comparison.

    Raises BadInput, naming the field, for a count below 1 or a name that is not known.
    """

    micro_batch: int | None = None
    accumulation_steps: int | None = None
    replicas: int | None = None
    nodes: int | None = None
    effective_batch: int | None = None
    seq_len: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    checkpointing: str | None = None
    attention: str | None = None
    sharding: str | None = None
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] | None = None
    quantize: str | None = None
    model: str | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in COUNTS:
            _check_count(name, getattr(self, name))
        for name, allowed in _CHOICES.items():
            _check_choice(name, getattr(self, name), allowed)
        for name in ("model", "lora_targets"):
            _check_printable(name, getattr(self, name))
        if self.replicas and self.nodes and self.replicas % self.nodes:
            raise BadInput(
                "nodes",
                "must divide the {replicas} replicas evenly; it is {nodes}",
                replicas=self.replicas,
                nodes=self.nodes,
            )

    @property
    def replicas_per_node(self) -> int | None:
        """Replicas on each node; all of them where one node, or no number of nodes, is given."""
        return None if self.replicas is None else self.replicas // (self.nodes or 1)

    @property
    def batch(self) -> int | None:
        """Samples per optimizer step: the product where all three factors are known, else what was said."""
        if self.micro_batch and self.accumulation_steps and self.replicas:
            return self.micro_batch * self.accumulation_steps * self.replicas
        return self.effective_batch

    def solved(self) -> TrainingSettings:
        """The same with the fourth of (micro-batch, steps, replicas, batch) filled in, where three are known.

        Raises BadInput on `effective_batch` where the known factors do not divide it.
        """
        if self.effective_batch is None or self.batch != self.effective_batch:
            return replace(self, effective_batch=self.batch)
        factors = {name: getattr(self, name) for name in ("micro_batch", "accumulation_steps", "replicas")}
        unknown = [name for name, value in factors.items() if value is None]
        known = math.prod(value or 1 for value in factors.values())
        if self.effective_batch % known:
            raise BadInput(
                "effective_batch",
                "must be a multiple of {known}, the product of the factors given; it is {batch}",
                known=known,
                batch=self.effective_batch,
            )
        if len(unknown) != 1:
            return self
        missing: dict[str, int] = {unknown[0]: self.effective_batch // known}
        return replace(self, **missing)  # type: ignore[arg-type]


def _check_count(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInput(name, "must be a whole number of 1 or more; it is {value}", value=repr(value))


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise BadInput(
            name, "must be one of {allowed}; it is {value}", allowed=", ".join(allowed), value=repr(value)
        )


def _check_printable(name: str, value: str | tuple[str, ...] | None) -> None:
    """Names end up in files of five syntaxes: line breaks and control characters have no place in them."""
    for text in (value,) if isinstance(value, str) else value or ():
        if not (isinstance(text, str) and text and text.isprintable() and text == text.strip()):
            raise BadInput(
                name, "must be a name of printable characters on one line; it is {value}", value=repr(text)
            )
