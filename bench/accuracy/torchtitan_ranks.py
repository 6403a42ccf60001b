"""One rank's part of torchtitan's Llama: by tensor, sequence and context parallelism.

Source: pytorch/torchtitan, `parallelize_llama.py`, later `models/llama3/infra/parallelize.py` (`apply_tp`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from batchfit.trace.context_parallel import attend_to_all
from batchfit.trace.tensor_parallel import TensorParallel, divide, vocabulary_parallel_loss

_GATHERED = ("layers.*.attention", "layers.*.feed_forward", "output")
_DIVIDED = {
    "tok_embeddings": "vocabulary",
    "layers.*.attention.w[qkv]": "colwise",
    "layers.*.attention.wo": "rowwise",
    "layers.*.feed_forward.w[13]": "colwise",
    "layers.*.feed_forward.w2": "rowwise",
    "output": "colwise",
}


def divide_rank(model: nn.Module, asked: Mapping[str, Any]) -> None:
    """Makes `model`, on the meta device, the part of one rank where a question's `tensor` or `context` says over how
    many ranks."""
    tensor, context = asked.get("tensor", 1), asked.get("context", 1)
    attentions: list[Any] = [module for path, module in model.named_modules() if path.endswith(".attention")]
    if tensor > 1:
        parallel = TensorParallel(tensor)
        divide(model, dict.fromkeys(_GATHERED, "gather"), parallel)
        divide(model, _DIVIDED, parallel)
        for attention in attentions:
            attention.heads //= tensor
            attention.kv_heads //= tensor
        model.loss = _Loss()
    if context > 1:
        for attention in attentions:
            attend_to_all(attention, context)


class _Loss(nn.Module):
    """The loss over a rank's share of the vocabulary (`loss_parallel`)."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return vocabulary_parallel_loss(logits.flatten(0, 1).float(), labels.flatten(0, 1))
