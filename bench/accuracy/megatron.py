"""One rank's part of GPT in Megatron-DeepSpeed, as BigScience trained with it: its stage and its share of each layer.

Ranks that share a layer sum its results and gradients in place, so their collectives make no tensors, and none are run.

Sources: bigscience-workshop/Megatron-DeepSpeed, 2021 to 2022, `megatron/model` (gpt_model.py, transformer.py,
fused_softmax.py, fused_bias_gelu.py) and `megatron/mpu` (layers.py, mappings.py, cross_entropy.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank it is: its pipeline stage, counted from 0, of so many, and the ranks that share each layer."""

    stage: int
    stages: int
    tensor: int

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1


class Stage(nn.Module):
    """The layers of one pipeline stage. Activations are [sequence, batch, hidden]. The first stage also has the
    embedding and the last the output layer, which is a copy of the embedding, or the same weight where both are one
    stage."""

    def __init__(self, config: Mapping[str, Any], seq_len: int, place: Place, *, checkpointing: bool) -> None:
        super().__init__()
        self.place, self.checkpointing, self.seq_len = place, checkpointing, seq_len
        self.hidden = config["hidden_size"]
        vocabulary = _padded(config["vocab_size"], place.tensor) // place.tensor
        if place.is_first or place.is_last:
            self.word_embeddings = nn.Embedding(vocabulary, self.hidden)
        if place.is_first:
            self.position_embeddings = nn.Embedding(seq_len, self.hidden)
            self.embedding_norm = nn.LayerNorm(self.hidden)
        self.layers = nn.ModuleList(
            _Layer(config, place.tensor) for _ in range(config["num_hidden_layers"] // place.stages)
        )
        if place.is_last:
            self.final_norm = nn.LayerNorm(self.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, sequence] or the activations of the stage before; gives float32 logits, or activations."""
        if self.place.is_first:
            x = self._embedded(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        if not self.place.is_last:
            return x
        x = self.final_norm(x.transpose(0, 1).contiguous())
        return F.linear(x, self.word_embeddings.weight).float()

    def _embedded(self, tokens: Tensor) -> Tensor:
        words = self.embedding_norm(self.word_embeddings(tokens))
        positions = torch.arange(self.seq_len, device=tokens.device).unsqueeze(0).expand_as(tokens)
        x = F.dropout(words + self.position_embeddings(positions), 0.1)
        return x.transpose(0, 1).contiguous()


def _padded(vocabulary: int, tensor: int) -> int:
    """The vocabulary filled up to a multiple of 128 for each rank (`--make-vocab-size-divisible-by`)."""
    multiple = 128 * tensor
    return -(-vocabulary // multiple) * multiple


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any], tensor: int) -> None:
        super().__init__()
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        self.head = hidden // config["num_attention_heads"]
        self.input_norm, self.post_attention_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden // tensor)
        self.dense = nn.Linear(hidden // tensor, hidden)
        self.up, self.down = nn.Linear(hidden, ffn // tensor), nn.Linear(ffn // tensor, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = _bias_dropout_add(self._attention(self.input_norm(x)), self.dense.bias, x)
        h = self.post_attention_norm(x)
        h = F.linear(h, self.up.weight)
        h = _BiasGelu.apply(h, self.up.bias)  # type: ignore[no-untyped-call]
        return _bias_dropout_add(F.linear(h, self.down.weight), self.down.bias, x)

    def _attention(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        mixed = self.query_key_value(x).view(length, batch, -1, 3 * self.head)
        q, k, v = (t.reshape(length, -1, self.head).transpose(0, 1) for t in mixed.chunk(3, -1))
        scores = torch.empty(q.size(0), length, length, dtype=q.dtype, device=q.device)
        scores = torch.baddbmm(scores, q, k.transpose(1, 2), beta=0.0, alpha=self.head**-0.5)
        weights: Tensor = _FusedSoftmax.apply(scores)  # type: ignore[no-untyped-call]
        context = torch.bmm(F.dropout(weights, 0.1), v)
        context = context.view(batch, -1, length, self.head).permute(2, 0, 1, 3).contiguous()
        return F.linear(context.view(length, batch, -1), self.dense.weight)


def _bias_dropout_add(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    """Dropout of x + bias, added to the residual; the fuser of that time keeps the mask and no more of it."""
    added: Tensor = _BiasDropoutAdd.apply(x, bias, residual)  # type: ignore[no-untyped-call]
    return added


class _BiasDropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        ctx.save_for_backward(mask, bias)
        return torch.empty_like(residual)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, bias = ctx.saved_tensors
        (gradient,) = gradients
        x = torch.empty_like(gradient)
        return x, torch.empty_like(bias), gradient


class _BiasGelu(torch.autograd.Function):
    """`bias_gelu_impl`: one kernel each way, which keeps its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, bias)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, bias = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(bias)


class _FusedSoftmax(torch.autograd.Function):
    """Scale, causal mask and softmax in one kernel, which keeps its 16-bit result; backward writes over its input."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = torch.empty_like(scores)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of a rank's share of the logits."""
    losses: Tensor = _VocabularyParallelLoss.apply(logits, labels)  # type: ignore[no-untyped-call]
    return losses.mean()


class _VocabularyParallelLoss(torch.autograd.Function):
    """Each token's loss from a rank's float32 logits, which become the softmax and then the gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        largest = logits.max(-1)[0]
        logits.sub_(largest.unsqueeze(-1))
        losses = logits.exp_().sum(-1)
        logits.div_(losses.unsqueeze(-1))
        ctx.save_for_backward(logits)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (softmax,) = ctx.saved_tensors
        return softmax.mul_(gradients[0].unsqueeze(-1)), None
