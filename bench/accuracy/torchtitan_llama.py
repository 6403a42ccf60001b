"""torchtitan's Llama 3 of 2024 and 2025, operation by operation as far as memory goes.

Source: pytorch/torchtitan, `models/llama/model.py`, `train.py`, `components/loss.py` and their history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class TorchtitanLlama(nn.Module):
    """Rotary embedding in complex float32, keys and values repeated for every query head, a loss over float32 logits.

    `config` has beside the usual sizes: `own_norm` (before March 2025, in float32 by separate operations);
    `float_logits` (before October 2024: it is the model that brings logits to float32); `compiled_loss`;
    `loss_pieces` (the sequence is cut into so many for the loss); `recompute_every` (checkpointing of every so-manieth
    block).
    """

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden, head = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
        norm = _RMSNorm if config.get("own_norm") else nn.RMSNorm
        self.recompute_every, self.float_logits = config.get("recompute_every", 0), config.get("float_logits")
        self.tok_embeddings = nn.Embedding(config["vocab_size"], hidden)
        self.register_buffer(
            "freqs_cis", torch.empty(seq_len, head // 2, dtype=torch.complex64), persistent=False
        )
        self.layers = nn.ModuleList(_Block(config, norm) for _ in range(config["num_hidden_layers"]))
        self.norm = norm(hidden)
        self.output = nn.Linear(hidden, config["vocab_size"], bias=False)
        self.loss = _CompiledLoss() if config.get("compiled_loss") else _Loss()
        self.loss_pieces = config.get("loss_pieces", 1)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        pieces = self.logits(input_ids).chunk(self.loss_pieces, dim=1), labels.chunk(self.loss_pieces, dim=1)
        losses = [self.loss(logits, target) for logits, target in zip(*pieces, strict=True)]
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    def logits(self, input_ids: Tensor) -> Tensor:
        """The logits (batch, tokens, vocabulary)."""
        h = self.tok_embeddings(input_ids)
        for number, layer in enumerate(self.layers, 1):
            if self.recompute_every and number % self.recompute_every == 0:
                h = checkpoint(layer, h, self.freqs_cis, use_reentrant=False)
            else:
                h = layer(h, self.freqs_cis)
        logits: Tensor = self.output(self.norm(h))
        return logits.float() if self.float_logits else logits


class _Loss(nn.Module):
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


class _CompiledLoss(_Loss, nn.modules.loss._Loss):
    """The same, by the class that marks what is compiled beside the blocks."""


class _RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        precise = x.float()
        normed = precise * torch.rsqrt(precise.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(x) * self.weight


class _Block(nn.Module):
    def __init__(self, config: Mapping[str, Any], norm: type[nn.Module]) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.attention = _Attention(config)
        self.feed_forward = _FeedForward(hidden, config["intermediate_size"])
        self.attention_norm, self.ffn_norm = norm(hidden), norm(hidden)

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        h = x + self.attention(self.attention_norm(x), freqs_cis)
        result: Tensor = h + self.feed_forward(self.ffn_norm(h))
        return result


class _Attention(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads, self.head = config["num_key_value_heads"], hidden // self.heads
        self.wq = nn.Linear(hidden, hidden, bias=False)
        self.wk = nn.Linear(hidden, self.kv_heads * self.head, bias=False)
        self.wv = nn.Linear(hidden, self.kv_heads * self.head, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, self.heads, self.head)
        k = self.wk(x).view(batch, length, self.kv_heads, self.head)
        v = self.wv(x).view(batch, length, self.kv_heads, self.head)
        q, k = _rotated(q, freqs_cis), _rotated(k, freqs_cis)
        q, k, v = (_repeated(t, self.heads // t.size(2)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.wo(out.transpose(1, 2).contiguous().view(batch, length, -1))
        return result


def _rotated(x: Tensor, freqs_cis: Tensor) -> Tensor:
    turned = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(turned * freqs_cis.view(1, x.size(1), 1, -1)).flatten(3).type_as(x)


def _repeated(x: Tensor, times: int) -> Tensor:
    if times == 1:
        return x
    batch, length, heads, head = x.shape
    return x[:, :, :, None, :].expand(batch, length, heads, times, head).reshape(batch, length, -1, head)


class _FeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, ffn, bias=False)
        self.w2 = nn.Linear(ffn, hidden, bias=False)
        self.w3 = nn.Linear(hidden, ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return result
