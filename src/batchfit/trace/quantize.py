"""Linear layers whose weights are kept in 4 or 8 bits, as bitsandbytes keeps and uses them, without its kernels; and
the replacement of a model's layers by these and others.

The values are not computed: storages, what is saved for backward and what is alive for how long are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from batchfit.errors import BadInput
from batchfit.trace.gptq import LinearGptq, is_packable
from batchfit.trace.layers import output_layer
from batchfit.trace.quantized_linear import QuantizedLinear

#: Weights that share one absmax, in NF4.
NF4_BLOCK = 64
#: Absmax values that share a second absmax, in double quantisation.
NESTED_BLOCK = 256
#: Activations of this size and more go through a 16-bit product, in LLM.int8() (its default threshold).
OUTLIER = 6.0


class Linear4bit(QuantizedLinear):
    """NF4: two weights a byte, a float32 absmax per 64; with `nested`, an 8-bit one and a float32 one per 256 of them.

    Forward and backward make a 16-bit copy of the whole weight for their product; nothing but the packed weight is
    saved for backward. Source: bitsandbytes 0.43 to 0.50, `functional.quantize_4bit`, `functional.QuantState`,
    `autograd.MatMul4Bit`, `nn.Linear4bit`. (Since 0.50 a fused kernel takes forward products of up to 1536 rows on
    some GPUs, without a copy; larger ones, and all of backward, make it.)
    """

    def __init__(self, layer: nn.Module, *, nested: bool = False) -> None:
        super().__init__(layer)
        count, device = self.weight.numel(), cast(Tensor, layer.weight).device
        blocks = -(-count // NF4_BLOCK)
        self.nested = nested
        #: The type that the weight was quantised from, in which it comes back before it is cast to the input's.
        self.quantized_dtype = self.compute_dtype
        self.weight = nn.Parameter(
            torch.empty(-(-count // 2), 1, dtype=torch.uint8, device=device), requires_grad=False
        )
        self.weight.unpacked_size = count  # type: ignore[attr-defined]
        self._constant("absmax", blocks, torch.uint8 if nested else torch.float32, device)
        self._constant("code", 16, torch.float32, device)
        if nested:
            self._constant("nested_absmax", -(-blocks // NESTED_BLOCK), torch.float32, device)
            self._constant("nested_code", 256, torch.float32, device)
            self._constant("offset", 1, torch.float32, device)

    def _constant(self, name: str, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.register_buffer(name, torch.empty(size, dtype=dtype, device=device), persistent=False)

    def dequantize(self) -> Tensor:
        return self.dequantizer()()

    def dequantizer(self) -> Callable[[], Tensor]:
        """What `dequantize` does to the tensors that the layer has now: where a compiled graph is captured, they are
        its own only in forward."""
        packed = cast(Tensor, self.absmax)
        offset = cast(Tensor, self.offset) if self.nested else None

        def dequantize() -> Tensor:
            absmax = packed
            if offset is not None:  # first the absmax: it is there while the weight is made
                absmax = torch.empty_like(absmax, dtype=torch.float32).add_(offset)
            return absmax.new_empty(self.out_features, self.in_features, dtype=self.quantized_dtype)

        return dequantize

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        out: Tensor = _Matmul4bit.apply(x.to(self.compute_dtype), bias, self)  # type: ignore[no-untyped-call]
        return out.to(x.dtype)


class _Matmul4bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layer: Linear4bit) -> Tensor:
        ctx.dequantize = layer.dequantizer()
        return F.linear(x, ctx.dequantize().to(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad_outputs[0]
        grad_x = torch.matmul(grad, ctx.dequantize().to(grad.dtype)) if ctx.needs_input_grad[0] else None
        grad_bias = grad.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        return grad_x, grad_bias, None


class Linear8bit(QuantizedLinear):
    """LLM.int8(): a weight of 8-bit rows with a float32 scale each; inputs are quantised row by row, too.

    Forward: a float16 copy of the input where it has another type, |input| and its outlier mask, the 8-bit input, a
    32-bit integer product, its float16 dequantisation. The input is kept for backward by the autograd node itself, not
    as a saved tensor, and so until the whole graph is gone. Backward makes a copy of the weight in the input's type.
    How many columns have outliers depends on the data: none here. Source: bitsandbytes 0.43 to 0.50,
    `autograd.MatMul8bitLt`, `backends/cuda/ops.py` (`int8_vectorwise_quant`, `int8_linear_matmul`, `int8_mm_dequant`),
    `nn.Linear8bitLt`.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        device = cast(Tensor, layer.weight).device
        packed = torch.empty(self.out_features, self.in_features, dtype=torch.int8, device=device)
        self.weight = nn.Parameter(packed, requires_grad=False)
        scales = torch.empty(self.out_features, dtype=torch.float32, device=device)
        self.register_buffer("SCB", scales, persistent=False)

    def dequantize(self) -> Tensor:
        return self.weight * cast(Tensor, self.SCB).unsqueeze(1) * (1 / 127)

    def copied(self, dtype: torch.dtype) -> Tensor:
        """The copy that backward makes for its product, in the input's type."""
        return self.weight.to(dtype, copy=True).mul_(cast(Tensor, self.SCB).unsqueeze(1).mul(1 / 127))

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is not None and self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        out: Tensor = _Matmul8bit.apply(x, self.bias, self)  # type: ignore[no-untyped-call]
        return out


