"""litgpt's own decoder, adapters and loss, operation by operation as far as memory goes.

Sources: Lightning-AI/litgpt, `model.py`, `lora.py`, `utils.py` (`chunked_cross_entropy`) and `finetune/{lora,full}.py`,
at 0cc02af (October 2023) and 916a84c (July 2024); Lightning's Fabric, `plugins/precision/{half,fsdp,bitsandbytes}.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

#: Tokens of a piece that the output layer and the loss take at a time.
CHUNK = 128


class LitGpt(nn.Module):
    """A decoder whose queries, keys and values come from one layer, group by group: [q.., k, v, q.., k, v, ...].

    `config` has the sizes in transformers' words and, of litgpt's own: `norm` ("rms", "layer"), `mlp` ("gated",
    "gelu-gated", "plain"), `parallel`, `shared_norm`, `bias`, `head_bias`, `rotary` (a share of a head), `post_norms`,
    `scaled_embeddings`, `head_dim`, `attention_softcap`, `logit_softcap`, `window` (in every so many blocks,
    `window_every`) and `adapters`: those of LoRA, {rank, dropout, parts, padded_in_place (since May 2024)}, or of
    LLaMA-Adapter, {prompt (its tokens), first (the first block with one), scaled (its second version, which scales and
    shifts every layer's result and trains the norms)}. With adapters the output layer runs in pieces. Embedding and
    output layer are two weights, whatever the checkpoint ties.
    """

    def __init__(self, config: Mapping[str, Any], seq_len: int) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        adapters = config.get("adapters")
        self.chunked = adapters is not None
        self.scaled = config.get("scaled_embeddings", False)
        self.softcap = config.get("logit_softcap")
        self.lm_head = _linear(config, hidden, config["vocab_size"], "head", bias=config["head_bias"])
        self.wte = nn.Embedding(config["vocab_size"], hidden)
        self.h = nn.ModuleList(_Block(config, place) for place in range(config["num_hidden_layers"]))
        self.ln_f = _norm(config)
        self._cache = (seq_len, int(config["rotary"] * _head(config)))
        self.cos, self.sin = (nn.Buffer(torch.empty(self._cache), persistent=False) for _ in range(2))
        if adapters is not None:
            trained = ("lora_", "adapter_", *(("norm_", "ln_f") if adapters.get("scaled") else ()))
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(any(part in name for part in trained))

    def to(self, *args: Any, **kwargs: Any) -> LitGpt:
        """The caches of the rotary embedding are made anew, in float32, when the length of the samples is known."""
        super().to(*args, **kwargs)
        self.cos, self.sin = (
            nn.Buffer(torch.empty(self._cache, device=self.cos.device), persistent=False) for _ in range(2)
        )
        return self

    def forward(self, input_ids: Tensor) -> list[Tensor]:
        """Logits of (samples, CHUNK, vocabulary) each, or of all tokens; as Fabric gives them: copied to float32."""
        x = self.wte(input_ids)
        if self.scaled:
            x = x * torch.tensor(x.size(-1) ** 0.5, dtype=x.dtype)
        for block in self.h:
            x = block(x, self.cos, self.sin)
        x = self.ln_f(x)
        pieces = x.split(CHUNK, dim=1) if self.chunked else (x,)
        logits = [self.lm_head(piece) for piece in pieces]
        if self.softcap is not None:
            logits = [torch.tanh(piece / self.softcap) * self.softcap for piece in logits]
        return [piece.float() for piece in logits]


def _head(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


class _Block(nn.Module):
    def __init__(self, config: Mapping[str, Any], place: int) -> None:
        super().__init__()
        self.parallel, self.shared = config.get("parallel", False), config.get("shared_norm", False)
        post = config.get("post_norms", False)
        self.norm_1 = _norm(config)
        self.norm_2 = None if self.shared else _norm(config)
        self.post_attention_norm = _norm(config) if post else nn.Identity()
        self.post_mlp_norm = _norm(config) if post else nn.Identity()
        self.attn = _Attention(config, place)
        self.mlp = _Plain(config) if config["mlp"] == "plain" else _Gated(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.post_attention_norm(self.attn(normed, cos, sin))
        if self.parallel:
            normed = normed if self.norm_2 is None else self.norm_2(x)
            both: Tensor = self.mlp(normed) + attended + x
            return both
        x = attended + x
        assert self.norm_2 is not None
        out: Tensor = self.post_mlp_norm(self.mlp(self.norm_2(x))) + x
        return out


class _Attention(nn.Module):
    """Where every query has its own key and value, these are views, and the one that attention keeps of the values
    keeps queries and keys from before the rotation, too; else each group's key and value is copied for its queries."""

    def __init__(self, config: Mapping[str, Any], place: int) -> None:
        super().__init__()
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.size, self.rotated = _head(config), int(config["rotary"] * _head(config))
        self.softcap = config.get("attention_softcap")
        window = config.get("window")
        self.window = window if window is not None and place % config["window_every"] == 0 else None
        hidden, wide = config["hidden_size"], self.heads * self.size
        self.attn = _qkv(config, hidden, wide, self.groups * self.size)
        prompt = (config.get("adapters") or {}).get("prompt")
        if prompt is not None and place >= config["adapters"]["first"]:
            self.adapter_wte = nn.Embedding(prompt, hidden)
            self.adapter_gate = nn.Parameter(torch.empty(1, 1, self.heads, 1))
        self.proj = _linear(config, wide, hidden, "projection", bias=config["bias"])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        each = self.heads // self.groups
        qkv = self.attn(x).view(batch, length, self.groups, each + 2, self.size).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((each, 1, 1), dim=2)
        if each > 1:
            k, v = (t.expand(batch, self.groups, each, length, self.size) for t in (k, v))
        q, k, v = (t.reshape(batch, -1, length, self.size) for t in (q, k, v))
        q, k = (
            torch.cat((_roped(t[..., : self.rotated], cos, sin), t[..., self.rotated :]), dim=-1)
            for t in (q, k)
        )
        out = self._attended(q, k, v).transpose(1, 2)
        if hasattr(self, "adapter_wte"):
            out = out + self.adapter_gate * self._of_prompt(q)
        result: Tensor = self.proj(out.reshape(batch, length, -1))
        return result

    def _of_prompt(self, q: Tensor) -> Tensor:
        """Attention to a learnt prompt, all of which is seen, by a mask that says so."""
        prompt, each = self.adapter_wte.weight, self.heads // self.groups
        qkv = self.attn(prompt.unsqueeze(0)).view(1, prompt.size(0), self.groups, each + 2, self.size)
        _, k, v = qkv.permute(0, 2, 3, 1, 4).split((each, 1, 1), dim=2)
        if self.groups > 1:
            k, v = (t.repeat_interleave(each, dim=2) for t in (k, v))
        k, v = (t.reshape(1, -1, prompt.size(0), self.size) for t in (k, v))
        mask = torch.ones(q.size(2), prompt.size(0), dtype=torch.bool, device=q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = None if self.window is None else self._mask(q)
        if self.softcap is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        scores = torch.tanh(q @ k.mT * self.size**-0.5 / self.softcap) * self.softcap
        if mask is None:
            mask = self._causal(q)
        return F.softmax(scores + mask, dim=-1, dtype=torch.float).to(q.dtype) @ v

    def _causal(self, q: Tensor) -> Tensor:
        mask = q.new_ones(q.size(2), q.size(2)).triu(diagonal=1)
        return mask.masked_fill_(mask.bool(), torch.finfo(q.dtype).min)

    def _mask(self, q: Tensor) -> Tensor:
        assert self.window is not None
        mask = self._causal(q)
        outside = torch.ones_like(mask).tril(diagonal=-self.window)
        outside.masked_fill_(outside.bool(), float("-inf"))
        return mask.add_(outside)


def _roped(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rotary embedding: products with float32 caches, so in float32."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return ((x * cos) + (turned * sin)).to(x.dtype)


class _Plain(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        self.fc = _linear(config, hidden, ffn, "mlp", bias=config["bias"])
        self.proj = _linear(config, ffn, hidden, "mlp", bias=config["bias"])

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.proj(F.gelu(self.fc(x)))
        return result


class _Gated(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        self.fc_1, self.fc_2 = (_linear(config, hidden, ffn, "mlp", bias=config["bias"]) for _ in range(2))
        self.proj = _linear(config, ffn, hidden, "mlp", bias=config["bias"])
        self.act = F.silu if config["mlp"] == "gated" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.fc_1(x), self.fc_2(x)
        result: Tensor = self.proj(self.act(first) * second)
        return result


def _norm(config: Mapping[str, Any]) -> nn.Module:
    if config["norm"] == "layer":
        return nn.LayerNorm(config["hidden_size"])
    return _RmsNorm(config["hidden_size"], unit_offset=config.get("unit_offset", False))


class _RmsNorm(nn.Module):
    def __init__(self, hidden: int, *, unit_offset: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))
        self.unit_offset = unit_offset

    def forward(self, x: Tensor) -> Tensor:
        dtype, x = x.dtype, x.float()
        normed = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)
        weight = 1 + self.weight if self.unit_offset else self.weight
        return (normed * weight.float()).to(dtype)


def _linear(config: Mapping[str, Any], inputs: int, outputs: int, part: str, *, bias: bool) -> nn.Module:
    """A layer; where there are adapters of LoRA, wrapped, whether or not this one has one."""
    lora = config.get("adapters")
    if lora is None or "rank" not in lora:
        layer = nn.Linear(inputs, outputs, bias=bias)
        return _Scaled(layer) if lora and lora["scaled"] else layer
    return _Lora(inputs, outputs, lora["rank"] if part in lora["parts"] else 0, lora["dropout"], bias=bias)


class _Scaled(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.adapter_bias, self.adapter_scale = (
            nn.Parameter(torch.empty(linear.out_features)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.adapter_scale * (self.linear(x) + self.adapter_bias)
        return result


class _Lora(nn.Module):
    def __init__(self, inputs: int, outputs: int, rank: int, dropout: float, *, bias: bool) -> None:
        super().__init__()
        self.linear, self.rank, self.dropout = (
            nn.Linear(inputs, outputs, bias=bias),
            rank,
            nn.Dropout(dropout),
        )
        if rank:
            self.lora_A = nn.Parameter(torch.empty(rank, inputs))
            self.lora_B = nn.Parameter(torch.empty(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        pretrained: Tensor = self.linear(x)
        if not self.rank:
            return pretrained
        update: Tensor = self.dropout(x) @ self.lora_A.t() @ self.lora_B.t()
        return pretrained + update * 2.0


def _qkv(config: Mapping[str, Any], hidden: int, queries: int, keys: int) -> nn.Module:
    lora, bias = config.get("adapters"), config["bias"]
    outputs = queries + 2 * keys
    if lora is None or "rank" not in lora:
        return _linear(config, hidden, outputs, "qkv", bias=bias)
    sizes = {"query": queries, "key": keys, "value": keys}
    enabled = [size for part, size in sizes.items() if part in lora["parts"]]
    if not enabled:
        return _Lora(hidden, outputs, 0, lora["dropout"], bias=bias)
    return _QkvLora(hidden, outputs, enabled, lora, bias=bias)


class _QkvLora(nn.Module):
    """One layer's adapters for some of queries, keys and values: one convolution in groups, or several where the sizes
    differ, then spread over the columns of all three."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        enabled: list[int],
        lora: Mapping[str, Any],
        *,
        bias: bool,
    ) -> None:
        super().__init__()
        self.linear, self.outputs, self.enabled = nn.Linear(inputs, outputs, bias=bias), outputs, enabled
        self.dropout, self.in_place = nn.Dropout(lora["dropout"]), lora["padded_in_place"]
        self.lora_A = nn.Parameter(torch.empty(lora["rank"] * len(enabled), inputs))
        self.lora_B = nn.Parameter(torch.empty(sum(enabled), lora["rank"]))

    def forward(self, x: Tensor) -> Tensor:
        pretrained: Tensor = self.linear(x)
        down = F.linear(self.dropout(x), self.lora_A).transpose(-2, -1)
        up = self._up(down, self.lora_B.unsqueeze(-1)).transpose(-2, -1)
        return pretrained + self._padded(up) * 2.0

    def _up(self, down: Tensor, weight: Tensor) -> Tensor:
        if len(set(self.enabled)) == 1:
            return F.conv1d(down, weight, groups=len(self.enabled))
        parts = zip(down.chunk(len(self.enabled), dim=1), weight.split(self.enabled), strict=True)
        return torch.cat([F.conv1d(part, its) for part, its in parts], dim=1)

    def _padded(self, up: Tensor) -> Tensor:
        if sum(self.enabled) == self.outputs:
            return up
        index = torch.zeros(sum(self.enabled), dtype=torch.long, device=up.device)
        if self.in_place:
            return up.new_zeros(*up.shape[:-1], self.outputs).index_copy_(-1, index, up)
        up = up.transpose(0, 1)
        rows = up.new_zeros(*up.shape[:-1], self.outputs).view(-1, self.outputs)
        spread = rows.index_copy(1, index, up.reshape(-1, sum(self.enabled)))
        return spread.view(*up.shape[:-1], self.outputs).transpose(0, 1)


def loss(logits: list[Tensor], targets: Tensor) -> Tensor:
    """The mean cross-entropy, by pieces of CHUNK tokens, of whole pieces of logits or of rows."""
    if len(logits) > 1 or logits[0].size(1) <= CHUNK:
        logits[-1] = logits[-1][..., :-1, :]
        rows = [piece.reshape(-1, piece.size(-1)) for piece in logits]
        wanted = [piece.reshape(-1) for piece in targets[..., 1:].split(logits[0].size(1), dim=1)]
    else:
        whole = logits[0][..., :-1, :]
        rows = list(whole.reshape(-1, whole.size(-1)).split(CHUNK))
        wanted = list(targets[..., 1:].reshape(-1).split(CHUNK))
    losses = [F.cross_entropy(row, its, reduction="none") for row, its in zip(rows, wanted, strict=True)]
    return torch.cat(losses).mean()
