"""torch-preflight: `estimate_config` over the sizes of the row's model. The CUDA context, which it adds, is no part of
what is allocated and left out; what it adds for fragmentation is a part of its peak."""

from __future__ import annotations

from torch import nn

from bench.accuracy.peers._model import model
from bench.accuracy.peers._shape import decoder, lora
from bench.accuracy.question import CannotExpress, Question

NAME = "torch-preflight"
PACKAGES = ("torch-preflight==0.5.0", "libcst==1.8.2", "pyyaml==6.0.2")


def peak(question: Question) -> float:
    """Its total without the context, in bytes."""
    from torch_preflight.vram import (
        Confidence,
        ModelProfile,
        PrecisionMode,
        RunConfig,
        Sharding,
        TransformerShape,
    )
    from torch_preflight.vram.costmodel import estimate
    from torch_preflight.vram.hardware import resolve
    from torch_preflight.vram.types import ModelKind

    shape = decoder(question)
    if question.trace.get("quantize"):
        raise CannotExpress("weights in few bits")
    made = model(question)
    parameters = sum(p.numel() for p in made.parameters())
    profile = ModelProfile(
        "row",
        parameters,
        parameters,
        "formula",
        Confidence.HIGH,
        ModelKind.TRANSFORMER,
        shape=TransformerShape(
            layers=shape.layers,
            hidden=shape.hidden,
            heads=shape.heads,
            vocab=shape.vocabulary,
            intermediate=shape.ffn,
            kv_heads=shape.kv_heads,
            tied_embeddings=shape.tied,
            gated_mlp=shape.gated,
            has_lm_head=True,
        ),
    )
    adapters = lora(question)
    mixed = question.trace.get("autocast") or question.trace.get("mixed")
    precision = {"bf16": "pure-bf16", "fp16": "pure-fp16", "fp32": "amp" if mixed else "fp32"}
    config = RunConfig(
        batch_size=question.micro_batch,
        seq_len=question.trace["seq_len"],
        precision=PrecisionMode(precision[question.trace["weights"]]),
        gradient_checkpointing=question.trace.get("checkpointing", "none") != "none",
        flash_attention=question.trace.get("attention") != "eager",
        accumulation_steps=question.accumulation_steps,
        world_size=question.replicas,
        sharding=Sharding.ZERO3 if question.replicas > 1 else Sharding.NONE,
        # Its word for adapters: the share of weights without gradients, all but the adapters' own.
        frozen_fraction=1 - _adapted(made, *adapters) / parameters if adapters else 0.0,
    )
    found = estimate(profile, config, *resolve("a100-80gb")).breakdown
    return float(found.total - found.cuda_context)


def _adapted(made: nn.Module, rank: int, targets: list[str]) -> int:
    """Parameters of the adapters."""
    found = 0
    for name, module in made.named_modules():
        if name.rpartition(".")[2] in targets:
            outputs, inputs = module.weight.shape  # type: ignore[union-attr,misc]
            found += rank * (int(inputs) + int(outputs))
    return found
