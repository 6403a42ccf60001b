"""DeepSpeed's `estimate_zero3_model_states_mem_needs_all_live` without offloading, for runs over several GPUs: 4 bytes
for each parameter of the largest layer, and 18 for each of all over the GPUs (its formula, in
deepspeed/runtime/zero/stage3.py). It leaves activations out, and says so."""

from __future__ import annotations

from bench.accuracy.peers._model import model
from bench.accuracy.peers._shape import all_trained
from bench.accuracy.question import CannotExpress, Question

NAME = "DeepSpeed's ZeRO-3 estimator"


def peak(question: Question) -> float:
    """Bytes of a GPU's share of the states, gathered layer included."""
    if question.replicas == 1:
        raise CannotExpress("one GPU alone")
    all_trained(question)
    made = model(question)
    total: int = sum(p.numel() for p in made.parameters())
    largest: int = max(sum(p.numel() for p in m.parameters(recurse=False)) for m in made.modules())
    return float(4 * largest + int(18 * total / question.replicas))
