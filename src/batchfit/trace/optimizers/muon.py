"""Muon for hidden matrices and AdamW for everything else, in one optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from batchfit.errors import BadInput
from batchfit.trace.layers import output_layer


class MuonWithAdamW(Optimizer):
    """`torch.optim.Muon` on the groups marked `hidden`, `torch.optim.AdamW` on the others.

    Muon is for the matrices of hidden layers alone; embeddings, the output layer, norms and biases go to AdamW
    (documentation of `torch.optim.Muon`; K. Jordan, "Muon: An optimizer for hidden layers in neural networks").
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        if not hasattr(torch.optim, "Muon"):
            raise BadInput(
                "optimizer",
                "muon needs torch.optim.Muon, which PyTorch has since 2.9; this is {version}",
                version=torch.__version__,
            )
        hidden = [g for g in self.param_groups if g["hidden"]]
        rest = [g for g in self.param_groups if not g["hidden"]]
        self.parts: list[Optimizer] = []
        if hidden:
            self.parts.append(torch.optim.Muon(_bare(hidden), lr, weight_decay, momentum))
        if rest:
            self.parts.append(torch.optim.AdamW(_bare(rest), lr, weight_decay=weight_decay, foreach=True))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.state = self.state  # which `load_state_dict` makes anew
            part.step()
        return loss


def _bare(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"params": group["params"]} for group in groups]


def mark_hidden_matrices(model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each group in two, marked `hidden` or not: matrices, but for embeddings and the output layer."""
    outside = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = output_layer(model)
    if head is not None:
        outside.add(id(head.weight))
    marked = []
    for group in groups:
        for hidden in (True, False):
            params = [p for p in group["params"] if (p.ndim == 2 and id(p) not in outside) == hidden]
            if params:
                marked.append({**group, "params": params, "hidden": hidden})
    return marked
