"""What PEFT puts around a quantised linear layer."""

from __future__ import annotations

from typing import Any, cast

import torch
from peft.tuners.lora import gptq
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn

from batchfit.trace.gptq import LinearGptq
from batchfit.trace.quantize import Linear4bit
from batchfit.trace.quantized_linear import QuantizedLinear


class QuantizedLora(Linear):
    """LoRA over a layer of bitsandbytes.

    It differs from LoRA over a plain layer in what it allocates: the result of a 4-bit layer is cloned, and outside
    autocast the input is cast to the adapter's type and the adapter's result back. Source: PEFT,
    `tuners/lora/bnb.py` (`Linear4bit.forward`, `Linear8bitLt.forward`).
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **kwargs)
        result: Tensor = self.base_layer(x, *args, **kwargs)
        if isinstance(self.base_layer, Linear4bit):
            result = result.clone()
        for name in self.active_adapters:
            if name not in self.lora_A:
                continue
            dtype = result.dtype
            converts = not torch.is_autocast_enabled()
            if converts:
                x = x.to(cast(Tensor, self.lora_A[name].weight).dtype)
            # DoRA and its like; PEFT before 0.16 has no variants.
            variant = getattr(self, "lora_variant", {}).get(name)
            if variant is not None:
                result = variant.forward(self, active_adapter=name, x=x, result=result, **kwargs)
                if converts:
                    result = result.to(dtype)
            else:
                update = self.lora_B[name](self.lora_A[name](self.lora_dropout[name](x))) * self.scaling[name]
                result = result + (update.to(dtype) if converts else update)
        return result


def as_over_quantized(model: nn.Module) -> None:
    """Makes adapters over quantised layers in `model`, which PEFT took for plain ones, do as over their packages'."""
    for module in model.modules():
        if type(module) is Linear and isinstance(module.base_layer, QuantizedLinear):
            if isinstance(module.base_layer, LinearGptq):
                module.__class__ = _over_gptq()
                module.quant_linear_module = module.base_layer
            else:
                module.__class__ = QuantizedLora


def _over_gptq() -> Any:
    """PEFT's own layer over GPTQ's, which needs nothing of its package; renamed in PEFT 0.15."""
    return getattr(gptq, "GPTQLoraLinear", None) or gptq.QuantLinear  # type: ignore[attr-defined]
