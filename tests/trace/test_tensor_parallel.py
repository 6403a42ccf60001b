"""A rank of a divided model holds what it does under PyTorch's tensor parallelism, run over a group without peers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from batchfit.errors import BadInput
from batchfit.trace.tensor_parallel import TensorParallel, divide

HERE = Path(__file__).parent


class Pair(nn.Module):
    up: nn.Linear

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down(torch.relu(self.up(x)))
        return down


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_holds_what_it_does_under_pytorch(ranks: int) -> None:
    """In a process of its own, since a process group is one a process."""
    run = subprocess.run(
        [sys.executable, str(HERE / "tensor_parallel_real.py"), str(ranks)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    peaks = [tuple(map(int, line.split()[1:])) for line in run.stdout.splitlines()]
    assert len(peaks) == 3
    for whole, real, traced in peaks:
        assert real < 0.7 * whole
        assert abs(traced / real - 1) < 0.02, run.stdout


def test_shares_of_weights() -> None:
    with torch.device("meta"):
        model = Pair()
    divide(model, {"up": "colwise", "down": "rowwise"}, TensorParallel(4, sequence=False))
    assert [tuple(p.shape) for p in model.parameters()] == [(6, 12), (6,), (12, 6), (12,)]
    assert model(torch.empty(3, 5, 12, device="meta")).shape == (3, 5, 12)


def test_sequence_parallelism_divides_what_lies_outside() -> None:
    with torch.device("meta"):
        model = nn.Sequential(Pair())
    divide(model, {"0": "gather", "0.up": "colwise", "0.down": "rowwise"}, TensorParallel(4, sequence_dim=1))
    assert model(torch.empty(3, 5, 12, device="meta")).shape == (3, 5, 12)
    seen = []
    model.get_submodule("0.up").register_forward_hook(
        lambda _, inputs, result: seen.append((inputs[0].shape, result.shape))
    )
    model(torch.empty(3, 5, 12, device="meta"))
    assert seen == [((3, 20, 12), (3, 20, 6))]


@pytest.mark.parametrize(
    ("plan", "ranks", "message"),
    [
        ({"up": "rows"}, 2, "plan: must give colwise, rowwise, vocabulary, gather; you gave 'rows'"),
        ({"left": "colwise"}, 2, "plan: names left, and the model has no such module"),
        ({"up": "vocabulary"}, 2, "plan: divides up as vocabulary, which is for Embedding; it is a Linear"),
        ({"up": "colwise"}, 5, "degree: must divide the 24 of up.weight; you gave 5"),
    ],
)
def test_what_cannot_be_divided(plan: dict[str, str], ranks: int, message: str) -> None:
    with torch.device("meta"):
        model = Pair()
    with pytest.raises(BadInput) as refused:
        divide(model, plan, TensorParallel(ranks))
    assert str(refused.value) == message


def test_a_degree_is_a_whole_number() -> None:
    with pytest.raises(BadInput, match="degree: must be a whole number of 1 or more; you gave 0"):
        TensorParallel(0)
