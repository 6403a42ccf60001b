"""Decoders that training libraries write themselves, operation by operation as far as memory goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bench.accuracy.bert import Bert, Electra
from bench.accuracy.litgpt_model import LitGpt
from bench.accuracy.torchtune_llama import TorchtuneLlama


class Llama(nn.Module):
    """torchtitan's Llama 3: rotary embedding in complex float32, keys and values repeated for every query head,
    PyTorch's norms, and a loss over float32 logits.

    Source: pytorch/torchtitan, `models/llama/model.py` and `train.py` (`cross_entropy_loss`), 2024 to 2025.
    """

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden, head = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
        self.tok_embeddings = nn.Embedding(config["vocab_size"], hidden)
        self.register_buffer(
            "freqs_cis", torch.empty(seq_len, head // 2, dtype=torch.complex64), persistent=False
        )
        self.layers = nn.ModuleList(_LlamaBlock(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden)
        self.output = nn.Linear(hidden, config["vocab_size"], bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        h = self.tok_embeddings(input_ids)
        for layer in self.layers:
            h = layer(h, self.freqs_cis)
        logits = self.output(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


class _LlamaBlock(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.attention = _LlamaAttention(config)
        self.feed_forward = _GatedFeedForward(hidden, config["intermediate_size"])
        self.attention_norm, self.ffn_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        h = x + self.attention(self.attention_norm(x), freqs_cis)
        result: Tensor = h + self.feed_forward(self.ffn_norm(h))
        return result


class _LlamaAttention(nn.Module):
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


class _GatedFeedForward(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, ffn, bias=False)
        self.w2 = nn.Linear(ffn, hidden, bias=False)
        self.w3 = nn.Linear(hidden, ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return result


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
    "torchtitan-llama": Llama,
    "llmfoundry-mpt": Mpt,
    "torchtune-llama": TorchtuneLlama,
    "bert-of-its-time": Bert,
    "electra-of-its-time": Electra,
    "litgpt": LitGpt,
}
