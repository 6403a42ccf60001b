"""Losses: the same number and gradients whichever way, and the memory each way takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, PretrainedConfig

from batchfit.errors import BadInput
from batchfit.trace.losses import LOSSES, rows_per_chunk, use_loss
from tests.trace.same import on_cpu, sizes, two_micro_batches, without_data

pytestmark = pytest.mark.torch

HIDDEN, VOCABULARY = 64, 1000
_SMALL: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "llama, tied": LlamaConfig(**_SMALL, tie_word_embeddings=True),
    "llama": LlamaConfig(**_SMALL),
    "gpt2": GPT2Config(
        n_embd=HIDDEN, n_layer=2, n_head=4, vocab_size=VOCABULARY, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
    "gemma2, capped logits": Gemma2Config(**_SMALL, head_dim=16, final_logit_softcapping=2.0),
}


def causal(config: PretrainedConfig, loss: str, attention: str = "eager") -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation=attention)  # type: ignore[no-untyped-call]
    use_loss(model, loss)
    return model.train()


def loss_and_gradients(
    config: PretrainedConfig, loss: str, **inputs: Any
) -> tuple[float, dict[str, torch.Tensor]]:
    model = causal(config, loss)
    ids = torch.randint(0, VOCABULARY, (3, 17), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, 5:] = -100
    total = model(input_ids=ids, labels=labels, **inputs).loss
    total.backward()
    return total.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("items", [None, 40])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("loss", ["chunked", "fused"])
def test_every_loss_is_the_models_own(loss: str, config: PretrainedConfig, items: int | None) -> None:
    inputs = {} if items is None else {"num_items_in_batch": torch.tensor(items)}
    expected, gradients = loss_and_gradients(config, "full", **inputs)
    got, ours = loss_and_gradients(config, loss, **inputs)
    assert got == pytest.approx(expected, rel=1e-6)
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(ours[name], gradient)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_without_data_allocates_what_one_with_data_does(loss: str) -> None:
    def make() -> nn.Module:
        return causal(CONFIGS["llama"], loss)

    tokens = torch.zeros(2, 32, dtype=torch.long)
    batch = {"input_ids": tokens, "labels": tokens}
    assert sizes(without_data(make, batch, two_micro_batches)) == sizes(
        on_cpu(make, batch, two_micro_batches)
    )


def test_fused_keeps_no_logits_and_full_keeps_most() -> None:
    samples, length = 4, 512
    tokens = torch.zeros(samples, length, dtype=torch.long)
    batch = {"input_ids": tokens, "labels": tokens}
    peaks = {}
    for loss in LOSSES:

        def make(loss: str = loss) -> nn.Module:
            return causal(CONFIGS["llama"], loss, "sdpa").bfloat16()

        peaks[loss] = without_data(make, batch, two_micro_batches, "cuda:0").peak()
    assert peaks["full"] - peaks["fused"] > 2 * (4 * samples * length * VOCABULARY)
    assert peaks["full"] > peaks["chunked"] > peaks["fused"]


def test_fused_takes_rows_by_powers_of_two() -> None:
    # the example of Liger's comment: 4 x 4096 tokens, 32000 words, 4096 numbers a token
    assert rows_per_chunk(4 * 4096, 4096, 32000) == 2048
    assert rows_per_chunk(3 * 4096, 4096, 32000) == 2048
    assert rows_per_chunk(1, 4096, 32000) == 1


def test_unknown_loss_says_which_there_are() -> None:
    with pytest.raises(BadInput, match=r"^loss: must be one of full, chunked, fused; you typed 'cut'$"):
        causal(CONFIGS["llama"], "cut")


def test_model_without_output_layer_is_told() -> None:
    with pytest.raises(BadInput, match=r"^loss: fused needs a causal language model .*; Linear has none$"):
        use_loss(nn.Linear(2, 2), "fused")


def test_capped_logits_do_not_change_the_config_of_other_models() -> None:
    config = CONFIGS["gemma2, capped logits"]
    causal(config, "fused")
    assert config.final_logit_softcapping == 2.0


def test_pieces_go_through_an_output_layer_with_an_adapter() -> None:
    peft = pytest.importorskip("peft")
    config = LlamaConfig(**_SMALL)
    with pytest.warns(FutureWarning):
        model = peft.get_peft_model(causal(config, "full"), peft.LoraConfig(r=4, target_modules=["lm_head"]))
    # Adapters begin with no effect; here they have one.
    nn.init.ones_(model.base_model.model.lm_head.lora_B["default"].weight)
    ids = torch.randint(0, VOCABULARY, (3, 17), generator=torch.Generator().manual_seed(1))
    whole = model(input_ids=ids, labels=ids).loss
    use_loss(model, "chunked")
    assert model(input_ids=ids, labels=ids).loss.item() == pytest.approx(whole.item(), rel=1e-5)
    with pytest.raises(BadInput, match="fused needs a causal language model"):
        use_loss(model, "fused")
