"""The script for real GPUs, as far as it goes without one: its configurations trace, its loop runs, it compares."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from bench.gpu import run
from bench.gpu.compare import compared, predicted, table
from bench.gpu.configurations import CONFIGURATIONS, MODELS, Configuration, _decoder
from bench.gpu.measure import measured

pytestmark = pytest.mark.torch

GIB = 2**30


def test_the_configurations_cover_what_is_asked() -> None:
    assert len({c.name for c in CONFIGURATIONS}) == len(CONFIGURATIONS) >= 15
    assert {c.accumulation_steps for c in CONFIGURATIONS} == {1, 2, 4}
    assert {c.checkpointing for c in CONFIGURATIONS} == {"none", "full"}
    assert {c.attention for c in CONFIGURATIONS} == {"sdpa", "eager", "flash"}
    assert {c.model for c in CONFIGURATIONS} == set(MODELS)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c.name)
def test_each_traces_and_fits_the_smallest_card_meant(configuration: Configuration) -> None:
    said = predicted(configuration)
    assert GIB < said["allocated_bytes"] <= said["reserved_bytes"] < 76 * GIB


@pytest.mark.parametrize("changes", [{}, {"checkpointing": "full"}, {"lora": 4}, {"precision": "bf16-mixed"}])
def test_the_loop_trains(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    monkeypatch.setitem(MODELS, "decoder-1b", lambda: _decoder(256, 2, 16, 100))
    small = Configuration("small", "decoder-1b", 2, 2, precision="fp32")
    assert measured(replace(small, **changes), device="cpu") == {}


def test_errors_are_relative_to_what_was_measured() -> None:
    said = {"allocated_bytes": 99, "reserved_bytes": 110}
    took = {"allocated_bytes": 100, "reserved_bytes": 100, "process_bytes": 150}
    assert compared(said, took) == pytest.approx(
        {"allocated": -0.01, "reserved": 0.10, "beside_reserved": 0.5}
    )
    assert set(compared(said, {**took, "process_bytes": None})) == {"allocated", "reserved"}


def test_results_are_kept_with_what_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    took = {"allocated_bytes": 2 * GIB, "reserved_bytes": 3 * GIB, "process_bytes": 4 * GIB}
    answers = iter([took, {"failed": "CUDA out of memory"}])
    monkeypatch.setattr(run, "_measured", lambda configuration, seconds: next(answers))
    monkeypatch.setattr(run, "predicted", lambda configuration: {**took, "allocated_bytes": GIB})
    monkeypatch.setattr(run, "_card", lambda: "NVIDIA Made Up 80GB")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: type("P", (), {"total_memory": 80}))
    assert run.main(["--only", "lora", "--results", str(tmp_path)]) == 1
    kept = json.loads((tmp_path / "nvidia-made-up-80gb.json").read_text(encoding="utf-8"))
    assert kept["runs"][0]["errors"]["allocated"] == -0.5
    assert kept["runs"][1] == {"name": "decoder 3B, LoRA, checkpointing", "failed": "CUDA out of memory"}
    assert "-50.00%" in table(kept["runs"])
    assert kept["versions"]["torch"]


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_card", lambda: None)
    assert run.main([]) == 2
    assert "no CUDA GPU" in capsys.readouterr().err
