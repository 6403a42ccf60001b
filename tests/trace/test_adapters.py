"""LoRA and DoRA: names that exist, sizes, and published runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    LlamaConfig,
)

from batchfit.errors import BadInput
from batchfit.trace import Settings
from batchfit.trace.adapters import Lora, add_lora
from batchfit.trace.job import prepare
from batchfit.trace.phases import peaks
from tests.trace.same import on_cpu, sizes, two_micro_batches, without_data

pytestmark = pytest.mark.torch

GIB = 2**30


def small(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=500,
    )
    model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    return model


def llama_3_2_3b() -> nn.Module:
    """meta-llama/Llama-3.2-3B, from its published numbers."""
    config = LlamaConfig(
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=128256,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    return model


def test_adapters_are_float32_beside_16_bit_weights() -> None:
    with torch.device("meta"):
        model = add_lora(small(), Lora(8, ("q_proj", "v_proj")))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {p.dtype for p in trained.values()} == {torch.float32}
    # q: 128 -> 128, v: 128 -> 64, in each of two layers
    assert sum(p.numel() for p in trained.values()) == 2 * 8 * (128 + 128 + 128 + 64)


def test_all_linear_leaves_the_output_layer_out() -> None:
    with torch.device("meta"):
        model = add_lora(small(), Lora(8, ("all-linear",)))
    adapted = {name.split(".")[-4] for name, p in model.named_parameters() if p.requires_grad}
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_targets_left_out_are_pefts_choice() -> None:
    with torch.device("meta"):
        model = add_lora(small(), Lora(8))
    adapted = {name.split(".")[-4] for name, p in model.named_parameters() if p.requires_grad}
    assert adapted == {"q_proj", "v_proj"}


@pytest.mark.parametrize(
    "lora",
    [
        Lora(4, ("q_proj", "v_proj")),
        Lora(4, ("all-linear",), dropout=0.1, rslora=True),
        Lora(4, ("q_proj", "down_proj"), dora=True),
        Lora(4, ("q_proj",), bias="all", train=("lm_head",)),
    ],
)
def test_a_step_without_data_allocates_what_one_with_data_does(lora: Lora) -> None:
    def make() -> nn.Module:
        model = small()
        return add_lora(model, lora).to_empty(device=next(model.parameters()).device)

    tokens = torch.zeros(2, 16, dtype=torch.long)
    batch = {"input_ids": tokens, "labels": tokens}
    assert sizes(without_data(make, batch, two_micro_batches)) == sizes(
        on_cpu(make, batch, two_micro_batches)
    )


@pytest.mark.parametrize(
    ("lora", "published_reserved"),
    [
        (Lora(32, ("q_proj", "v_proj"), alpha=64), 20.744),
        (Lora(10, ("gate_proj", "up_proj", "down_proj"), alpha=20), 23.016),
        (Lora(32, ("q_proj", "v_proj"), alpha=64, dora=True), 22.867),
    ],
    ids=["lora", "lora on the MLP", "dora"],
)
def test_published_runs_of_llama_3_2_3b(lora: Lora, published_reserved: float) -> None:
    """PEFT's method comparison (MetaMathQA): batch 4 of 768 tokens, AdamW, gradients clipped. Its figure is the most
    that was reserved, in GiB."""

    def make_batch(count: int) -> dict[str, torch.Tensor]:
        tokens = torch.zeros(count, 768, dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens}

    job = prepare(llama_3_2_3b(), make_batch, Settings(lora=lora, max_grad_norm=1.0))
    peak = max(peaks(job.timeline(4, (1, 1))).values()) / GIB
    assert peak == pytest.approx(published_reserved, rel=0.02)
    assert peak <= published_reserved


def test_unknown_target_says_which_there_are() -> None:
    with pytest.raises(
        BadInput,
        match=r"^lora_targets: must name layers of LlamaForCausalLM: it has .*q_proj, k_proj.* \(or all-linear\); "
        r"you typed 'c_attn'$",
    ):
        add_lora(small(), Lora(8, ("q_proj", "c_attn")))


def test_no_default_targets_says_which_layers_there_are() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(4, 8)
            self.down = nn.Linear(8, 4)

    with pytest.raises(BadInput, match=r"^lora_targets: must name layers: .*Plain, which has up, down$"):
        add_lora(Plain(), Lora(2))


def classifier() -> nn.Module:
    return DistilBertForSequenceClassification(
        DistilBertConfig(dim=32, hidden_dim=64, n_heads=4, n_layers=2, vocab_size=96)
    )


def test_what_is_trained_whole_gets_no_adapter() -> None:
    """PEFT trains all whole whose paths end in the name, and can do so to no layer that has an adapter."""
    adapted = add_lora(classifier(), Lora(8, ("all-linear",), train=("classifier",)))
    trained = {path for path, parameter in adapted.named_parameters() if parameter.requires_grad}
    heads = {path for path in trained if "classifier" in path}
    assert {path.split(".modules_to_save")[0].rpartition(".")[2] for path in heads} == {
        "classifier",
        "pre_classifier",
    }
    assert not any("lora" in path for path in heads)
    assert all("lora" in path for path in trained - heads)


def test_a_layer_is_not_both_adapted_and_trained_whole() -> None:
    with pytest.raises(
        BadInput,
        match=r"^lora_targets: must not name what is trained whole; you gave pre_classifier, and classifier to be "
        r"trained$",
    ):
        add_lora(classifier(), Lora(8, ("q_lin", "pre_classifier"), train=("classifier",)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rank": 0}, r"^lora: must be a rank of 1 or more; you gave 0$"),
        ({"rank": 8, "dropout": 1.0}, r"^lora_dropout: must be from 0 to below 1; you gave 1.0$"),
        ({"rank": 8, "bias": "some"}, r"^lora_bias: must be one of none, all, lora_only; you gave 'some'$"),
    ],
)
def test_impossible_adapters_are_told(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Lora(**wrong)  # type: ignore[arg-type]
