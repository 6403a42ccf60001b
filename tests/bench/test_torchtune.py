"""torchtune's rows: what they ask, and the model and step that are traced for them."""

from __future__ import annotations

from typing import Any

import pytest

from batchfit.profile import MemoryProfile
from bench.accuracy.families import torchtune
from bench.accuracy.question import CannotExpress
from bench.accuracy.rows import Row

ROW = {
    "model": "Llama-3.1-8B", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336",
    "vocab": "128256", "seq_len": "2048", "micro_batch": "2", "n_gpus": "1", "gpu": "RTX 4090", "peft": "qlora",
    "optimizer": "AdamW", "act_ckpt": "full (probably)", "compile": "yes", "fit_quality": "packed to 2048",
}  # fmt: skip

SMALL = {
    "model_type": "torchtune-llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096,
}  # fmt: skip


def row(**values: str) -> Row:
    return Row("TUN", "torchtune", {**ROW, **values})


def test_a_row_asks_for_what_its_recipe_does() -> None:
    asked = torchtune.question(row()).trace
    assert asked["compile"] == "block"
    assert asked["optimizer"] == "adamw-fused"
    assert asked["config"]["nf4"]
    assert asked["config"]["recompute"]
    assert torchtune.question(row(peft="lora")).trace["adapters"]["own"]["targets"] == ["q_proj", "v_proj"]
    full = torchtune.question(row(peft="none", optimizer="PagedAdamW8bit + optimizer_in_bwd")).trace
    assert full["optimizer"] == "paged adamw-8bit in backward"


@pytest.mark.parametrize(
    "values", [{"fit_quality": "alpaca"}, {"optimizer": "unstated"}, {"model": "Gemma-2B"}, {"peft": "dora"}]
)
def test_rows_without_what_decides_are_not_asked(values: dict[str, str]) -> None:
    with pytest.raises(CannotExpress):
        torchtune.question(row(**values))


def traced(**asked: Any) -> MemoryProfile:
    pytest.importorskip("torch")
    from bench.accuracy.worker import answer

    trace = {"seq_len": 256, "weights": "bf16", "attention": "flash", "optimizer": "adamw-fused", **asked}
    return MemoryProfile.from_json(answer(trace, (2,))["profile"])


def test_an_update_in_backward_keeps_no_gradients() -> None:
    update = "paged adamw-8bit in backward"
    usual, in_backward = (traced(config=SMALL, optimizer=name) for name in ("sgd", update))
    assert in_backward.states.optimizer_bytes == in_backward.states.gradients_bytes == 0
    assert usual.states.gradients_bytes > 0


def test_adapters_over_4_bits_compile() -> None:
    lora = {"rank": 4, "targets": ["q_proj", "w1"]}
    plain, quantized = (
        traced(config={**SMALL, "nf4": nf4}, adapters={"own": lora}, compile="block") for nf4 in (False, True)
    )
    assert plain.model.trainable_parameters == quantized.model.trainable_parameters > 0
    assert quantized.states.weights_bytes < plain.states.weights_bytes
