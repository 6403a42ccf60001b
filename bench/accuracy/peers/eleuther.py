"""EleutherAI's calc_transformer_mem (cookbook, calc/calc_transformer_mem.py), whose formulas are written out here, as
it is a script without a release: mixed precision, gradients of as many bytes as the weights have, Adam's 12 bytes,
activations after Korthikanti et al. (`--checkpoint-activations` where blocks are recomputed), ZeRO 3 where states are
sharded."""

from __future__ import annotations

from bench.accuracy.peers._shape import all_trained, decoder
from bench.accuracy.question import Question

NAME = "EleutherAI's calc_transformer_mem"

#: Its defaults: ZeRO's all-gather bucket and live parameters, in elements.
_BUCKET, _LIVE = 5e8, 1e9


def peak(question: Question) -> float:
    """Its "Per-GPU Memory Required for Training", in bytes."""
    all_trained(question)
    shape = decoder(question)
    width, layers, tokens = shape.hidden, shape.layers, question.trace["seq_len"]
    parameters = (
        2 * shape.vocabulary * width
        + width * tokens
        + 8 * width * layers
        + 2 * width
        + 2 * (1 + shape.kv_heads / shape.heads) * layers * width * width
        + (3 if shape.gated else 2) * layers * width * shape.ffn
    )
    gpus = question.replicas
    states = parameters * (2 + (4 if question.trace["weights"] == "fp32" else 2) + 12) / gpus
    buckets = 2 * (_BUCKET + _LIVE) if gpus > 1 else 0
    held: float = question.micro_batch * tokens * width * layers * (16 * 2 + 2)
    if question.trace.get("checkpointing", "none") == "none":
        held += question.micro_batch * tokens * layers * 5 * shape.heads * tokens
    return float(states + buckets + held)