class _Matmul8bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layer: Linear8bit) -> Tensor:
        ctx.layer = layer
        ctx.shape = x.shape
        x = x.reshape(-1, x.size(-1))
        quantised, scales = _quantize_rows(x.to(torch.float16))
        product = quantised.new_empty(x.size(0), layer.out_features, dtype=torch.int32)
        out = torch.empty_like(product, dtype=torch.float16)
        if bias is not None and bias.dtype != torch.float16:
            out.add_(bias)
        out = out.to(x.dtype)
        del quantised, scales, product
        # Held by the node, as bitsandbytes does: autograd frees what is saved with `save_for_backward` as it goes.
        ctx.kept = x if ctx.needs_input_grad[0] else None
        return out.reshape(*ctx.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad_outputs[0]
        grad_bias = grad.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        grad = grad.reshape(-1, grad.size(-1)).contiguous()
        grad_x = None
        if ctx.needs_input_grad[0]:
            weight = ctx.layer.copied(ctx.kept.dtype)
            grad_x = torch.matmul(grad.to(weight.dtype), weight).view(ctx.shape)
        return grad_x, grad_bias, None


def _quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """8-bit rows of `x`, float16 (rows, columns), and a float32 scale each; the mask of outliers comes and goes."""
    scales = x.new_empty(x.size(0), dtype=torch.float32)
    rows = torch.empty_like(x, dtype=torch.int8)
    outliers = x.abs() >= OUTLIER
    outliers.any(dim=0)
    return rows, scales


#: By name: from a linear layer to its quantised replacement.
QUANTIZERS: dict[str, Callable[[nn.Module], QuantizedLinear]] = {
    "nf4": Linear4bit,
    "nf4-double": lambda layer: Linear4bit(layer, nested=True),
    "int8": Linear8bit,
    "gptq-4bit": LinearGptq,
    "gptq-4bit-per-channel": lambda layer: LinearGptq(layer, group=None),
}
#: Those of GPTQ, which packs eight weights in an int32 and takes layers of whole int32s only.
_GPTQ = ("gptq-4bit", "gptq-4bit-per-channel")


def quantize(model: nn.Module, scheme: str) -> list[str]:
    """Replaces the linear layers of `model` in place, as transformers does when it loads a quantised one.

    The output layer stays as it is, and so do layers with a tied weight, and a model's last layer; embeddings and norms
    are never quantised. GPTQ leaves layers that cannot be packed, such as the routers of experts. Answers the paths of
    the layers replaced.

    Raises BadInput where the scheme is not known or the model has nothing to quantise.
    """
    if scheme not in QUANTIZERS:
        raise BadInput(
            "quantize",
            "must be one of {known}; you typed {typed}",
            known=", ".join(QUANTIZERS),
            typed=repr(scheme),
        )
    kept = _kept_as_they_are(model)
    layers = {
        path: m
        for path, m in model.named_modules()
        if path and _is_linear(m) and id(m.weight) not in kept and (scheme not in _GPTQ or is_packable(m))
    }
    if not layers:
        raise BadInput(
            "quantize",
            "needs linear layers besides the output layer; {model} has none",
            model=type(model).__name__,
        )
    for path, layer in layers.items():
        model.set_submodule(path, QUANTIZERS[scheme](layer))
    # What PEFT and the trainers look at to see that the base is quantised.
    setattr(model, "is_loaded_in_8bit" if scheme == "int8" else "is_loaded_in_4bit", True)
    if scheme in _GPTQ:
        model.quantization_method = "gptq"  # type: ignore[assignment]
    return list(layers)


def _is_linear(module: nn.Module) -> bool:
    """What transformers replaces: linear layers, subclasses such as Falcon's own among them, and its `Conv1D`."""
    if isinstance(module, QuantizedLinear):
        return False
    kind = type(module)
    return isinstance(module, nn.Linear) or (
        kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"
    )


def _kept_as_they_are(model: nn.Module) -> set[int]:
    """The weights, by id, that are not quantised (transformers, `quantizers.base.get_keys_to_not_convert`)."""
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    kept = {parameter for parameter, count in owners.items() if count > 1}
    for last in list(model.parameters())[-1:]:
        kept.add(id(last))
    head = output_layer(model)
    if head is not None:
        kept.add(id(head.weight))
    return kept


def prepare_for_training(model: nn.Module, *, checkpointing: bool = True) -> nn.Module:
    """PEFT's `prepare_model_for_kbit_training`, which those who train QLoRA call before they add adapters.

    It freezes the base, brings whatever is left in 16 bits (embeddings, norms, output layer) to float32 but for GPTQ,
    and turns activation checkpointing on.
    """
    from peft import prepare_model_for_kbit_training

    prepared: nn.Module = prepare_model_for_kbit_training(  # type: ignore[no-untyped-call]
        model, use_gradient_checkpointing=checkpointing
    )
    return prepared
