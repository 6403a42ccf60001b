"""Losses: the same number and gradients whichever way, and the memory each way takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, PretrainedConfig

from batchfit.errors import BadInput
from batchfit.trace.gpu import Gpu
from batchfit.trace.losses import LOSSES, rows_per_chunk, use_loss
from batchfit.trace.timeline import Timeline
from batchfit.trace.tracker import Tracker

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


def causal(config: PretrainedConfig, loss: str, device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    with torch.device(device):
        model: nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation="eager"
        )
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


def timeline(loss: str, device: str, micro_batch: int = 2, tokens: int = 32) -> Timeline:
    model = causal(CONFIGS["llama"], loss, "meta" if device != "real" else "cpu")
    gpu = Gpu("cpu" if device == "real" else device)
    with Tracker() if device == "real" else gpu.watched() as tracker:
        for parameter in model.parameters():
            tracker.adopt(parameter, "weights")
        for buffer in model.buffers():
            tracker.adopt(buffer, "buffers")
        for micro in range(2):
            ids = torch.zeros(micro_batch, tokens, dtype=torch.long)
            batch = {"input_ids": ids, "labels": ids.clone()}
            batch = batch if device == "real" else gpu.bring(batch)
            tracker.mark("forward", 0, micro)
            total = model(**batch).loss
            tracker.mark("backward", 0, micro)
            total.backward()
            del total
        tracker.close()
    return tracker.timeline


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_without_data_allocates_what_one_with_data_does(loss: str) -> None:
    with_data, without = timeline(loss, "real"), timeline(loss, "cpu")
    assert [a for _, a in without.live()] == [a for _, a in with_data.live()]


def test_fused_keeps_no_logits_and_full_keeps_most() -> None:
    peaks = {loss: timeline(loss, "cuda:0", 4, 512).peak() for loss in LOSSES}
    logits = 4 * 4 * 512 * VOCABULARY
    assert peaks["full"] - peaks["fused"] > 2 * logits
    assert peaks["full"] > peaks["chunked"] > peaks["fused"]


def test_fused_takes_rows_by_powers_of_two() -> None:
    # the example of Liger's comment: 4 x 4096 tokens, 32000 words, 4096 numbers a token
    assert rows_per_chunk(4 * 4096, 4096, 32000) == 2048
    assert rows_per_chunk(3 * 4096, 4096, 32000) == 2048
    assert rows_per_chunk(1, 4096, 32000) == 1


def test_unknown_loss_says_which_there_are() -> None:
    with pytest.raises(BadInput, match=r"^loss: must be one of full, chunked, fused; you typed 'cut'$"):
        causal(CONFIGS["llama"], "cut", "meta")


def test_model_without_output_layer_is_told() -> None:
    with pytest.raises(BadInput, match=r"^loss: fused needs a causal language model .*; Linear has none$"):
        use_loss(nn.Linear(2, 2), "fused")


def test_capped_logits_do_not_change_the_config_of_other_models() -> None:
    config = CONFIGS["gemma2, capped logits"]
    causal(config, "fused", "meta")
    assert config.final_logit_softcapping == 2.0
