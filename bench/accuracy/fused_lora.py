"""Adapters over quantised attention as fms-acceleration's plugin fuses them: queries, keys and values in one function.

What each of its functions keeps for backward are its input, the adapters' weights and the input after each dropout.
Source: foundation-model-stack/fms-acceleration, plugins/fused-ops-and-kernels/src/fms_acceleration_foak,
`fused_ops/unsloth_lora/{bnb,gptq}/fast_lora.py` (`LoRA_QKV`, `LoRA_W`) and `models/utils.py` (`build_lora_fused_ops`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from batchfit.trace.gptq import LinearGptq


def fuse(model: nn.Module, *, masked: bool) -> None:
    """Makes the adapters on attention's layers compute so. `masked`: backward multiplies by what dropout left, as it
    does since October 2024."""
    for module in model.modules():
        attention: list[Any] = [getattr(module, name, None) for name in ("q_proj", "k_proj", "v_proj")]
        if all(hasattr(layer, "lora_A") for layer in attention):
            group = _Group(attention, masked)
            for layer in attention:
                _join(layer, group)
        out = getattr(module, "o_proj", None)
        if hasattr(out, "lora_A"):
            _join(out, _Group([out], masked))


def _join(layer: Any, group: _Group) -> None:
    layer.__class__ = _joined(type(layer))
    layer.fused_group = group


#: By the class of a layer, that of one in a group: one for all layers of a kind, as blocks whose layers are each of a
#: class of their own are not alike.
_JOINED: dict[type[Any], type[Any]] = {}


def _joined(kind: type[Any]) -> type[Any]:
    if kind not in _JOINED:
        _JOINED[kind] = type(kind.__name__, (kind,), {"forward": _of_group})
    return _JOINED[kind]


def _of_group(self: Any, x: Tensor) -> Tensor:
    return self.fused_group.take(self, x)  # type: ignore[no-any-return]


class _Group:
    """Layers whose results are computed when the first is called, and kept until each has taken its own."""

    def __init__(self, layers: list[Any], masked: bool) -> None:
        self.layers, self.masked = layers, masked
        self.results: dict[nn.Module, Tensor] = {}

    def take(self, layer: nn.Module, x: Tensor) -> Tensor:
        if not self.results:
            weights = [w for each in self.layers for w in _adapter(each)]
            self.results = dict(zip(self.layers, _FusedLora.apply(x, self, *weights), strict=True))  # type: ignore[no-untyped-call]
        return self.results.pop(layer)


def _adapter(layer: Any) -> tuple[Tensor, Tensor]:
    name = layer.active_adapters[0]
    return layer.lora_A[name].weight, layer.lora_B[name].weight


def _scale(layer: Any) -> float:
    return float(layer.scaling[layer.active_adapters[0]])


class _FusedLora(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: _Group, *adapters: Tensor) -> tuple[Tensor, ...]:
        rows = x.view(-1, x.size(-1))
        # Over GPTQ's layers all weights are made first, over bitsandbytes' each for its product.
        first = isinstance(_base(group.layers[0]), LinearGptq)
        made = [_base(layer).dequantize() for layer in group.layers] if first else None
        results, dropped = [], []
        for index, layer in enumerate(group.layers):
            weight = made[index] if made else _base(layer).dequantize()
            out = rows @ weight.to(x.dtype).t()
            if not made:
                del weight
            kept = layer.lora_dropout[layer.active_adapters[0]](rows)
            a, b = _adapter(layer)
            out += (kept @ a.t().to(x.dtype)) @ (_scale(layer) * b.t().to(x.dtype))
            results.append(out.view(*x.shape[:-1], -1))
            dropped.append(kept)
        ctx.group = group
        ctx.save_for_backward(x, *adapters, *dropped)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        layers = ctx.group.layers
        x, *saved = ctx.saved_tensors
        adapters, dropped = saved[: 2 * len(layers)], saved[2 * len(layers) :]
        dtype, masked = x.dtype, ctx.group.masked
        flat = [g.reshape(-1, g.size(-1)) for g in grads]
        of_adapters: list[Tensor] = []
        for index, layer in enumerate(layers):
            a, b = (w.to(dtype) for w in adapters[2 * index : 2 * index + 2])
            kept, grad = dropped[index], flat[index]
            d_a = kept.t() @ (grad @ b)
            d_b = (a @ kept.t()) @ grad
            d_a *= _scale(layer)
            d_b *= _scale(layer)
            of_adapters += [d_a.t(), d_b.t()]
        # Over bitsandbytes' layers the gradient of three layers' input is written over the input itself.
        over = len(layers) > 1 and not isinstance(_base(layers[0]), LinearGptq)
        grad_x: Tensor | None = x.view(-1, x.size(-1)) if over else None
        for index, layer in enumerate(layers):
            a, b = (w.to(dtype) for w in adapters[2 * index : 2 * index + 2])
            weight = _base(layer).dequantize().to(dtype)
            if index == 0:
                grad_x = torch.mm(flat[0], weight, out=grad_x) if over else flat[0] @ weight
            else:
                grad_x += flat[index] @ weight
            del weight
            if masked:
                grad_x += (dropped[index] != 0) * (flat[index] @ b @ (_scale(layer) * a))
            else:
                grad_x += flat[index] @ b @ (_scale(layer) * a)
        assert grad_x is not None
        return grad_x.view(x.shape), None, *of_adapters


def _base(layer: Any) -> Any:
    return layer.base_layer
