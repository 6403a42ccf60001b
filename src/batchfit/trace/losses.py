"""How a causal language model gets from its last hidden states to its loss: full, chunked or fused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from batchfit.errors import BadInput
from batchfit.trace.layers import base_model, output_layer

#: From hidden states (batch, tokens, hidden), the output layer and shifted labels (batch, tokens) to the summed
#: loss over the tokens whose label is not ignored. `softcap` bounds the logits where the model asks for it.
LinearLoss = Callable[[Tensor, nn.Linear, Tensor, int, float | None], Tensor]

#: Pieces the sequence is cut into, as torchtune's `CEWithChunkedOutputLoss` does by default.
CHUNKS = 8


def use_loss(model: nn.Module, name: str) -> None:
    """Makes `model`, a causal language model of transformers or PEFT, compute its loss so from now on.

    full      the model's own: all logits at once, and a float32 copy of them
    chunked   logits and loss a piece of the sequence at a time; only each piece's float32 log-probabilities stay
    fused     logits and their gradient a few rows at a time, in forward; no logits stay

    Raises BadInput where the name is not known or the model has no output layer of its own.
    """
    if name not in LOSSES:
        raise BadInput(
            "loss", "must be one of {known}; you typed {typed}", known=", ".join(LOSSES), typed=repr(name)
        )
    linear_loss = LOSSES[name]
    if linear_loss is None:
        return
    causal = base_model(model)
    head = output_layer(causal)
    plain = type(head) is nn.Linear or (name == "chunked" and isinstance(head, nn.Module))
    if not plain or not hasattr(causal, "loss_function"):
        raise BadInput(
            "loss",
            "{name} needs a causal language model of transformers with a plain linear output layer; {model} has {head}",
            name=name,
            model=type(causal).__name__,
            head="none" if head is None else type(head).__name__,
        )
    # The model's forward calls its output layer, then its loss function on the result: the layer hands on the
    # hidden states as they are, and the loss function applies it.
    # Of pieces, an output layer with an adapter makes logits as well as a plain one.
    setattr(head, _PROJECT, head.forward)
    head.forward = _unchanged
    causal.loss_function = _loss_function(linear_loss, head, _take_softcap(causal))


#: Where an output layer keeps its own forward.
_PROJECT = "_logits_of"


def _unchanged(hidden: Tensor) -> Tensor:
    return hidden


def _take_softcap(causal: Any) -> float | None:
    """The bound on the logits (Gemma 2), which the loss applies in the place of the model."""
    softcap = getattr(causal.config.get_text_config(), "final_logit_softcapping", None)
    if softcap is not None:
        causal.config = deepcopy(causal.config)  # it may be shared with other models
        causal.config.get_text_config().final_logit_softcapping = None
    return cast("float | None", softcap)


def _loss_function(linear_loss: LinearLoss, head: nn.Linear, softcap: float | None) -> Callable[..., Tensor]:
    def loss_function(
        logits: Tensor,
        labels: Tensor,
        vocab_size: int | None = None,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        if shift_labels is None:
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].contiguous()
        total = linear_loss(logits, head, shift_labels, ignore_index, softcap)
        if num_items_in_batch is None:
            return total / (shift_labels != ignore_index).sum()
        return total / num_items_in_batch

    return loss_function


def chunked_cross_entropy(
    hidden: Tensor, head: nn.Linear, labels: Tensor, ignore_index: int, softcap: float | None = None
) -> Tensor:
    """The summed loss, from logits in pieces along the sequence, each brought to float32 by itself.

    All pieces' logits are there before the first loss, in the layer's type, and go when the last is done. Source:
    torchtune, `modules/transformer.py` (`chunked_output`) and `modules/loss/ce_chunked_output_loss.py`.
    """
    project = getattr(head, _PROJECT, head.forward)
    pieces = [project(piece) for piece in hidden.chunk(CHUNKS, dim=1)]
    total = hidden.new_zeros((), dtype=torch.float32)
    for logits, target in zip(pieces, labels.chunk(CHUNKS, dim=1), strict=True):
        rows = logits.reshape(-1, logits.size(-1))
        if softcap is not None:
            rows = softcap * torch.tanh(rows / softcap)
        total = total + F.cross_entropy(
            rows.float(), target.reshape(-1), ignore_index=ignore_index, reduction="sum"
        )
    return total


def fused_cross_entropy(
    hidden: Tensor, head: nn.Linear, labels: Tensor, ignore_index: int, softcap: float | None = None
) -> Tensor:
    """The summed loss, from logits a few rows at a time, with the gradients computed on the way."""
    total: Tensor = _FusedLinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden.reshape(-1, hidden.size(-1)), head.weight, head.bias, labels.reshape(-1), ignore_index, softcap
    )
    return total


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Output layer and cross-entropy in one, keeping gradients in the place of logits.

    Rows are taken in chunks of such a size that a chunk's logits take about the room of all hidden states, rounded up
    to a power of two; so memory is not affine in the micro-batch. Source: Liger-Kernel 0.8,
    `ops/fused_linear_cross_entropy.py`, whose allocations these are; its kernel keeps the rows' maxima and sums
    (8 bytes a row here) in registers.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        ignore_index: int,
        softcap: float | None,
    ) -> Tensor:
        rows = hidden.size(0)
        chunk = rows_per_chunk(rows, hidden.size(1), weight.size(0))
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        losses = torch.zeros(rows, dtype=torch.float32, device=hidden.device)
        for start in range(0, rows, chunk):
            part = hidden[start : start + chunk]
            logits = part @ weight.t()
            if bias is not None:
                logits = logits + bias
            # The last chunk's logits live until this one's are made.
            grad = logits
            losses[start : start + chunk] = _loss_and_gradient_(
                grad, labels[start : start + chunk], ignore_index, softcap
            )
            grad_hidden[start : start + chunk] = grad @ weight
            if grad_weight is not None:
                grad_weight += torch.mm(grad.t(), part.to(grad.dtype)).float()
            if grad_bias is not None:
                grad_bias += grad.sum(dim=0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if g is None else g.mul_(grad_outputs[0]) for g in ctx.saved_tensors)
        return (*scaled, None, None, None)


def _loss_and_gradient_(logits: Tensor, labels: Tensor, ignore_index: int, softcap: float | None) -> Tensor:
    """Each row's loss, in float32; `logits` become the gradient of the losses' sum in place."""
    used = (labels != ignore_index).unsqueeze(1)
    picked = labels.unsqueeze(1) * used
    if softcap is not None:
        logits.div_(softcap).tanh_().mul_(softcap)
    target = logits.gather(1, picked)
    slope = None if softcap is None else 1 - (logits / softcap).square_()
    highest = logits.amax(dim=1, keepdim=True)
    logits.sub_(highest).exp_()
    total = logits.sum(dim=1, keepdim=True, dtype=torch.float32)
    losses = (total.log() + highest - target) * used
    logits.div_(total).mul_(used)
    logits.scatter_add_(1, picked, -used.to(logits.dtype))
    if slope is not None:
        logits.mul_(slope)
    return losses.squeeze(1)


def rows_per_chunk(rows: int, hidden: int, vocabulary: int) -> int:
    """Rows whose logits are there at a time, of `rows` in all: a power of two."""
    pieces = -(-vocabulary // hidden)
    return 1 << (-(-rows // pieces) - 1).bit_length()


#: By name; None is the model's own.
LOSSES: dict[str, LinearLoss | None] = {
    "full": None,
    "chunked": chunked_cross_entropy,
    "fused": fused_cross_entropy,
}
