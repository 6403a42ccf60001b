"""Published rows, and the questions that adapters make of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from batchfit.sharding import FSDP1
from bench.accuracy.families import ADAPTERS, figures, question
from bench.accuracy.question import MEASURES, CannotExpress, Question
from bench.accuracy.rows import Row, read

#: Measures that are a verdict.
JUDGED = ("fits", "oom", "bracket")

ROWS = {row.id: row for row in figures(read())}


def asked(row_id: str, **changes: str) -> Question:
    row = ROWS[row_id]
    return question(Row(row.id, row.family, {**row.values, **changes}))


@pytest.mark.parametrize(
    ("raw", "unit", "expected"),
    [
        ("11267745280", "bytes", 11_267_745_280),
        ("15116", "MiB", 15116 * 2**20),
        ("82.4", "GiB", round(82.4 * 2**30)),
        ("4.82 GB", "GB (1e9)", 4_820_000_000),
        ("2.478", "1e9", 2_478_000_000),
        ("", "GiB", None),
        ("OOM", "GB", None),
    ],
)
def test_figures_in_bytes(raw: str, unit: str, expected: int | None) -> None:
    assert Row("a", "f", {"mem_raw": raw, "mem_unit": unit}).measured_bytes == expected


def test_a_file_without_families_is_one_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("id,mem_raw\nx1,3\n")
    (tmp_path / "other.csv").write_text("id,source_family\nx2,torchtune\n")
    (tmp_path / "no_rows.csv").write_text("when,what\n1,2\n")
    assert [(row.id, row.family) for row in read(tmp_path)] == [("x2", "torchtune"), ("x1", "own")]


def test_every_row_has_a_question_or_a_reason() -> None:
    outcomes: Counter[str] = Counter()
    for row in ROWS.values():
        try:
            ask = question(row)
        except CannotExpress as reason:
            outcomes["reason"] += bool(str(reason))
            continue
        outcomes["question"] += 1
        assert ask.measure in MEASURES
        assert ask.micro_batch >= 1
        assert ask.sharding is None or ask.replicas > 1
        assert ask.measure not in JUDGED or ask.gpu or ask.room_bytes
        assert ask.measure in JUDGED or row.measured_bytes, row.id
    assert outcomes["question"] > 1200
    assert outcomes.total() == len(ROWS)


def test_every_family_of_the_data_has_an_adapter() -> None:
    known = {family for adapter in ADAPTERS for family in adapter.FAMILIES}
    assert {row.family for row in ROWS.values()} <= known
    with pytest.raises(CannotExpress, match="no adapter for the family elsewhere"):
        question(Row("x", "elsewhere", {}))


def test_a_full_run_on_one_gpu() -> None:
    ask = asked("FMS0003")
    assert ask.measure == "steady"
    assert ask.trace["config"]["model_type"] == "gpt_bigcode"
    assert ask.trace["seq_len"] == 2048
    assert "adapters" not in ask.trace
    assert (ask.micro_batch, ask.sharding, ask.era) == (4, None, "transformers-4.48")


def test_sharded_runs_in_mixed_precision_are_kept_in_float32() -> None:
    row = next(
        row
        for row in ROWS.values()
        if row.family.startswith("fms") and row["n_gpus"] == "2" and row["peft"] == "none"
        if "bf16=True" in row["precision"]
        and "framework=none" in row["notes"]
        and row["outcome"] == "measured"
        if not row["metric"].startswith("nvidia")
    )
    ask = question(row)
    assert ask.sharding == FSDP1(
        backward_prefetch="none", param_dtype="bf16", reduce_dtype="bf16", sharded_dtype="fp32"
    )
    assert ask.keeps_gradients
    assert ask.trace["autocast"] == "bf16"


def fms(**wanted: str) -> Row:
    """The first row of the family that begins with what is wanted in each column."""
    return next(
        row
        for row in ROWS.values()
        if row.family.startswith("fms") and all(row[key].startswith(value) for key, value in wanted.items())
    )


def test_libraries_are_those_of_a_runs_table() -> None:
    tables = {
        question(fms(url_or_path=f"scripts/benchmarks/refs/{table}.csv", commit_or_version=commit)).era
        for table, commit in (("a100_80gb", "c3a069c"), ("a100_80gb", "HEAD"), ("a100_80gb_granite", "HEAD"))
    }
    assert tables == {"transformers-4.39", "transformers-4.48", "transformers-4.45"}


@pytest.mark.parametrize(("commit", "computed_in"), [("ff14d4f", "bf16"), ("HEAD", None)])
def test_scenarios_say_the_mixed_precision_that_a_table_leaves_out(
    commit: str, computed_in: str | None
) -> None:
    row = fms(
        url_or_path="scripts/benchmarks/refs/a100_80gb_granite.csv", commit_or_version=commit, peft="none"
    )
    assert question(row).trace.get("autocast") == computed_in


def test_adapters_over_gptq_and_their_fused_kernels() -> None:
    row = fms(model="TheBloke/Llama-2-70B-GPTQ", n_gpus="2", notes="framework=accelerated-peft-autogptq-foak;",
              commit_or_version="HEAD", metric="max")  # fmt: skip
    ask = question(row)
    assert ask.trace["quantize"] == "gptq-4bit-per-channel"
    assert (ask.trace["kernels"], ask.trace["fused_lora"]) == (["norm", "rope", "loss"], "masked")
    # Fused adapters are left out of FSDP, and come to the GPU where the trainer's metrics do not look.
    assert ask.sharding == FSDP1(backward_prefetch="none", param_dtype="fp16", trained_whole=True)
    assert (ask.misses_trained, ask.keeps_gradients, ask.needs_era) == (True, False, True)


def test_a_device_is_asked_about_where_the_driver_told() -> None:
    assert question(fms(metric="nvidia-smi", notes="framework=none")).measure == "device"


def test_states_need_no_lengths() -> None:
    row = fms(seq_len="unpacked", metric="memory_allocated", model="mistralai/Mistral-7B-v0.1")
    assert question(row).measure == "steady"
    with pytest.raises(CannotExpress, match="lengths that are not published"):
        question(fms(seq_len="unpacked", metric="max", model="mistralai/Mistral-7B-v0.1"))


def test_a_notebook_row_has_two_figures() -> None:
    forward, backward = asked("fsdpqnb-031/forward"), asked("fsdpqnb-031/backward")
    assert (forward.measure, backward.measure) == ("after_forward", "after_backward")
    assert forward.key == backward.key
    assert forward.trace["holds_inputs"]
    assert ROWS["fsdpqnb-031/backward"].measured_bytes == 2_542_000_000


def test_adapters_by_their_experiment_and_by_what_the_result_says() -> None:
    row = next(r for r in ROWS.values() if "exp=vera/" in r["notes"] and r["metric"].startswith("max"))
    assert question(row).trace["adapters"]["peft"]["peft_type"] == "VERA"
    gone = {
        "peft_details": "peft_type=LORA; r=16; targets=q_proj+o_proj; trainable=; use_dora=True",
        "notes": "exp=lora/gone; mem fields:",
    }
    ask = asked(row.id, **gone)
    assert ask.trace["adapters"] == {"lora": {"rank": 16, "targets": ["q_proj", "o_proj"], "dora": True}}
    assert ask.group == "LoRA family"


@pytest.mark.parametrize(
    ("row_id", "changes", "reason"),
    [
        ("TTN001", {"pp": "2"}, "pipeline parallelism"),
        ("TTN001", {"offload": "activations"}, "activations offloaded to the host"),
        ("TTN001", {"n_gpus": ""}, "does not say its n_gpus"),
        ("TTN001", {"act_ckpt": "unstated"}, "does not say what was checkpointed"),
        ("TUN003", {"seq_len": "alpaca"}, "lengths that are not published"),
        ("FMS0003", {"notes": "framework=moe-scattermoe-granite-ep1"}, "layers of experts"),
    ],
)
def test_what_cannot_be_expressed_says_why(row_id: str, changes: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        asked(row_id, **changes)


def test_adapters_over_consumer_cards_are_units_of_fsdp1_or_whole_replicas() -> None:
    sharded, whole = question(ROWS["fsdpq-001"]), question(ROWS["fsdpq-043"])
    assert sharded.sharding == FSDP1()
    assert (sharded.trace["quantize"], sharded.trace["adapters"]["lora"]["rank"]) == ("nf4-double", 64)
    assert (sharded.trace["reentrant"], whole.trace["reentrant"]) == (True, False)
    assert (whole.sharding, whole.replicas, whole.measure) == (None, 2, "fits")


@pytest.mark.parametrize(
    ("changes", "checkpointing"),
    [
        (
            {"commit_or_version": "88a84d94d (2023-02-15)", "model": "MosaicGPT-7b", "act_ckpt": "none"},
            "full",
        ),
        (
            {"commit_or_version": "88a84d94d (2023-02-15)", "model": "MosaicGPT-1b", "act_ckpt": "none"},
            "none",
        ),
        ({"commit_or_version": "9fa3ceb9", "model": "MPT-7b", "act_ckpt": "none"}, "none"),
        ({"commit_or_version": "9fa3ceb9", "model": "MPT-7b", "act_ckpt": "full (per block)"}, "full"),
    ],
)
def test_models_of_one_readme_recompute_as_it_prints(changes: dict[str, str], checkpointing: str) -> None:
    assert asked("MPT0001", **changes).trace["checkpointing"] == checkpointing


def test_a_unit_that_is_not_known_gives_no_figure() -> None:
    assert Row("r", "f", {"mem_raw": "3", "mem_unit": "G (unspecified)"}).measured_bytes == 3 * 2**30
    assert Row("r", "f", {"mem_raw": "3", "mem_unit": "pages"}).measured_bytes is None
