"""Grids of blogs and configurations that ran: what they ask, and what has no words."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from torch import nn

from batchfit.sharding import DDP, ZeRO
from bench.accuracy import timm_steps
from bench.accuracy.building import training
from bench.accuracy.families import figures, question
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row, read

ROWS = {row.id: row for row in figures(read()) if row.id.startswith("misc-")}


def changed(row_id: str, **changes: str) -> Row:
    row = ROWS[row_id]
    return Row(row.id, row.family, {**row.values, **changes})


def asked(row_id: str, **changes: str) -> Question:
    return question(changed(row_id, **changes))


def test_the_next_batch_failed_where_the_row_has_a_length() -> None:
    ran, failed = asked("misc-042"), asked("misc-042/next")
    assert (ran.measure, ran.micro_batch, failed.measure, failed.micro_batch) == ("fits", 128, "oom", 256)
    assert ran.key == failed.key
    # Which batch fails depends on the length, which this row does not have.
    assert ROWS["misc-025"].number("oom_bound") == 6
    assert "misc-025/next" not in ROWS


def test_weights_are_those_of_the_optimizer() -> None:
    amp, deepspeed = asked("misc-057"), asked("misc-059")
    assert (amp.trace["weights"], amp.trace["mixed"], amp.sharding) == ("fp32", "fp16", DDP())
    assert (deepspeed.trace["weights"], deepspeed.sharding) == ("fp16", ZeRO(stage=1))
    assert "mixed" not in deepspeed.trace
    pythia = asked("misc-081")
    assert pythia.trace["step"] == "gpt-neox"
    assert (pythia.trace["weights"], pythia.sharding) == ("fp16", ZeRO(stage=1, overlap_comm=True))
    assert (pythia.trace["attention"], pythia.trace["checkpointing"], pythia.replicas) == (
        "flash",
        "full",
        64,
    )


def test_quantised_weights_on_one_card() -> None:
    schemes = {row_id: asked(row_id).trace["quantize"] for row_id in ("misc-001", "misc-003", "misc-004")}
    assert schemes == {"misc-001": "int8", "misc-003": "nf4", "misc-004": "nf4"}
    assert asked("misc-001", precision="NF4 fp16 nested").trace["quantize"] == "nf4-double"
    assert asked("misc-007").trace["reentrant"]
    assert asked("misc-007").accumulation_steps == 4


def test_a_run_that_failed_at_any_length_is_asked_with_the_shortest() -> None:
    assert asked("misc-040").trace["seq_len"] == 2
    assert asked("misc-034").trace["seq_len"] == 128
    assert asked("misc-034").trace["frozen"] == "embeddings"
    with pytest.raises(CannotExpress, match="cut off"):
        asked("misc-015")


def test_layers_of_t5_are_halves_and_large_heads_are_wide() -> None:
    large, three_billion = (asked(row_id).trace["config"] for row_id in ("misc-034", "misc-040"))
    assert (large["num_layers"], large["d_kv"]) == (24, 64)
    assert (three_billion["num_layers"], three_billion["d_kv"]) == (24, 128)


@pytest.mark.parametrize(
    ("row_id", "changes", "reason"),
    [
        ("misc-051", {}, "the trial failed"),
        ("misc-033", {}, "offloading"),
        ("misc-082", {}, "tensor parallelism"),
        ("misc-028", {}, "precision, which is not published"),
        ("misc-030", {}, "different lengths"),
        ("misc-036", {}, "fairscale"),
        ("misc-058", {}, "without ZeRO"),
        ("misc-091", {}, "Muon"),
        ("misc-052/next", {}, "it was not tried"),
        ("misc-001", {"n_gpus": "2"}, "device_map"),
        ("misc-042", {"seq_len": ""}, "length is not published"),
        ("misc-042", {"model": "ViT"}, "no config is written for"),
        ("misc-114", {}, "length is not published"),
        ("misc-096", {"model": "DenseNet"}, "program is not published"),
    ],
)
def test_what_cannot_be_expressed_says_why(row_id: str, changes: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        asked(row_id, **changes)


def test_images_are_as_large_as_the_program_made_them() -> None:
    # The table says 224 of all models; the program of this one crops 299.
    assert asked("misc-111").trace == {"torchvision": "inception_v3", "image": 299, "program": "imagenet"}
    assert asked("misc-102").trace["timm"] == "xception"


def test_a_step_of_the_imagenet_program_holds_adams_states(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, weights: None) -> nn.Module:
        assert name == "linear"
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 1024, bias=False))

    models = ModuleType("torchvision.models")
    monkeypatch.setattr(models, "get_model", made, raising=False)
    for name, module in (("torchvision", ModuleType("torchvision")), ("torchvision.models", models)):
        monkeypatch.setitem(sys.modules, name, module)
    answer = timm_steps.answer({"torchvision": "linear", "image": 64, "program": "imagenet"}, (1,))
    weights = 4 * 3 * 64 * 64 * 1024
    # The weights, their gradient, two moments, and what Adam makes in its step.
    assert 4 * weights < answer["replays"]["1"]["allocated"] < 6 * weights


def test_frozen_embeddings_are_the_output_layer_too_where_it_is_tied() -> None:
    asked_of = asked("misc-034").trace
    small = {"d_model": 32, "d_ff": 64, "num_layers": 1, "num_heads": 2, "d_kv": 16, "vocab_size": 64}
    model = training({**asked_of, "config": {**asked_of["config"], **small}}).model
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["shared.weight"]
