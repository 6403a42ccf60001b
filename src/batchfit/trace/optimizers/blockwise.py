"""Optimizers with 8-bit states in blocks, as bitsandbytes keeps them, without its CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from batchfit.formulas.optimizer_state import BLOCK

#: Parameters with fewer elements keep float32 states.
SMALLEST_8BIT = 4096
#: States with at least so many elements are paged, in the paged variants.
SMALLEST_PAGED = 100_000


class BlockwiseOptimizer(Optimizer):
    """What a bitsandbytes optimizer allocates: its states, and nothing during the update.

    Source: bitsandbytes 0.43 to 0.50, `optim/optimizer.py` (`Optimizer1State`, `Optimizer2State`: `init_state`,
    `get_state_buffer`) and `backends/cuda/ops.py`: one kernel per parameter works in place and allocates
    nothing, so the values are left as they are here. Two quantisation maps of 256 float32 exist once per
    optimizer. Paged states live in CUDA managed memory, which PyTorch's allocator does not see: they are left out.

    states    1 (Lion) or 2 (AdamW) per parameter
    bits      8 or 32 per value
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        states: int = 2,
        bits: int = 8,
        paged: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.states = states
        self.bits = bits
        self.paged = paged
        self._wide: set[int] = set()
        self.maps: list[Tensor] = []

    def keep_float32(self, params: Iterable[Tensor]) -> None:
        """The states of these parameters stay in float32, as a trainer may ask for embeddings."""
        self._wide.update(id(p) for p in params)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step: states appear for parameters that have their first gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if not self.state[p]:
                        self._create_states(p)
                    p.grad = p.grad.contiguous()
        return loss

    def _create_states(self, p: Tensor) -> None:
        narrow = self.bits == 8 and p.numel() >= SMALLEST_8BIT and id(p) not in self._wide
        paged = self.paged and p.numel() >= SMALLEST_PAGED
        if narrow and not self.maps:
            self.maps = [torch.zeros(256, device=p.device) for _ in range(self.states)]
        state = self.state[p]
        state["step"] = 0
        for i in range(1, 0 if paged else self.states + 1):
            state[f"state{i}"] = torch.zeros_like(p, dtype=torch.uint8 if narrow else torch.float32)
        if narrow:
            for i in range(1, self.states + 1):
                state[f"absmax{i}"] = torch.zeros(-(-p.numel() // BLOCK), device=p.device)


def blockwise_state_bytes(
    *, states: int, bits: int = 8, paged: bool = False
) -> Callable[[nn.Parameter, dict[str, Any]], int]:
    """Bytes of state on the GPU for one parameter, from the sizes in bitsandbytes' documentation of its optimizers."""

    def count(p: nn.Parameter, group: dict[str, Any]) -> int:
        narrow = bits == 8 and p.numel() >= SMALLEST_8BIT
        values = 0 if paged and p.numel() >= SMALLEST_PAGED else p.numel() * (1 if narrow else 4)
        return states * (values + (4 * -(-p.numel() // BLOCK) if narrow else 0))

    return count
