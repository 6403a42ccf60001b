"""What accumulating gradients costs, and what it does not."""

from __future__ import annotations

import pytest
import torch

from batchfit.trace.job import trace_timeline
from batchfit.trace.phases import peaks
from batchfit.trace.run import trace
from batchfit.trace.settings import Settings
from batchfit.trace.timeline import MARK, Timeline, rounded
from tests.trace.models import gpt2, llama

pytestmark = pytest.mark.torch


def peak(timeline: Timeline) -> int:
    """The peak of micro-batches: forward and backward."""
    found = peaks(timeline)
    return max(found["first_micro"], found.get("later_micro", 0))


def gradient_buffer(model: torch.nn.Module) -> int:
    return sum(rounded(p.numel() * p.element_size()) for p in model.parameters())


def test_two_steps_add_one_gradient_buffer_and_more_add_nothing() -> None:
    model, batch = gpt2()
    # The peak is the loss's, at the very beginning of backward, where the gradients of this micro-batch are not there.
    at = {a: peak(trace_timeline(model, batch, 256, Settings("fp32"), steps=(a, a))) for a in (1, 2, 4)}
    assert at[2] - at[1] == pytest.approx(gradient_buffer(model), rel=0.01)
    assert at[4] == at[2]


def test_adams_states_are_not_there_in_the_first_step() -> None:
    model, batch = gpt2()
    first = peak(trace_timeline(model, batch, 64, Settings("fp32"), steps=(1,), shown="cpu"))
    second = peak(trace_timeline(model, batch, 64, Settings("fp32"), steps=(1, 1), shown="cpu"))
    # On the CPU the counters of steps are beside the rest, in blocks of their own.
    assert second - first == 2 * gradient_buffer(model) + 512 * sum(1 for _ in model.parameters())


def buffers_before_backward(precision: str, micro_batch: int) -> int:
    """Bytes of buffers alive when backward begins, where autocast's copies are all there."""
    model, batch = llama()
    timeline = trace_timeline(model, batch, micro_batch, Settings(precision), steps=(1,))
    begins = next(
        index
        for index, event in enumerate(timeline.events)
        if event.kind == MARK and timeline.marks[event.stack].phase == "backward"
    )
    alive = timeline.alive_at(begins)
    return sum(nbytes for storage, nbytes in alive.items() if timeline.categories[storage] == "buffers")


def test_autocast_adds_a_constant_that_does_not_grow_with_the_batch() -> None:
    model, _ = llama()
    looked_up = {"model.embed_tokens.weight"}
    multiplied = [p for name, p in model.named_parameters() if p.dim() == 2 and name not in looked_up]
    for micro_batch in (2, 7):
        copies = buffers_before_backward("bf16-mixed", micro_batch) - buffers_before_backward(
            "fp32", micro_batch
        )
        assert copies == sum(2 * p.numel() for p in multiplied)


def test_only_foreach_keeps_a_copy_of_the_parameters_while_it_steps() -> None:
    model, batch = gpt2()

    def optimizer_bytes(name: str) -> tuple[int, int]:
        """While it steps and between steps."""
        profile = trace(model, batch, precision="fp32", optimizer=name)
        ((constant,), _) = profile.phases["optimizer_step"][-1].parts["optimizer"]
        return int(constant), profile.states.optimizer_bytes

    parameters = sum(p.numel() for p in model.parameters())
    foreach, foreach_states = optimizer_bytes("adamw")
    fused, fused_states = optimizer_bytes("adamw-fused")
    assert foreach_states == 2 * 4 * parameters
    assert foreach == 3 * gradient_buffer(model)
    # A fused step makes no temporaries, but counts each parameter's steps on the GPU, in blocks of 512 bytes.
    counters = sum(1 for _ in model.parameters())
    assert fused_states - foreach_states == 4 * counters
    assert fused == 2 * gradient_buffer(model) + 512 * counters


def test_an_average_of_the_weights_is_a_copy() -> None:
    model, batch = gpt2()
    plain, averaged = (trace(model, batch, precision="fp32", ema=ema).states for ema in (False, True))
    assert averaged.buffers_bytes - plain.buffers_bytes == averaged.weights_bytes


def test_the_live_model_is_left_as_it_was() -> None:
    model, batch = llama()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    training = model.training
    trace(model, batch, checkpointing="full", attention="eager")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None and not p.is_meta for p in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert model.training == training
    assert vars(model)["config"]._attn_implementation == "sdpa"


def test_tied_weights_are_counted_once() -> None:
    model, batch = gpt2()
    assert model.get_parameter("lm_head.weight") is model.get_parameter("transformer.wte.weight")
    profile = trace(model, batch, precision="fp32")
    assert profile.model.parameters == sum(p.numel() for p in model.parameters())
    assert profile.states.weights_bytes == 4 * profile.model.parameters
    assert sum(unit.count * unit.parameters for unit in profile.model.units) == profile.model.parameters
