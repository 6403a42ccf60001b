"""What depends on data and is taken for granted: experts that are chosen, masks of floating-point numbers, weights of
several types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from batchfit.trace import trace

pytestmark = pytest.mark.torch

WIDTH, EXPERTS, TOKENS = 32, 4, 16


class Experts(nn.Module):
    """Experts one by one, each with the tokens that chose it, as mixtures of experts were written for years."""

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(EXPERTS))
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(0, 1)
        weights, chosen = torch.topk(F.softmax(self.router(x), dim=-1), self.chosen, dim=-1)
        mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        out = torch.zeros_like(x)
        self.rows.clear()
        for number, expert in enumerate(self.experts):
            place, row = torch.where(mask[number])
            self.rows.append(len(row))
            out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
        return out.sum()


@pytest.mark.parametrize("chosen", [1, 2])
def test_tokens_are_spread_evenly_over_experts(chosen: int) -> None:
    seen: list[list[int]] = []

    def loss(model: Any, batch: Tensor) -> Tensor:
        out: Tensor = model(batch)
        seen.append(list(model.rows))
        return out

    profile = trace(
        Experts(chosen),
        lambda b: torch.randn(b, TOKENS, WIDTH),
        loss=loss,
        precision="fp32",
        micro_batches=(),
    )
    assert all(len(set(rows)) == 1 and sum(rows) % (chosen * TOKENS) == 0 for rows in seen)
    assert any("spread evenly" in said for said in profile.assumptions)


def test_nothing_is_assumed_of_a_model_without_experts() -> None:
    profile = trace(
        nn.Linear(WIDTH, WIDTH),
        lambda b: torch.randn(b, WIDTH),
        loss=lambda m, x: m(x).sum(),
        precision="fp32",
    )
    assert not any("spread evenly" in said or "several types" in said for said in profile.assumptions)


class Masked(nn.Module):
    """Joins a mask of ones that a library makes in floating point, and asks whether anything is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        whole = torch.cat((torch.ones(mask.size(0), 3).to(mask.device), mask), dim=1)
        out: Tensor = self.layer(x if bool((whole == 1).all()) else x * 2).sum()
        return out


def test_a_mask_of_ones_is_known_in_floating_point() -> None:
    trace(
        Masked(),
        lambda b: (torch.randn(b, WIDTH), torch.ones(b, 5, dtype=torch.long)),
        loss=lambda model, batch: model(*batch),
        precision="fp32",
    )


def test_weights_of_several_types_stay_what_they_are() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False).bfloat16(), nn.LayerNorm(WIDTH))

    def loss(model: Any, x: Tensor) -> Tensor:
        out: Tensor = model[1](model[0](x.bfloat16()).float()).sum()
        return out

    profile = trace(model, lambda b: torch.randn(b, WIDTH), loss=loss)
    assert profile.states.weights_bytes == 2 * WIDTH * WIDTH + 4 * 2 * WIDTH
    assert "the weights come in several types and are trained in these" in profile.assumptions
