"""Linear layers whose weights GPTQ packed in 4 bits, as AutoGPTQ and GPTQModel keep and train over them."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from batchfit.trace.quantized_linear import QuantizedLinear

#: Input features that share a scale and a zero point, as most published models have it.
GROUP = 128
#: Layers are packed by 32 features to either side.
_FEATURES = 32
#: 4-bit numbers in an int32.
_IN_INT32 = 8


def is_packable(layer: nn.Module) -> bool:
    """Whether a layer's sizes are multiples of 32, without which GPTQ's packages leave or refuse it."""
    weight = cast(nn.Parameter, layer.weight)
    return all(size % _FEATURES == 0 for size in weight.shape)


class LinearGptq(QuantizedLinear):
    """Eight 4-bit weights an int32; for each `group` of input features (None: for all of them) and each output a
    float16 scale and a 4-bit zero point; for each input feature its group's number, an int32.

    Forward and backward make a 16-bit copy of the whole weight for their product; nothing but what is packed is saved
    for backward. The packages keep all of it as buffers. Weights and zero points are parameters here, as those who
    train with FSDP make them, since it shards nothing else. Source: AutoGPTQ 0.7 and GPTQModel,
    `nn_modules/qlinear/qlinear_tritonv2.py` (`QuantLinear`) and `triton_utils/dequant.py` (`QuantLinearFunction`).
    """

    def __init__(self, layer: nn.Module, *, group: int | None = GROUP) -> None:
        super().__init__(layer)
        device = cast(Tensor, layer.weight).device
        inputs, outputs = self.in_features, self.out_features
        groups = 1 if group is None else -(-inputs // group)
        self.weight = _packed((inputs // _IN_INT32, outputs), device)
        self.weight.unpacked_size = inputs * outputs  # type: ignore[attr-defined]
        self.qzeros = _packed((groups, outputs // _IN_INT32), device)
        self.qzeros.unpacked_size = 0  # type: ignore[attr-defined]
        scales = torch.empty(groups, outputs, dtype=torch.float16, device=device)
        self.register_buffer("scales", scales, persistent=False)
        group_of = torch.empty(inputs, dtype=torch.int32, device=device)
        self.register_buffer("g_idx", group_of, persistent=False)

    def dequantize(self) -> Tensor:
        return torch.empty(
            self.in_features, self.out_features, dtype=self.compute_dtype, device=self.weight.device
        ).t()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.size(-1)).to(self.compute_dtype)
        out: Tensor = _MatmulGptq.apply(rows, self)  # type: ignore[no-untyped-call]
        out = out.reshape(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias


def _packed(shape: tuple[int, int], device: torch.device) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=torch.int32, device=device), requires_grad=False)


class _MatmulGptq(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: LinearGptq) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.dequantize())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, None]:
        grad = grad_outputs[0]
        return (grad @ ctx.layer.dequantize().to(grad.dtype) if ctx.needs_input_grad[0] else None), None
