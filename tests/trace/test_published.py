"""Runs that others published, traced from configs as they are published. Nothing here was fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchfit.trace import Lora
from batchfit.trace.run import trace

pytestmark = pytest.mark.torch

GIB = 2**30

LLAMA_3_1_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
LLAMA_3_2_3B = LLAMA_3_1_8B | {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "head_dim": 128,
    "tie_word_embeddings": True,
}
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}


def config(folder: Path, content: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_llama_3_1_8b_has_the_parameters_it_has(tmp_path: Path) -> None:
    profile = trace(config(tmp_path, LLAMA_3_1_8B), seq_len=1024)
    assert profile.model.parameters == 8_030_261_248
    assert profile.states.weights_bytes == 16_060_522_496
    assert profile.affinity.affine
    # Six for a parameter and token, of which two are forward; the embedding's are looked up.
    products = 6 * (8_030_261_248 - 128256 * 4096) * 1024
    assert profile.compute.step_flops[0] - profile.compute.attention_flops[0] == pytest.approx(
        products, rel=0.001
    )


def test_mistral_7b_whole_is_bound_by_the_optimizer_step(tmp_path: Path) -> None:
    """foundation-model-stack's benchmark, one A100: 67.460 and 67.461 GiB allocated at 4 and 8 samples."""
    profile = trace(config(tmp_path, MISTRAL_7B), seq_len=4096, checkpointing="full")
    for micro_batch in (4, 8):
        peak = profile.peak(micro_batch)
        assert peak.allocated_bytes / GIB == pytest.approx(67.4605, rel=0.0001)
        assert peak.binding_phase == "optimizer_step"
    states = profile.states
    workspaces = profile.peak(4).parts["overhead"]
    # The same benchmark's figure of what stays between steps.
    assert (states.total_bytes + workspaces) / GIB == pytest.approx(
        40.483 + states.gradients_bytes / GIB, rel=0.001
    )


def test_llama_3_2_3b_with_adapters(tmp_path: Path) -> None:
    """PEFT's method comparison: LoRA of rank 32 on queries and values, 4 samples of 768 tokens: 20.744 GiB reserved."""
    profile = trace(
        config(tmp_path, LLAMA_3_2_3B), seq_len=768, lora=Lora(32, ("q_proj", "v_proj"), alpha=64)
    )
    allocated = profile.peak(4).allocated_bytes / GIB
    assert allocated == pytest.approx(20.744, rel=0.02)
    assert allocated <= 20.75
