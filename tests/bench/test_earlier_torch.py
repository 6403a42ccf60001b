"""What earlier versions of PyTorch kept for backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.accuracy.earlier_torch import keeping_as
from bench.accuracy.eras import era_path, era_torch, eras


def kept(version: str | None) -> list[tuple[int, ...]]:
    """The shapes of what a mean of squares keeps, as Llama's norm takes it."""
    shapes: dict[int, tuple[int, ...]] = {}

    def pack(tensor: Tensor) -> Tensor:
        shapes[tensor.untyped_storage().data_ptr()] = tuple(tensor.shape)
        tensors.append(tensor)
        return tensor

    tensors: list[Tensor] = []
    x = torch.randn(2, 3, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), keeping_as(version):
        x.pow(2).mean(-1, keepdim=True)
    return list(shapes.values())


@pytest.mark.parametrize(
    ("version", "count"), [("1.13.1", 2), ("2.1.2", 2), ("2.2.0", 1), ("2.10.0", 1), (None, 1)]
)
def test_a_mean_kept_its_input_before_2_2(version: str | None, count: int) -> None:
    assert kept(version) == [(2, 3, 4)] * count
    assert kept(None) == [(2, 3, 4)]


@pytest.mark.parametrize(
    "given",
    [{}, {"dim": 0}, {"dim": -1, "keepdim": True}, {"dim": (0, -1)}, {"dim": (1, 2), "dtype": torch.float64}],
    ids=str,
)
def test_the_mean_and_its_gradient_stay_right(given: dict[str, Any]) -> None:
    x = torch.randn(2, 3, 4)

    def gradient() -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        mean = leaf.mean(**given)
        (mean * torch.arange(1, mean.numel() + 1).view_as(mean)).sum().backward()
        assert leaf.grad is not None
        return mean, leaf.grad

    expected = gradient()
    with keeping_as("2.1.2"):
        for ours, theirs in zip(gradient(), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_eras_name_a_pytorch_where_it_counts() -> None:
    assert {era: era_torch(era) for era in eras() if era_torch(era)} == {
        "transformers-4.36-torch-2.1": "2.1.2"
    }


def test_eras_of_the_same_packages_are_installed_once() -> None:
    assert era_path("transformers-4.36-torch-2.1") == era_path("transformers-4.36")
    assert len({era_path(era) for era in eras()}) == len(eras()) - 1
