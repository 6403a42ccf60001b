"""A person's own whole step: is its memory flat in the accumulation steps, and if not, why not?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from batchfit.errors import BadInput
from batchfit.trace import WholeStep
from batchfit.trace.gpu import Gpu
from batchfit.trace.own_step import Flatness, OwnStep
from batchfit.trace.run import trace
from batchfit.trace.timeline import rounded

pytestmark = pytest.mark.torch

WIDTH = 64


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH)).cuda()
    return model, torch.optim.AdamW(model.parameters())


def usual() -> WholeStep:
    model, optimizer = made()

    def step(micro_batch: int, accumulation_steps: int) -> None:
        total = 0.0
        for _ in range(accumulation_steps):
            x = torch.randn(micro_batch, WIDTH, device="cuda")
            loss = functional.mse_loss(model(x), x) / accumulation_steps
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        assert f"loss {total:.3f}" == "loss nan"

    return WholeStep(model, step)


def list_of_losses() -> WholeStep:
    model, optimizer = made()

    def step(micro_batch: int, accumulation_steps: int) -> None:
        losses = []
        for _ in range(accumulation_steps):
            x = torch.randn(micro_batch, WIDTH, device="cuda")
            losses.append(functional.mse_loss(model(x), x))
        torch.stack(losses).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return WholeStep(model, step)


def outputs_for_metrics() -> WholeStep:
    model, optimizer = made()

    def step(micro_batch: int, accumulation_steps: int) -> None:
        kept = []
        for _ in range(accumulation_steps):
            x = torch.randn(micro_batch, WIDTH, device="cuda")
            output = model(x)
            functional.mse_loss(output, x).backward()
            kept.append(output.detach())
        optimizer.step()
        optimizer.zero_grad()

    return WholeStep(model, step)


def losses_for_the_log() -> WholeStep:
    model, optimizer = made()

    def step(micro_batch: int, accumulation_steps: int) -> None:
        log = []
        for _ in range(accumulation_steps):
            x = torch.randn(micro_batch, WIDTH, device="cuda")
            loss = functional.mse_loss(model(x), x)
            loss.backward()
            log.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()

    return WholeStep(model, step)


def flatness(make: Callable[[], WholeStep]) -> Flatness:
    gpu = Gpu()
    with gpu.building():
        step = make()
    return OwnStep(step, gpu).flatness()


def test_the_usual_loop_is_flat() -> None:
    found = flatness(usual)
    assert found.flat
    assert found.holders == ()
    assert str(found) == "the step's memory does not depend on the number of accumulation steps"


def test_a_log_of_losses_is_nothing_to_speak_of() -> None:
    assert flatness(losses_for_the_log).flat


def test_a_list_of_losses_keeps_every_graph() -> None:
    found = flatness(list_of_losses)
    assert not found.flat
    assert found.deferred
    assert found.holders[0].code == "losses.append(functional.mse_loss(model(x), x))"
    # Of 8 samples: the hidden layer before and after its activation, and the result.
    kept = sum(holder.nbytes for holder in found.holders)
    assert kept >= 8 * 4 * (256 + 256 + WIDTH)
    assert found.growth_bytes >= kept
    assert "backward is put off" in str(found)
    assert [keeper.name for keeper in found.keepers] == ["losses"]
    assert str(found).endswith("`losses.append(functional.mse_loss(model(x), x))`")


def sum_of_losses() -> WholeStep:
    model, optimizer = made()

    def step(micro_batch: int, accumulation_steps: int) -> None:
        total = torch.zeros((), device="cuda")
        for _ in range(accumulation_steps):
            x = torch.randn(micro_batch, WIDTH, device="cuda")
            loss = functional.mse_loss(model(x), x)
            total = total + loss
        total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return WholeStep(model, step)


def test_a_sum_of_losses_keeps_every_graph_too() -> None:
    found = flatness(sum_of_losses)
    assert found.deferred
    assert [(keeper.name, keeper.code) for keeper in found.keepers] == [("total", "total = total + loss")]


def test_outputs_kept_for_metrics_are_named() -> None:
    found = flatness(outputs_for_metrics)
    assert not found.flat
    assert not found.deferred
    assert [holder.code for holder in found.holders] == ["output = model(x)"]
    assert [(keeper.name, keeper.code) for keeper in found.keepers] == [
        ("kept", "kept.append(output.detach())")
    ]
    assert found.growth_bytes == found.holders[0].nbytes == 8 * 4 * WIDTH


def test_the_profile_of_an_own_step_is_that_of_the_same_step_by_us() -> None:
    own = trace(usual)

    def batch(b: int) -> torch.Tensor:
        return torch.randn(b, WIDTH, device="cuda")

    ours = trace(
        made()[0].cpu() if torch.cuda.is_available() else _on_cpu(), batch, loss=_loss, precision="fp32"
    )
    assert own.states == ours.states
    assert own.affinity.affine
    assert own.peak(4).parts["optimizer"] == ours.peak(4).parts["optimizer"]
    assert own.activation_per_sample == pytest.approx(ours.activation_per_sample, rel=0.3)
    assert "the step's memory does not depend on the number of accumulation steps" in own.assumptions


def _on_cpu() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))


def _loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(model(x), x)


def test_a_deferred_step_says_so_in_its_profile() -> None:
    said = trace(list_of_losses).assumptions[0]
    assert said.startswith("each further accumulation step adds ")
    assert "test_own_step.py:" in said


def test_a_step_around_a_live_model_is_refused() -> None:
    model = nn.Linear(2, 2)

    def around() -> WholeStep:
        return WholeStep(model, lambda b, a: None)

    with pytest.raises(
        BadInput, match=r"^model: has weights already, .*give the function that makes model and step"
    ):
        trace(around)


def test_optimizer_bytes_of_an_own_step() -> None:
    profile = trace(usual)
    parameters = list(_on_cpu().parameters())
    ((constant,), _) = profile.phases["optimizer_step"][-1].parts["optimizer"]
    # Two moments, and foreach's one temporary.
    assert constant == 3 * sum(rounded(4 * p.numel()) for p in parameters)
