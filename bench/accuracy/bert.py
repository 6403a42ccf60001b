"""BERT as training programs wrote it before attention had a kernel of its own, operation by operation as far as memory
goes: in PyTorch with fused layers (`Pytorch`), and in TensorFlow, which had none unless XLA made them (`Tensorflow`).

Sources: NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT/modeling.py, TensorFlow/ and
TensorFlow2/LanguageModeling/BERT; google-research/bert, modeling.py; 2018 to 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

#: Of hidden states and of attention's weights.
_DROPOUT = 0.1


class Operations(Protocol):
    """How a framework computes what is not a matrix product."""

    def gelu(self, x: Tensor) -> Tensor: ...

    def dropout(self, x: Tensor) -> Tensor: ...

    def norm(self, x: Tensor, norm: nn.LayerNorm) -> Tensor: ...


class Pytorch:
    """One kernel each: GELU keeps its input, dropout a mask of a byte an element, the norm its input."""

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(x)

    def dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, _DROPOUT)

    def norm(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        normed: Tensor = norm(x)
        return normed


class Tensorflow(Pytorch):
    """TensorFlow 2 without XLA: GELU's tanh form written out, and a dropout mask in the type of what it masks (tf.keras
    casts it). Its norm is a fused batch norm (tf.keras.layers.LayerNormalization)."""

    def gelu(self, x: Tensor) -> Tensor:
        cdf = 0.5 * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))
        return x * cdf

    def dropout(self, x: Tensor) -> Tensor:
        kept = torch.floor(torch.rand_like(x) + (1 - _DROPOUT))
        return x / (1 - _DROPOUT) * kept


class Tensorflow1(Tensorflow):
    """TensorFlow 1: the norm is written out, too, and its factor is as large as its input (tf.contrib.layers.layer_norm
    and tf.nn.batch_normalization)."""

    def norm(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = torch.square(x - mean.detach()).mean(-1, keepdim=True)
        factor = torch.rsqrt(variance + norm.eps) * norm.weight
        return x * factor + (norm.bias - mean * factor)


OPERATIONS: dict[str, Callable[[], Operations]] = {
    "pytorch": Pytorch,
    "tensorflow2": Tensorflow,
    "tensorflow1": Tensorflow1,
}


class Bert(nn.Module):
    """The encoder with a head. `config["operations"]` names the framework.

    `config["predictions"]` is how many positions of a sample the masked ones are, for pre-training: logits over the
    vocabulary there alone, and whether one sentence follows the other. Without it two logits a token, for answers to
    questions (SQuAD).
    """

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        operations = OPERATIONS[config["operations"]]()
        self.predictions: int | None = config.get("predictions")
        self.embedding = _Embedding(config["vocab_size"], hidden, operations)
        self.layers = _layers(config, operations)
        self.pooler = nn.Linear(hidden, hidden)
        if self.predictions:
            self.words = _MaskedWords(hidden, self.embedding, operations)
        self.two = nn.Linear(hidden, 2)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        x: Tensor = self.layers(self.embedding(input_ids))
        if self.predictions is None:
            begins, ends = self.two(x).float().unbind(-1)
            return F.cross_entropy(begins, labels[:, 0]) + F.cross_entropy(ends, labels[:, 0])
        logits = self.words(x, self.predictions)
        first = torch.tanh(self.pooler(x[:, 0]))
        follows = F.cross_entropy(self.two(first).float(), torch.zeros_like(labels[:, 0]))
        return _loss(logits, labels, self.predictions) + follows


class Electra(nn.Module):
    """Pre-training of ELECTRA: a small generator fills masked positions, and a discriminator tells for each token
    whether it is the true one. Both share the embedding.

    Source: NVIDIA/DeepLearningExamples, TensorFlow2/LanguageModeling/ELECTRA, modeling.py and pretrain_utils.py.
    """

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden, small = config["hidden_size"], config["generator_hidden_size"]
        operations = OPERATIONS[config["operations"]]()
        self.operations = operations
        self.predictions: int = config["predictions"]
        self.embedding = _Embedding(config["vocab_size"], hidden, operations)
        self.project = nn.Linear(hidden, small)
        size = {"hidden_size": small, "intermediate_size": 4 * small, "num_attention_heads": small // 64}
        self.generator = _layers({**config, **size}, operations)
        self.words = _MaskedWords(small, self.embedding, operations)
        self.layers = _layers(config, operations)
        self.transform, self.is_true = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        logits = self.words(self.generator(self.project(self.embedding(input_ids))), self.predictions)
        sampled = self._sampled(logits.detach().float()).view(-1, self.predictions)
        filled = torch.cat([sampled, input_ids[:, self.predictions :]], dim=1)
        x = self.operations.gelu(self.transform(self.layers(self.embedding(filled))))
        told = self.is_true(x).squeeze(-1).float()
        truth = (filled == input_ids).float()
        return _loss(logits, labels, self.predictions) + F.binary_cross_entropy_with_logits(told, truth)

    def _sampled(self, logits: Tensor) -> Tensor:
        """A word by its probability: the highest logit with Gumbel noise."""
        noise = -torch.log(-torch.log(torch.rand_like(logits)))
        return torch.argmax(logits + noise, dim=-1)


def _loss(logits: Tensor, labels: Tensor, predictions: int) -> Tensor:
    return F.cross_entropy(logits.float(), labels[:, :predictions].flatten())


class _Embedding(nn.Module):
    def __init__(self, vocab: int, hidden: int, operations: Operations) -> None:
        super().__init__()
        self.operations = operations
        self.words, self.places = nn.Embedding(vocab, hidden), nn.Embedding(512, hidden)
        self.kinds = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.size(1), device=ids.device)
        x = self.words(ids) + self.places(places) + self.kinds(torch.zeros_like(ids))
        return self.operations.dropout(self.operations.norm(x, self.norm))


class _MaskedWords(nn.Module):
    """Logits over the vocabulary, by the embedding's own weights, for so many positions of each sample."""

    def __init__(self, hidden: int, embedding: _Embedding, operations: Operations) -> None:
        super().__init__()
        self.operations = operations
        vocab, width = embedding.words.weight.shape
        self.transform, self.norm = nn.Linear(hidden, width), nn.LayerNorm(width)
        self.words, self.bias = embedding.words, nn.Parameter(torch.empty(vocab))

    def forward(self, x: Tensor, predictions: int) -> Tensor:
        rows = torch.arange(x.size(0) * predictions, device=x.device)
        picked = x.flatten(0, 1).index_select(0, rows)
        picked = self.operations.norm(self.operations.gelu(self.transform(picked)), self.norm)
        return F.linear(picked, self.words.weight) + self.bias


def _layers(config: Mapping[str, Any], operations: Operations) -> nn.Sequential:
    return nn.Sequential(*(_Layer(config, operations) for _ in range(config["num_hidden_layers"])))


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any], operations: Operations) -> None:
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.operations = operations
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = (
            nn.Linear(hidden, config["intermediate_size"]),
            nn.Linear(config["intermediate_size"], hidden),
        )
        self.attention_norm, self.norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        do = self.operations
        x = do.norm(x + do.dropout(self.out(self._attended(x))), self.attention_norm)
        return do.norm(x + do.dropout(self.down(do.gelu(self.up(x)))), self.norm)

    def _attended(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = (
            made(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(hidden // self.heads)
        mask = torch.zeros(batch, 1, 1, length, dtype=scores.dtype, device=x.device)
        weights = self.operations.dropout(torch.softmax(scores + mask, dim=-1))
        return torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, hidden)
