"""Adapters of PEFT that draw the places of their weights, on a model without weights."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from bench.accuracy.building import training  # noqa: E402
from bench.accuracy.worker import answer  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    # PEFT reads attributes that transformers has renamed since.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "tie_word_embeddings": True,
}
TARGETS = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
METHODS = {
    "WAVEFT": {"n_frequency": 20, "use_idwt": True, "wavelet_family": "db1", "random_loc_seed": 1, **TARGETS},
    "UNILORA": {"r": 2, "theta_d_length": 8, "proj_seed": 1, **TARGETS},
}


def asked(method: str) -> dict[str, Any]:
    adapters = {"peft": {"peft_type": method, **METHODS[method]}}
    return {"config": MODEL, "seq_len": 16, "weights": "bf16", "adapters": adapters}


@pytest.mark.parametrize("method", METHODS)
def test_places_are_numbers_while_weights_have_none(method: str) -> None:
    model: Any = training(asked(method)).model
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("method", METHODS)
def test_they_are_traced(method: str) -> None:
    assert "profile" in answer(asked(method), (2,))
