"""Megatron-LM's theoretical memory report (megatron/training/theoretical_memory_usage.py), whose formulas are written
out here, as it runs within Megatron's own arguments only. Rows have no tensor, pipeline or sequence parallelism; it
takes 18 bytes a parameter, or 6 and 12 over the replicas with the distributed optimizer."""

from __future__ import annotations

from bench.accuracy.peers._shape import all_trained, decoder
from bench.accuracy.question import Question

NAME = "Megatron-LM's report"


def peak(question: Question) -> float:
    """Its total, in bytes."""
    all_trained(question)
    shape = decoder(question)
    width, layers = shape.hidden, shape.layers
    tokens = question.trace["seq_len"] * question.micro_batch
    attention = 2 * width * width * (1 + shape.kv_heads / shape.heads)
    layer = 2 * width * (shape.ffn * (1.5 if shape.gated else 1) + 1) + attention
    embeddings = shape.vocabulary * width * (1 if shape.tied else 2)
    parameters = layers * layer + width + embeddings
    states = parameters * (18 if question.replicas == 1 else 6 + 12 / question.replicas)
    held = tokens * width * 34 * layers + 8 * tokens + tokens * width
    held += 2 * (tokens * shape.vocabulary + tokens * width)
    return float(states + 1.05 * held)
