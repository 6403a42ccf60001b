"""Configs told by their shape: published ones, as transformers writes them, against the catalogue's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchfit.models import ModelEntry, load_models
from batchfit.shapes import nearest_shape

ENTRIES = [entry for entry in load_models() if entry.config.is_file()]


def config(name: str) -> dict[str, Any]:
    (entry,) = (entry for entry in ENTRIES if entry.name == name)
    data: dict[str, Any] = json.loads(entry.config.read_text("utf-8"))
    return data


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_model_of_the_catalogue_is_found_by_its_own_config(entry: ModelEntry) -> None:
    match = nearest_shape(config(entry.name))
    assert match is not None
    assert match.differences == ()
    assert config(match.entry.name) == config(entry.name) or match.entry == entry


def test_what_makes_no_tensor_sets_nothing_apart() -> None:
    published = config("llama-3.1-8b") | {
        "_name_or_path": "someone/finetuned",
        "torch_dtype": "float16",
        "transformers_version": "4.43.0",
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128009],
        "pretraining_tp": 1,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "max_position_embeddings": 8192,
        "rope_scaling": None,
        "head_dim": 128,
        "use_cache": True,
    }
    match = nearest_shape(published)
    assert match is not None
    assert (match.entry.name, match.differences) == ("llama-3.1-8b", ())


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"vocab_size": 128264}, "vocab_size"),
        ({"num_hidden_layers": 31}, "num_hidden_layers"),
        ({"attention_bias": True}, "attention_bias"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"head_dim": 64}, "head_dim"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
    ],
)
def test_what_makes_tensors_is_named(changed: dict[str, Any], key: str) -> None:
    match = nearest_shape(config("llama-3.1-8b") | changed)
    assert match is not None
    assert match.entry.name == "llama-3.1-8b"
    assert [each.key for each in match.differences] == [key]


def test_keys_that_are_left_out_stand_for_what_transformers_fills_in() -> None:
    llama2 = config("llama-2-7b")
    del llama2["num_key_value_heads"]  # as many as heads
    match = nearest_shape(llama2)
    assert match is not None
    assert match.differences == ()
    del llama2["tie_word_embeddings"]  # tied, which this model is not
    match = nearest_shape(llama2)
    assert match is not None
    assert [each.key for each in match.differences] == ["tie_word_embeddings"]


def test_positions_count_where_they_are_learned() -> None:
    match = nearest_shape(config("bert-base") | {"max_position_embeddings": 1024})
    assert match is not None
    assert [each.key for each in match.differences] == ["max_position_embeddings"]


@pytest.mark.parametrize(
    "data", [{"model_type": "of its own"}, {"model_type": 7}, {}, {"model_type": "llama"}]
)
def test_nothing_is_near_to_something_else(data: dict[str, Any]) -> None:
    assert nearest_shape(data) is None


def test_configs_that_transformers_writes_are_recognised() -> None:
    transformers = pytest.importorskip("transformers")
    names = (
        "llama-3.2-1b",
        "gpt2",
        "qwen3-30b-a3b",
        "mistral-7b",
        "vit-b-16",
        "t5-base",
        "pythia-1.4b",
        "gemma-2-2b",
    )
    for name in names:
        known = config(name)
        written = transformers.CONFIG_MAPPING[known["model_type"]].from_dict(known)
        for text in (written.to_json_string(use_diff=True), written.to_json_string(use_diff=False)):
            match = nearest_shape(json.loads(text))
            assert match is not None, name
            assert match.differences == (), name
