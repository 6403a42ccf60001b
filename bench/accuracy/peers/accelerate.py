"""`accelerate estimate-memory`: its own functions, over the model on the meta device. It knows the size of the weights
and "training with Adam", for one GPU, without a batch."""

from __future__ import annotations

from bench.accuracy.peers._model import model
from bench.accuracy.peers._shape import all_trained, one_gpu
from bench.accuracy.question import Question

NAME = "accelerate estimate-memory"


def peak(question: Question) -> float:
    """Bytes to train with Adam."""
    from accelerate.commands.estimate import calculate_maximum_sizes, estimate_training_usage

    one_gpu(question)
    all_trained(question)
    total, _ = calculate_maximum_sizes(model(question))
    precision = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[question.trace["weights"]]
    return float(max(estimate_training_usage(total, precision).values()))
