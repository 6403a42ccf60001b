"""timm's benchmark and GPUMemNet's measurements: what they ask, and the steps that are traced for them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, ClassVar

import pytest

from bench.accuracy.__main__ import _with_versions
from bench.accuracy.families import figures, left_out, question
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row, read
from bench.accuracy.scoring import score
from bench.accuracy.tracing import wanted

FAMILIES = ("timm train benchmark", "gpumemnet_timm_train")
ROWS = {row.id: row for row in figures(read()) if row.family in FAMILIES}


def row(model: str, ending: str = "", **changes: str) -> Row:
    """The newest row of a model in channels last, or GPUMemNet's at a batch of 8."""
    found = next(
        row
        for row in ROWS.values()
        if row["model"] == model and row.id.endswith(ending) and row["url_or_path"].count("nhwc-pt112")
    )
    return Row(found.id, found.family, {**found.values, **changes})


def test_a_bracket_is_a_batch_that_ran_and_the_next_one() -> None:
    ran, bracket = question(row("resnet152")), question(row("resnet152", "/bracket"))
    assert (ran.measure, ran.next_batch) == ("fits", None)
    assert (bracket.measure, bracket.micro_batch, bracket.next_batch) == ("bracket", ran.micro_batch, 256)
    assert ran.trace == bracket.trace
    assert ran.trace["memory_format"] == "channels_last"
    [trace] = wanted([ran, bracket])
    assert trace.micro_batches == (ran.micro_batch, 256)


def test_a_batch_that_was_the_first_tried_has_no_bracket() -> None:
    assert "TIMM00001" in ROWS
    assert "TIMM00001/bracket" not in ROWS


def test_models_are_chosen_by_name_alone() -> None:
    chosen = {r["model"] for r in ROWS.values() if r.family == FAMILIES[0] and left_out(r) is None}
    others = {r["model"] for r in ROWS.values() if r.family == FAMILIES[0]} - chosen
    assert len(others) > len(chosen) > 50
    for r in ROWS.values():
        if r.family == FAMILIES[0] and "-pt112-" in r["url_or_path"]:
            assert (left_out(r) is None) == (r["model"] in chosen)
    older = next(r for r in ROWS.values() if "-pt110-" in r["url_or_path"])
    assert "another version" in str(left_out(older))


def test_a_replay_judges_both_batches() -> None:
    fits, full = ({"allocated": 5, "reserved": 7, "fits": fits} for fits in (True, False))

    def judged(ending: str, at: Any, following: Any) -> bool | None:
        asked_row = row("resnet152", ending)
        ask = question(asked_row)
        replays = {str(ask.micro_batch): at, "256": following}
        return score(asked_row, ask, {"replays": replays}).right

    assert judged("", fits, full) is True
    assert judged("", full, full) is False
    assert judged("/bracket", fits, full) is True
    assert judged("/bracket", fits, fits) is False
    assert judged("/bracket", full, full) is False


def test_a_device_is_the_replay_and_the_context() -> None:
    measured = next(r for r in ROWS.values() if r.family == FAMILIES[1] and r["batch"] == "128")
    ask = question(measured)
    assert ask.beside_bytes == 1681 * 2**20
    replays = {"128": {"allocated": 10, "reserved": 20, "fits": True}}
    found = score(measured, ask, {"replays": replays})
    assert (found.low, found.high) == (10 + ask.beside_bytes, 20 + ask.beside_bytes)
    assert found.measured == int(float(measured["max_gpu_mem_MiB"])) * 2**20


def test_full_cards_and_other_cards_are_told_apart() -> None:
    full = next(r for r in ROWS.values() if r["censored"].startswith("yes"))
    with pytest.raises(CannotExpress, match="the card was full"):
        question(full)
    held = next(r for r in ROWS.values() if r.family == FAMILIES[1] and r["batch"] == "16")
    with pytest.raises(CannotExpress, match="the run had ended before"):
        question(
            Row(
                held.id,
                held.family,
                {**held.values, "max_gpu_mem_MiB": "1500", "faketensor_total_MB": "1600"},
            )
        )
    with pytest.raises(CannotExpress, match="known for an RTX 3090"):
        question(row("resnet152", gpu="RTX 4090"))
    with pytest.raises(CannotExpress, match="precision: float32"):
        question(row("resnet152", precision="float32"))
    with pytest.raises(CannotExpress, match="which batch failed"):
        question(row("resnet152", "/bracket", oom_bound="none"))


def test_what_needs_its_era_is_traced_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.accuracy.__main__.is_installed", lambda era: True)
    asked = row("resnet152")
    for which in ("today", "era", "both"):
        [(_, ask)] = _with_versions([(asked, question(asked))], which)
        assert isinstance(ask, Question)
        assert ask.era == "timm-0.6"


@pytest.fixture
def small_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timm with one model, and a torchvision with nothing."""
    from torch import nn

    class Net(nn.Module):
        default_cfg: ClassVar[dict[str, Any]] = {"input_size": (3, 64, 64)}

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.out = nn.Linear(8, 1000)

        def forward(self, x: Any) -> Any:
            return self.out(self.conv(x).mean((2, 3)))

    timm = ModuleType("timm")
    timm.create_model = lambda name: Net()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))


@pytest.mark.torch
@pytest.mark.usefixtures("small_timm")
def test_the_benchmarks_step() -> None:
    from bench.accuracy.timm_steps import answer

    asked = {
        "timm": "net",
        "image": 256,
        "program": "benchmark",
        "memory_format": "channels_last",
        "mixed": "fp16",
    }
    roomy = answer(asked, (64, 128))["replays"]
    assert all(found["fits"] for found in roomy.values())
    # A sample: its images in float32 and float16, and the convolution's output in float16.
    a_sample = (roomy["128"]["allocated"] - roomy["64"]["allocated"]) / 64
    assert a_sample == pytest.approx(256 * 256 * (3 * 4 + 3 * 2 + 8 * 2), rel=0.01)
    tight = answer({**asked, "capacity_bytes": roomy["64"]["reserved"]}, (64, 128))["replays"]
    assert [found["fits"] for found in tight.values()] == [True, False]


@pytest.mark.torch
@pytest.mark.usefixtures("small_timm")
def test_the_training_step_has_the_next_batch_there_already() -> None:
    from bench.accuracy.timm_steps import answer

    found = answer({"timm": "net", "program": "train"}, (512, 1024))["replays"]
    a_sample = (found["1024"]["allocated"] - found["512"]["allocated"]) / 512
    # Two batches of images and the convolution's output, of images of the model's own size, and logits.
    assert a_sample == pytest.approx(4 * (64 * 64 * (2 * 3 + 8) + 1000), rel=0.01)
