"""LoRA's parameters against those that PEFT prints and makes."""

from __future__ import annotations

import warnings

import pytest

from batchfit.formulas import lora
from batchfit.models import find_model
from tests.formulas.both import both

#: Modules in the order of the formulas: q, k, v, o and gate, up, down.
QV = (1, 0, 1, 0)
QKVO = (1, 1, 1, 1)
ALL = (1, 1, 1)
NONE = (0, 0, 0)
MODULES = ("q", "k", "v", "o", "gate", "up", "down")


def adapters(
    layers: int,
    hidden: int,
    key_value: int,
    intermediate: int,
    rank: int,
    attention: tuple[int, int, int, int],
    mlp: tuple[int, int, int] = NONE,
    gated: int = 1,
    separate: int = 1,
) -> int:
    """Parameters of all adapters, with queries as wide as the hidden size."""
    inside = both(lora.attention_adapters, rank, hidden, hidden, key_value, separate, *attention)
    outside = both(lora.mlp_adapters, rank, hidden, intermediate, gated, separate, *mlp)
    result: int = both(lora.trainable_parameters, layers, inside, outside)
    return result


@pytest.mark.parametrize(
    ("shape", "rank", "attention", "mlp", "published"),
    [
        # Llama 3.1 8B, rank 16: q, k, v, o; and all seven, as QLoRA recipes print it.
        ((32, 4096, 1024, 14336), 16, QKVO, NONE, 13_631_488),
        ((32, 4096, 1024, 14336), 16, QKVO, ALL, 41_943_040),
        # LLaMA 7B, rank 8, q and v: "trainable params: 4194304 || all params: 6742609920 || trainable%: 0.0622".
        ((32, 4096, 4096, 11008), 8, QV, NONE, 4_194_304),
        # LLaMA 7B, rank 64 on all linear layers, as in QLoRA (Dettmers et al. 2023).
        ((32, 4096, 4096, 11008), 64, QKVO, ALL, 159_907_840),
        # OPT 6.7B, rank 16, q and v: "trainable params: 8388608 || all params: 6666862592 || trainable%: 0.1258".
        ((32, 4096, 4096, 16384), 16, QV, NONE, 8_388_608),
        # mt0-large, rank 8, q and v of 24 + 24 + 24 attentions: "trainable params: 2359296".
        ((72, 1024, 1024, 2816), 8, QV, NONE, 2_359_296),
        # GPT-3 175B, rank 4 on q and v: 18.9 M, the paper's 4.7 M for r = 1 (Hu et al. 2021, table 6).
        ((96, 12288, 12288, 49152), 4, QV, NONE, 18_874_368),
        ((96, 12288, 12288, 49152), 1, QV, NONE, 4_718_592),
    ],
)
def test_as_many_as_published(
    shape: tuple[int, int, int, int],
    rank: int,
    attention: tuple[int, int, int, int],
    mlp: tuple[int, int, int],
    published: int,
) -> None:
    assert adapters(*shape, rank, attention, mlp) == published


def test_the_share_is_the_one_that_peft_prints() -> None:
    assert round(100 * both(lora.trained_share, 6_738_415_616, 4_194_304), 4) == 0.0622
    assert round(100 * both(lora.trained_share, 6_658_473_984, 8_388_608), 4) == 0.1258


def test_a_wide_projection_has_one_adapter() -> None:
    """Phi-4: queries, keys and values in one projection (5120 + 2·1280 wide), gate and up in another."""
    per_layer = (5120 + 7680) + (5120 + 5120) + (5120 + 2 * 17920) + (17920 + 5120)
    assert adapters(40, 5120, 1280, 17920, 16, QKVO, ALL, separate=0) == 40 * 16 * per_layer


def test_an_mlp_that_is_not_gated_has_no_gate() -> None:
    assert both(lora.mlp_adapters, 8, 768, 3072, 0, 1, 1, 1, 1) == 2 * 8 * (768 + 3072)


def test_what_training_adds() -> None:
    weights = both(lora.adapter_bytes, 13_631_488, 4)
    optimizer = both(lora.adapter_optimizer_bytes, weights)
    assert (
        both(lora.training_bytes, weights, both(lora.adapter_gradients_bytes, weights), optimizer)
        == 16 * 13_631_488
    )
    assert both(lora.full_training_bytes, 10**9, 4) == 12 * 10**9


def _parts(targets: list[str]) -> list[set[str]]:
    """The modules that each projection stands for: {"q", "k", "v"} for "qkv_proj"."""
    names = [target.removesuffix("_proj") for target in targets]
    return [set(name) if name == "qkv" else set(name.split("_")) for name in names]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "separate", "targets"),
    [
        ("llama-3.1-8b", 1, ["q_proj", "k_proj", "v_proj", "o_proj"]),
        ("qwen2.5-7b", 1, ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]),
        ("phi-4", 0, ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    ],
)
def test_peft_makes_as_many(name: str, separate: int, targets: list[str]) -> None:
    import json

    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    entry = find_model(name)
    assert entry is not None
    config = AutoConfig.for_model(**json.loads(entry.config.read_text(encoding="utf-8")))
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        adapted = get_peft_model(model, LoraConfig(r=16, target_modules=targets))
    made = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    q, k, v, o, gate, up, down = (int(any(module in part for part in _parts(targets))) for module in MODULES)
    expected = adapters(
        config.num_hidden_layers,
        config.hidden_size,
        config.num_key_value_heads * config.hidden_size // config.num_attention_heads,
        config.intermediate_size,
        16,
        (q, k, v, o),
        (gate, up, down),
        separate=separate,
    )
    assert made == expected
