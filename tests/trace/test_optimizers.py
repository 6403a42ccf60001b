"""Optimizers: their states are as documented, and a step allocates without data what it allocates with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.trace import trace
from batchfit.trace.gpu import Gpu
from batchfit.trace.optimizers import OPTIMIZERS, create_optimizer, documented_state_bytes
from batchfit.trace.timeline import ALLOC, FREE, Event, Timeline, rounded
from batchfit.trace.tracker import Tracker

pytestmark = pytest.mark.torch

#: Optimizers of PyTorch that choose between one parameter at a time and all at once.
MULTI_TENSOR = ("sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad")


class Small(nn.Module):
    """Parameters of every kind an optimizer tells apart: embedding, hidden matrix, output layer, norm, bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.hidden = nn.Linear(128, 1024)
        self.norm = nn.LayerNorm(1024)
        self.head = nn.Linear(1024, 1000, bias=False)

    def get_output_embeddings(self) -> nn.Module:
        return self.head


@contextmanager
def real() -> Iterator[Tracker]:
    tracker = Tracker()
    with tracker:
        yield tracker


def three_steps(
    name: str | Callable[..., Any],
    where: Callable[[], Any],
    device: str,
    dtype: torch.dtype,
    hyperparameters: dict[str, Any] | None = None,
) -> tuple[Timeline, int]:
    """The timeline of three steps with gradients of zeros, and the bytes of state documented."""
    with torch.device(device):
        model = Small().to(dtype)
    with where() as tracker:
        for parameter in model.parameters():
            tracker.adopt(parameter, "weights")
        optimizer = create_optimizer(name, model, hyperparameters=hyperparameters)
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            tracker.mark("optimizer", step)
            optimizer.step()
            tracker.mark("zero_grad", step)
            optimizer.zero_grad()
        documented = documented_state_bytes(name, optimizer) if isinstance(name, str) else 0
        tracker.close()
    return tracker.timeline, documented


def tensors(timeline: Timeline) -> list[Event]:
    """The births and deaths of more than a number: step counters are on the host in one run, not in the other."""
    return [
        e._replace(storage=0, stack=0) for e in timeline.events if e.kind in (ALLOC, FREE) and e.nbytes > 8
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_without_data_allocates_what_one_with_data_does(name: str, dtype: torch.dtype) -> None:
    options = {"foreach": True} if name in MULTI_TENSOR else None
    with_data, _ = three_steps(name, real, "cpu", dtype, options)
    without, _ = three_steps(name, Gpu("cpu").watched, "meta", dtype, options)
    assert tensors(without) == tensors(with_data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_are_as_documented(name: str, dtype: torch.dtype) -> None:
    timeline, documented = three_steps(name, Gpu().watched, "meta", dtype)
    alive = timeline.alive_at(len(timeline.events) - 1)
    kept = sum(
        nbytes
        for number, nbytes in alive.items()
        if timeline.categories[number] not in ("weights", "overhead")
    )
    maps = 1024 * OPTIMIZERS[name].options.get("states", 0) * (OPTIMIZERS[name].options.get("bits", 8) == 8)
    assert kept == documented + maps


@pytest.mark.parametrize(("name", "copies"), [("adagrad", 1), ("adamw", 2), ("momentum", 1), ("sgd", 0)])
def test_a_profile_has_states_that_are_made_with_the_optimizer(name: str, copies: int) -> None:
    model = nn.Linear(64, 32)
    states = trace(
        model, lambda b: (torch.zeros(b, 64),), loss=total, precision="fp32", optimizer=name
    ).states
    # Beside each parameter's copies, a step's count may be one number.
    assert states.optimizer_bytes - copies * states.weights_bytes in (0, 2 * 4)


def total(model: nn.Module, batch: tuple[torch.Tensor]) -> torch.Tensor:
    summed: torch.Tensor = model(batch[0]).sum()
    return summed


def peak_of_step(name: str) -> int:
    """The most bytes alive in the third step's update."""
    timeline, _ = three_steps(name, Gpu().watched, "meta", torch.float32)
    live = list(timeline.live())
    last = max(
        i for i, (e, _) in enumerate(live) if e.kind == 2 and timeline.marks[e.stack].phase == "optimizer"
    )
    return max(alive for _, alive in live[last:])


def parameter_bytes() -> int:
    with torch.device("meta"):
        return sum(rounded(4 * p.numel()) for p in Small().parameters())


def test_adamw_is_multi_tensor_as_on_cuda_and_holds_one_more_copy() -> None:
    # weights, gradients, two moments; the square roots of all second moments at once
    assert peak_of_step("adamw") == 5 * parameter_bytes()
    assert peak_of_step("adamw-fused") == 4 * parameter_bytes() + 6 * 512
    # the same, a parameter at a time: the largest one's square root and the quotient of that, and the one before's
    with torch.device("meta"):
        before, largest = list(Small().parameters())[-2:]
    assert (
        peak_of_step("adamw-single") == 4 * parameter_bytes() + 2 * 4 * largest.numel() + 4 * before.numel()
    )


def test_muon_leaves_embedding_and_output_layer_to_adamw() -> None:
    with torch.device("meta"):
        model = Small()
    optimizer = create_optimizer("muon", model)
    hidden = [p for group in optimizer.param_groups if group["hidden"] for p in group["params"]]
    assert [p.shape for p in hidden] == [(1024, 128)]


def test_own_factory_runs_as_on_cuda() -> None:
    def mine(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-4)

    timeline, _ = three_steps(mine, Gpu().watched, "meta", torch.float32)
    named, _ = three_steps("adamw", Gpu().watched, "meta", torch.float32)
    assert timeline.peak() == named.peak()


def test_bitsandbytes_keeps_states_of_the_same_sizes() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    for name, cls in (
        ("adamw-8bit", bitsandbytes.optim.AdamW8bit),
        ("lion-8bit", bitsandbytes.optim.Lion8bit),
    ):
        model = Small()
        theirs = cls(model.parameters())
        ours = create_optimizer(name, model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        theirs.step()
        ours.step()
        for parameter in model.parameters():
            assert sizes(theirs.state[parameter]) == sizes(ours.state[parameter])


def sizes(state: dict[str, Any]) -> dict[str, tuple[int, torch.dtype]]:
    """Sizes of what a parameter has for itself; the maps from 8 bits to numbers are shared by all."""
    return {
        key: (value.numel(), value.dtype)
        for key, value in state.items()
        if isinstance(value, torch.Tensor) and not key.startswith("qmap")
    }


def test_unknown_name_says_which_there_are() -> None:
    with pytest.raises(BadInput, match=r"^optimizer: must be one of sgd, .*adagrad; you typed 'adamx'$"):
        create_optimizer("adamx", Small())


def test_unknown_hyperparameter_says_which_there_are() -> None:
    with pytest.raises(BadInput, match=r"^optimizer: adamw takes lr, betas, .*; you gave moment=0.9$"):
        create_optimizer("adamw", Small(), hyperparameters={"moment": 0.9})


def test_factory_that_returns_something_else_is_told() -> None:
    def broken(parameters: Any) -> Any:
        return list(parameters)

    with pytest.raises(BadInput, match=r"to a torch.optim.Optimizer; .*broken returned list$"):
        create_optimizer(broken, Small())
