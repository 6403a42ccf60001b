"""Lion, the sign of a momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class Lion(Optimizer):
    """One momentum per parameter, in its type; while a parameter is updated, three more tensors of its size.

    The order of the operations, and with it the temporaries, is that of the authors' PyTorch code.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group)
        return loss

    def _update(self, p: torch.Tensor, group: dict[str, Any]) -> None:
        assert p.grad is not None
        state = self.state[p]
        if not state:
            state["exp_avg"] = torch.zeros_like(p)
        momentum = state["exp_avg"]
        beta1, beta2 = group["betas"]
        p.mul_(1 - group["lr"] * group["weight_decay"])
        update = (momentum * beta1 + p.grad * (1 - beta1)).sign_()
        p.add_(update, alpha=-group["lr"])
        momentum.mul_(beta2).add_(p.grad, alpha=1 - beta2)
