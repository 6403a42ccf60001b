"""Decoders that training libraries write themselves, operation by operation as far as memory goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bench.accuracy.bert import Bert, Electra
from bench.accuracy.litgpt_model import LitGpt
from bench.accuracy.torchtitan_llama import TorchtitanLlama
from bench.accuracy.torchtune_llama import TorchtuneLlama


class Mpt(nn.Module):
    """llm-foundry's MPT: learned positions, an output layer tied to the embedding, blocks without gates, and the fused
    cross-entropy of flash_attn that is its default (`loss_fn: fused_crossentropy`).

    Source: mosaicml/llm-foundry, `models/mpt/modeling_mpt.py`, 2023; flash attention is PyTorch's here.
    """

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.wte, self.wpe = nn.Embedding(config["vocab_size"], hidden), nn.Embedding(seq_len, hidden)
        self.blocks = nn.ModuleList(_MptBlock(config) for _ in range(config["num_hidden_layers"]))
        self.norm_f = nn.LayerNorm(hidden, bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.size(1), device=input_ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm_f(x), self.wte.weight)
        losses: Tensor = _FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            logits.view(-1, logits.size(-1))
        )
        return losses.mean()


class _FusedCrossEntropy(torch.autograd.Function):
    """Rows' losses from 16-bit logits in one kernel, which keeps the logits and a float32 log-sum a row; the gradient
    is a tensor of its own, in the type of the logits.

    Source: flash_attn 1.0, `losses/cross_entropy.py` (`SoftmaxCrossEntropyLossFn`) and csrc/xentropy.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        losses, sums = (logits.new_empty(logits.size(0), dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(logits, sums)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        logits, _ = ctx.saved_tensors
        return torch.empty_like(logits)


class _MptBlock(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden, bias=False), nn.LayerNorm(hidden, bias=False)
        self.Wqkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out_proj = nn.Linear(hidden, hidden, bias=False)
        self.up_proj = nn.Linear(hidden, config["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(config["intermediate_size"], hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        qkv = self.Wqkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(out.transpose(1, 2).reshape(batch, length, hidden))
        result: Tensor = x + self.down_proj(F.gelu(self.up_proj(self.norm_2(x))))
        return result


#: Classes by the model_type that adapters give.
PLAIN: dict[str, Callable[[Mapping[str, Any], int], nn.Module]] = {
    "torchtitan-llama": TorchtitanLlama,
    "llmfoundry-mpt": Mpt,
    "torchtune-llama": TorchtuneLlama,
    "bert-of-its-time": Bert,
    "electra-of-its-time": Electra,
    "litgpt": LitGpt,
}
