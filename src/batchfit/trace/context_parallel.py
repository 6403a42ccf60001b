"""Context parallelism: a rank's share of every sequence, and attention to the keys and values of all ranks.

A model that is given 1/c of each sequence runs as it is, but for its attention.

Source: torch.distributed.tensor.experimental, `_context_parallel` (keys and values are all-gathered, the default of
`set_rotate_method` in torchtitan and what FlexAttention does always).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from batchfit.trace.tensor_parallel import TensorParallel


def attend_to_all(attention: nn.Module, ranks: int) -> None:
    """Makes a module's `scaled_dot_product_attention`, of [batch, heads, sequence / ranks, head], one of a rank's
    queries to the keys and values of all ranks: they are gathered along the sequence, and kept for backward."""
    base = type(attention)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _Gathering(ranks):
            return base.forward(self, *args, **kwargs)

    # A class and not a function of its own, which copies of the model would share.
    attention.__class__ = type(base.__name__, (base,), {"forward": forward})


class _Gathering(TorchFunctionMode):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self._whole = TensorParallel(ranks, sequence_dim=2)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        q, k, v = args
        return _attention(q, self._whole.entering(k), self._whole.entering(v))


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Which keys a query sees takes no memory; a mask of another shape than the scores' would."""
    with torch._C.DisableTorchFunction():
        return F.scaled_dot_product_attention(q, k, v)
