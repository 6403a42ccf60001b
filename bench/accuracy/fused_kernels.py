"""The fused kernels of fms-acceleration's plugin "foak" (Unsloth's and Liger's), by what they allocate and keep.

Their arithmetic is not done: tensors are, in the order in which the plugin's Triton kernels and matrix products make
them. Source: foundation-model-stack/fms-acceleration, plugins/fused-ops-and-kernels/src/fms_acceleration_foak,
`kernels/unsloth` (norm, rotation, cross-entropy), `fused_ops/liger_ce` (output layer and cross-entropy in one) and
`models` (what is replaced in which model). See `fused_lora` for the adapters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from batchfit.trace.losses import rows_per_chunk


@contextmanager
def replaced(model_type: str, kernels: Sequence[str]) -> Iterator[None]:
    """In here transformers' models of a type are made of these kernels, where they have such parts: "norm" (RMSNorm),
    "rope" (the rotation of queries and keys), "loss" (cross-entropy), "linear-loss" (output layer with cross-entropy).
    """
    module = sys.modules.get(f"transformers.models.{model_type}.modeling_{model_type}")
    with ExitStack() as stack:
        for name, value in vars(module).items() if module and kernels else ():
            if "norm" in kernels and name.endswith("RMSNorm"):
                stack.enter_context(mock.patch.object(value, "forward", _norm))
            if "linear-loss" in kernels and name.endswith("ForCausalLM"):
                stack.enter_context(mock.patch.object(value, "forward", _linear_loss_forward))
        if module and "rope" in kernels and hasattr(module, "apply_rotary_pos_emb"):
            stack.enter_context(mock.patch.object(module, "apply_rotary_pos_emb", _rope))
        if module and "loss" in kernels:
            stack.enter_context(_cross_entropy(module))
        yield


def _cross_entropy(module: Any) -> Any:
    """Models had a loss of their own until transformers 4.45; since then all have one."""
    if hasattr(module, "CrossEntropyLoss"):
        return mock.patch.object(module, "CrossEntropyLoss", _CrossEntropyLoss)
    from transformers.loss import loss_utils

    return mock.patch.dict(loss_utils.LOSS_MAPPING, ForCausalLM=_causal_loss)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        rows = x.view(-1, x.size(-1))
        out = torch.empty_like(rows)
        ctx.save_for_backward(rows, weight, rows.new_empty(rows.size(0), dtype=torch.float32))
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None  # written over; the norm's own weight gets no gradient


def _norm(self: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = _Norm.apply(x, self.weight)  # type: ignore[no-untyped-call]
    return out


class _Rope(torch.autograd.Function):
    """Turned in place, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        batch, length, heads, size = grads[0].shape
        return grads[0].reshape(batch * length, heads * size).view(batch, length, heads, size)


def _rope(q: Tensor, k: Tensor, *ignored: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    return _turned(q), _turned(k)


def _turned(x: Tensor) -> Tensor:
    turned: Tensor = _Rope.apply(x.transpose(1, 2))  # type: ignore[no-untyped-call]
    return turned.transpose(1, 2)


class _CrossEntropy(torch.autograd.Function):
    """A loss and a log-sum a row, both float32; the gradient is written over the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        losses = logits.new_empty(logits.size(0), dtype=torch.float32)
        ctx.save_for_backward(logits, torch.empty_like(losses), labels)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0], None


def _mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    losses: Tensor = _CrossEntropy.apply(logits, labels)  # type: ignore[no-untyped-call]
    return losses.sum() / torch.count_nonzero(labels != -100)


class _CrossEntropyLoss(nn.Module):
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _mean_loss(logits, labels)


def _causal_loss(logits: Tensor, labels: Tensor, vocab_size: int, *_: Any, **__: Any) -> Tensor:
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous().view(-1, vocab_size)
    return _mean_loss(shifted, labels[..., 1:].contiguous().view(-1))


class _LinearCrossEntropy(torch.autograd.Function):
    """Liger's of its first releases: each chunk's logits are made, brought to float32, written over by the gradient,
    brought back and scaled; what stays is the gradient by hidden states and, if it is trained, by the weight."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        rows = hidden.size(0)
        chunk = rows_per_chunk(rows, hidden.size(1), weight.size(0))
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        grad_hidden = torch.zeros_like(hidden)
        losses = hidden.new_zeros(rows, dtype=torch.float32)
        for start in range(0, rows, chunk):
            part = hidden[start : start + chunk]
            logits = part @ weight.t()
            dtype = logits.dtype
            logits = logits.float()
            logits = logits.to(dtype)
            grad = logits * 1.0
            grad_hidden[start : start + chunk] = grad @ weight
            if grad_weight is not None:
                grad_weight.addmm_(logits.t(), part)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden, grad_weight, None


def _linear_loss_forward(
    self: Any, input_ids: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any
) -> Any:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    kwargs.pop("num_items_in_batch", None)
    assert labels is not None
    hidden = self.model(input_ids=input_ids, **kwargs)[0]
    shifted = hidden[..., :-1, :].contiguous().view(-1, hidden.size(-1))
    loss = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        shifted, self.lm_head.weight, labels[..., 1:].contiguous().view(-1)
    )
    return CausalLMOutputWithPast(loss=loss)
