"""A trace is what a real run does: the same storages, of the same sizes, born and freed in the same order."""

from __future__ import annotations

import pytest

from batchfit.trace.job import trace_timeline
from batchfit.trace.settings import Settings
from batchfit.trace.timeline import MARK, Timeline
from tests.trace.models import MODELS
from tests.trace.real import real_timeline

pytestmark = pytest.mark.torch


def events(timeline: Timeline) -> list[object]:
    """What happened, storage by storage, with the marks in between and what each storage is for."""
    return [
        timeline.marks[event.stack]
        if event.kind == MARK
        else (event.kind, event.storage, event.nbytes, timeline.categories[event.storage])
        for event in timeline.events
    ]


@pytest.mark.parametrize("accumulation_steps", [1, 2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_a_trace_equals_a_real_run_byte_for_byte(name: str, accumulation_steps: int) -> None:
    model, batch = MODELS[name]()
    settings = Settings(precision="fp32")
    steps = (accumulation_steps, accumulation_steps)
    traced = trace_timeline(model, batch, 3, settings, steps=steps, shown="cpu")
    real = real_timeline(model, batch, 3, settings, steps)
    assert events(traced) == events(real)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(precision="bf16-mixed"),
        Settings(precision="fp32", max_grad_norm=1.0, set_to_none=False),
        Settings(precision="fp32", checkpointing="full"),
        Settings(precision="fp32", checkpointing="selective"),
        Settings(precision="bf16-mixed", checkpointing="full", ema=True),
    ],
    ids=lambda s: f"{s.precision}-{s.checkpointing}-{s.max_grad_norm}",
)
@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
def test_so_it_does_however_the_step_is_trained(name: str, settings: Settings) -> None:
    model, batch = MODELS[name]()
    traced = trace_timeline(model, batch, 2, settings, shown="cpu")
    real = real_timeline(model, batch, 2, settings, (1, 2))
    assert events(traced) == events(real)


def test_the_comparison_can_fail() -> None:
    model, batch = MODELS["gpt2"]()
    settings = Settings(precision="fp32")
    traced = trace_timeline(model, batch, 3, settings, steps=(1,), shown="cpu")
    real = real_timeline(model, batch, 2, settings, (1,))
    assert events(traced) != events(real)
