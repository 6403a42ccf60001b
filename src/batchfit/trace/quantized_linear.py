"""What linear layers with packed weights have in common, whichever package packs them."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn


class QuantizedLinear(nn.Linear):
    """A frozen linear layer with a packed weight, in the place of `layer`.

    `layer` is an `nn.Linear` or a `Conv1D` of transformers, which is a linear layer with its weight transposed.
    """

    def __init__(self, layer: nn.Module) -> None:
        weight = cast(nn.Parameter, layer.weight)
        out_features, in_features = weight.shape if isinstance(layer, nn.Linear) else weight.shape[::-1]
        super().__init__(in_features, out_features, bias=False, device="meta")
        self.bias = cast("nn.Parameter", layer.bias)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        #: The type the weight had, which 4-bit layers compute in.
        self.compute_dtype = weight.dtype

    @property
    def W_q(self) -> Tensor:  # noqa: N802  (the name by which PEFT finds that a layer dequantises itself)
        return self.weight

    def dequantize(self) -> Tensor:
        """The weight, (out_features, in_features), as floating-point numbers: a new tensor each time."""
        raise NotImplementedError


def unpacked_size(p: Tensor) -> int:
    """How many numbers a parameter stands for, of which 4-bit weights have two in an element."""
    return getattr(p, "unpacked_size", p.numel())
