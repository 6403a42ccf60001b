"""torchtune's Llama 3 and its recipes' step, operation by operation as far as memory goes.

Source: pytorch/torchtune, September 2024: `modules/` (attention, rms_norm, position_embeddings, transformer, peft/lora,
low_precision/nf4_linear, loss/ce_chunked_output_loss), `training/memory.py` and the recipes. Packed samples are
attended to by flex attention, which keeps for backward what flash attention does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from batchfit.trace.quantize import Linear4bit

CHUNKS = 8


class TorchtuneLlama(nn.Module):
    """`config` has beside the usual sizes: `adapters` ({"rank", "targets"}) and `nf4`, for adapters over a frozen base;
    `recompute`, for checkpointing around each layer, outside of what is compiled."""

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        self.recompute = config.get("recompute", False)
        self.tok_embeddings = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(_Layer(config, seq_len) for _ in range(config["num_hidden_layers"]))
        self.norm = _RMSNorm(hidden)
        self.output = nn.Linear(hidden, vocab, bias=False)
        self.loss = _ChunkLoss()
        if config.get("adapters"):
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        # Packed samples bring their tokens' positions.
        positions = torch.empty_like(input_ids)
        h = self.tok_embeddings(input_ids)
        for layer in self.layers:
            again = self.recompute
            h = checkpoint(layer, h, positions, use_reentrant=False) if again else layer(h, positions)
        h = self.norm(h)
        return self._loss([self.output(piece) for piece in h.chunk(CHUNKS, dim=1)], labels)

    def _loss(self, pieces: list[Tensor], labels: Tensor) -> Tensor:
        rows = [piece.reshape(-1, piece.size(-1)) for piece in pieces]
        total: Any = 0.0
        for logits, target in zip(rows, labels.chunk(CHUNKS, dim=1), strict=True):
            total = total + self.loss(logits, target.reshape(-1))
        return total / (labels != -100).sum()  # type: ignore[no-any-return]


class _ChunkLoss(nn.modules.loss._Loss):
    """`CEWithChunkedOutputLoss.compute_cross_entropy`, which is compiled by itself."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, reduction="sum")


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.sa_norm, self.mlp_norm = _RMSNorm(hidden), _RMSNorm(hidden)
        self.attn, self.mlp = _Attention(config, seq_len), _FeedForward(config)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        h = self.attn(self.sa_norm(x), positions) + x
        result: Tensor = h + self.mlp(self.mlp_norm(h))
        return result


class _RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        precise = x.float()
        normed = precise * torch.rsqrt(precise.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(x) * self.scale


class _Attention(nn.Module):
    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads, self.head = config["num_key_value_heads"], hidden // self.heads
        self.q_proj = _linear(config, "q_proj", hidden, hidden)
        self.k_proj = _linear(config, "k_proj", hidden, self.kv_heads * self.head)
        self.v_proj = _linear(config, "v_proj", hidden, self.kv_heads * self.head)
        self.output_proj = _linear(config, "output_proj", hidden, hidden)
        rotary = torch.empty(seq_len, self.head // 2, 2, dtype=torch.float32)
        self.register_buffer("rotary", rotary, persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self._rotated(self.q_proj(x).view(batch, length, self.heads, self.head), positions)
        k = self._rotated(self.k_proj(x).view(batch, length, self.kv_heads, self.head), positions)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head)
        k, v = (self._repeated(part) for part in (k, v))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.output_proj(out.transpose(1, 2).contiguous().view(batch, length, -1))
        return result

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        turn = self.rotary[positions].view(-1, pairs.size(1), 1, pairs.size(3), 2)  # type: ignore[index]
        first = pairs[..., 0] * turn[..., 0] - pairs[..., 1] * turn[..., 1]
        second = pairs[..., 1] * turn[..., 0] + pairs[..., 0] * turn[..., 1]
        return torch.stack([first, second], -1).flatten(3).type_as(x)

    def _repeated(self, x: Tensor) -> Tensor:
        batch, length, _, _ = x.shape
        times = self.heads // self.kv_heads
        wide = x.view(batch, length, self.kv_heads, 1, self.head)
        return wide.expand(-1, -1, -1, times, -1).reshape(batch, length, -1, self.head)


class _FeedForward(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        self.w1 = _linear(config, "w1", hidden, ffn)
        self.w2 = _linear(config, "w2", ffn, hidden)
        self.w3 = _linear(config, "w3", hidden, ffn)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return result


def _linear(config: Mapping[str, Any], name: str, inputs: int, outputs: int) -> nn.Module:
    """A layer of the attention or the feed-forward network: plain, in 4 bits, with an adapter."""
    layer: nn.Module = nn.Linear(inputs, outputs, bias=False)
    if config.get("nf4"):
        layer = Linear4bit(layer, nested=True)
    lora = config.get("adapters")
    return _LoRALinear(layer, inputs, outputs, lora["rank"]) if lora and name in lora["targets"] else layer


class _LoRALinear(nn.Module):
    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(inputs, rank, bias=False)
        self.lora_b = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.base(x)
        result: Tensor = out + 2.0 * self.lora_b(self.lora_a(x))
        return result


class InBackward(torch.optim.Optimizer):
    """A paged 8-bit AdamW that updates each weight as soon as its gradient is there, and lets go of that: its state
    lies in memory that CUDA moves to the host and back, beside PyTorch's allocator.

    Source: torchtune, `training/memory.py` (`register_optim_in_bwd_hooks`); bitsandbytes, `PagedAdamW8bit`.
    """

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.register_post_accumulate_grad_hook(_updated)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """All is done in backward."""


def _updated(parameter: Tensor) -> None:
    parameter.grad = None
