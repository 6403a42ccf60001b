"""The stand-ins for fused kernels: what they are put in the place of, and what they keep for backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import MistralConfig, MistralForCausalLM

from batchfit.trace.adapters import Lora, add_lora
from batchfit.trace.blocks import runs_of
from batchfit.trace.quantize import quantize
from bench.accuracy.fused_kernels import replaced
from bench.accuracy.fused_lora import fuse

pytestmark = pytest.mark.torch

TOKENS = torch.ones(2, 16, dtype=torch.long)


def mistral(layers: int = 2) -> nn.Module:
    return MistralForCausalLM(
        MistralConfig(
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=480,
        )
    )


def saved(run: Any) -> list[Tensor]:
    """The tensors kept for backward while `run` runs."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return kept


def nbytes(tensors: list[Tensor]) -> int:
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def test_a_norm_keeps_its_input_and_a_number_a_row() -> None:
    norm = mistral().model.layers[0].input_layernorm  # type: ignore[union-attr,index]
    x = torch.ones(2, 16, 128, requires_grad=True)
    with replaced("mistral", ["norm"]):
        kept = saved(lambda: norm(x))
        norm(x).sum().backward()
    assert nbytes(kept) == 4 * (2 * 16 * 128 + 128 + 2 * 16)
    assert x.grad is not None
    assert nbytes(kept) < nbytes(saved(lambda: norm(x)))


def test_cross_entropy_writes_its_gradient_over_the_logits() -> None:
    model = mistral()
    with replaced("mistral", ["loss"]):
        kept = saved(lambda: model(input_ids=TOKENS, labels=TOKENS).loss)
    plain = saved(lambda: model(input_ids=TOKENS, labels=TOKENS).loss)
    logits = 2 * 15 * 480 * 4
    assert nbytes(plain) - nbytes(kept) >= 0
    assert any(t.untyped_storage().nbytes() == logits for t in kept)


def test_with_the_output_layer_no_logits_stay() -> None:
    model = mistral()
    with replaced("mistral", ["linear-loss"]):
        kept = saved(lambda: model(input_ids=TOKENS, labels=TOKENS).loss.backward())
    assert not any(t.size(-1) == 480 and t.size(0) != 480 for t in kept if t.dim())


def test_models_are_as_before_afterwards() -> None:
    before = MistralForCausalLM.forward
    with replaced("mistral", ["norm", "rope", "linear-loss"]):
        assert MistralForCausalLM.forward is not before
    assert MistralForCausalLM.forward is before


@pytest.mark.parametrize("scheme", ["nf4-double", "gptq-4bit"])
@pytest.mark.parametrize("masked", [False, True])
def test_three_adapters_keep_one_input(scheme: str, masked: bool) -> None:
    model = mistral()
    quantize(model, scheme)
    adapted = add_lora(model, Lora(4, ("q_proj", "k_proj", "v_proj", "o_proj"))).to_empty(device="cpu")
    fuse(adapted, masked=masked)
    attention = adapted.base_model.model.model.layers[0].self_attn  # type: ignore[union-attr,index]
    x = torch.ones(2, 16, 128, requires_grad=True)
    results: list[Tensor] = []
    kept = saved(lambda: results.extend(attention.get_submodule(f"{name}_proj")(x) for name in "qkv"))
    assert [r.size(-1) for r in results] == [128, 64, 64]
    adapters = 4 * 4 * (3 * 128 + 128 + 64 + 64)
    assert nbytes(kept) == x.numel() * 4 + adapters  # without dropout the inputs are one
    sum(r.sum() for r in results).backward()  # type: ignore[union-attr]
    assert x.grad is not None
    assert attention.q_proj.lora_A["default"].weight.grad is not None


def test_fused_blocks_are_alike_so_that_few_are_traced() -> None:
    adapted = add_lora(mistral(6), Lora(4, ("q_proj", "k_proj", "v_proj", "o_proj")))
    fuse(adapted, masked=True)
    assert [run.copies for run in runs_of(adapted, 5)] == [6]
