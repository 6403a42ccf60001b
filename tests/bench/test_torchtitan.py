"""torchtitan's rows: what they ask by the code of their day, and the model and step that are traced for them."""

from __future__ import annotations

from typing import Any

import pytest

from batchfit.profile import MemoryProfile
from batchfit.sharding import FSDP
from bench.accuracy.families import torchtitan
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

ROW = {
    "model": "Llama-3-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336",
    "vocab": "128256", "seq_len": "8192", "micro_batch": "1", "n_gpus": "8", "gpu": "H100-96GB (HBM2e)",
    "parallelism": "FSDP2", "shard_stage": "ZeRO-3", "act_ckpt": "selective (per-op SAC)", "compile": "no",
    "metric": "max_memory_reserved", "outcome": "measured", "commit_or_version": "2025-02-06",
}  # fmt: skip

SMALL = {
    "model_type": "torchtitan-llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096,
}  # fmt: skip


def asked(**values: str) -> Question:
    return torchtitan.question(Row("TTN", "torchtitan", {**ROW, **values}))


def test_a_row_asks_for_the_code_of_its_day() -> None:
    early = asked(commit_or_version="2024-06-06").trace
    assert early["step"] == "torchtitan until June 2024"
    assert early["config"]["float_logits"]
    assert "allocator" not in early
    late = asked(commit_or_version="6fc499f6f (2025-08)", compile="yes").trace
    assert "step" not in late
    assert (late["compile"], late["allocator"]) == ("block", "expandable_segments:True")
    assert late["config"]["compiled_loss"]
    assert not late["config"]["own_norm"]


def test_the_loss_was_compiled_but_for_the_winter_of_2024() -> None:
    compiled = {
        month: asked(commit_or_version=month, compile="yes").trace["config"]["compiled_loss"]
        for month in ("2024-09-01", "2024-11-25", "2024-12 (torch 2.7 nightly)", "2025-02-27", "2025-04-02")
    }
    assert list(compiled.values()) == [False, True, False, False, True]


def test_shards_are_float32_and_computation_is_not() -> None:
    sharding = asked(shard_stage="ZeRO-2 (no reshard)").sharding
    assert isinstance(sharding, FSDP)
    assert (sharding.sharded_dtype, sharding.param_dtype, sharding.reduce_dtype) == ("fp32", "bf16", "fp32")
    assert not sharding.reshard_after_forward


@pytest.mark.parametrize(
    "values",
    [
        {"pp": "2"},
        {"model": "Qwen3-8B"},
        {"compile": "unstated"},
        {"notes": "Float8"},
        {"act_ckpt": "unstated"},
    ],
)
def test_rows_without_what_decides_are_not_asked(values: dict[str, str]) -> None:
    with pytest.raises(CannotExpress):
        asked(**values)


def traced(**settings: Any) -> MemoryProfile:
    pytest.importorskip("torch")
    from bench.accuracy.worker import answer

    trace = {"seq_len": 512, "weights": "bf16", "attention": "flash", "optimizer": "sgd", **settings}
    return MemoryProfile.from_json(answer(trace, (2,))["profile"])


def test_logits_that_are_a_variable_stay_until_the_next_ones_are_there() -> None:
    config = {**SMALL, "float_logits": True}
    deleted, kept = traced(config=config), traced(config=config, step="torchtitan until June 2024")
    logits = 2 * 512 * SMALL["vocab_size"] * 4  # type: ignore[operator]
    assert kept.peak(2, 1).allocated_bytes - deleted.peak(2, 1).allocated_bytes == logits


def test_a_compiled_loss_makes_no_float32_logits() -> None:
    eager, compiled = (
        traced(config={**SMALL, "compiled_loss": loss}, compile="block", checkpointing="full")
        for loss in (False, True)
    )
    logits = 512 * SMALL["vocab_size"] * 4  # type: ignore[operator]
    assert eager.activation_per_sample - compiled.activation_per_sample > logits


def test_every_second_block_recomputed_is_between_none_and_all() -> None:
    none, second, every = (traced(config={**SMALL, "recompute_every": n}) for n in (0, 2, 1))
    assert none.activation_per_sample > second.activation_per_sample > every.activation_per_sample
