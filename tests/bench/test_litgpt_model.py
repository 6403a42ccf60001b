"""litgpt's model, after what its own tables publish about it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

from batchfit.trace import trace  # noqa: E402
from bench.accuracy.building import training  # noqa: E402
from bench.accuracy.families import question  # noqa: E402
from bench.accuracy.litgpt_model import LitGpt, loss  # noqa: E402
from bench.accuracy.rows import Row, read  # noqa: E402
from bench.accuracy.scoring import profile_of  # noqa: E402
from bench.accuracy.worker import answer  # noqa: E402

pytestmark = pytest.mark.torch

ROWS = {row.id: row for row in read() if row.family.startswith("litgpt")}

#: Settings of a small decoder.
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "norm": "rms",
    "mlp": "gated",
    "bias": False,
    "head_bias": False,
    "rotary": 0.5,
}
LORA = {"rank": 2, "parts": ["query", "value"], "dropout": 0.0, "padded_in_place": True}


@pytest.mark.parametrize(
    ("row", "trainable"),
    [
        ("LIT001", 1_572_864),
        ("LIT006", 2_097_152),
        ("LIT011", 4_194_304),
        ("LIT016", 6_553_600),
        ("LIT021", 12_042_240),
        ("LIT024", 573_888),
        ("LIT027", 1_229_760),
        ("LIT030", 2_125_248),
        ("LIT033", 4_279_744),
    ],
)
def test_as_many_parameters_are_trained_as_litgpt_prints(row: str, trainable: int) -> None:
    model = training(question(ROWS[row]).trace).model
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trainable


@pytest.mark.parametrize("row", ["LIT001", "LIT008", "LIT011", "LIT066", "LIT070"])
def test_peaks_are_those_published(row: str) -> None:
    ask = question(ROWS[row])
    told = answer(ask.trace, (ask.micro_batch,))
    peak = profile_of(ask, told).peak(ask.micro_batch, ask.accumulation_steps)
    assert peak.allocated_bytes == pytest.approx(measured(ROWS[row]), rel=0.005)


def measured(row: Row) -> int:
    assert row.measured_bytes is not None
    return row.measured_bytes


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"adapters": LORA},
        {"adapters": {**LORA, "padded_in_place": False}},
        {"adapters": {**LORA, "parts": ["query", "key", "value", "projection", "mlp", "head"]}},
        {"adapters": {"prompt": 10, "first": 1, "scaled": False}},
        {"adapters": {"prompt": 10, "first": 1, "scaled": True}},
        {"norm": "layer", "mlp": "plain", "bias": True, "parallel": True, "num_key_value_heads": 4},
        {"norm": "layer", "mlp": "plain", "parallel": True, "shared_norm": True, "num_key_value_heads": 1},
        {"mlp": "gelu-gated", "unit_offset": True, "scaled_embeddings": True, "head_dim": 16},
        {
            "post_norms": True,
            "attention_softcap": 50.0,
            "logit_softcap": 30.0,
            "window": 8,
            "window_every": 2,
        },
    ],
)
def test_every_kind_of_model_runs_and_its_trained_weights_get_gradients(more: dict[str, Any]) -> None:
    model = LitGpt({**SMALL, **more}, 150)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    for buffer in model.buffers():
        buffer.fill_(0.5)
    ids = torch.randint(0, 96, (2, 150))
    found = loss(model(ids), ids)
    found.backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert torch.isfinite(found)
    assert trained
    assert all(p.grad is not None for p in trained)


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_loss_is_that_of_the_next_token(pieces: int) -> None:
    logits, ids = torch.randn(2, 150, 7), torch.randint(0, 7, (2, 150))
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    split = [logits] if pieces == 1 else list(logits.split(128, dim=1))
    assert loss(split, ids).item() == pytest.approx(expected.item(), rel=1e-5)


def test_caches_of_the_rotary_embedding_stay_float32() -> None:
    model = LitGpt(SMALL, 16).to(torch.bfloat16)
    assert (model.wte.weight.dtype, model.cos.dtype) == (torch.bfloat16, torch.float32)


def test_logits_of_the_micro_batch_before_are_there_in_forward_where_they_are_kept() -> None:
    asked = {
        "config": {"model_type": "litgpt", **SMALL, "vocab_size": 4096},
        "seq_len": 128,
        "weights": "bf16",
    }
    logits = 2 * 128 * 4096 * 4

    def peak(step: str) -> int:
        found = trace(training({**asked, "step": step}), precision="bf16", micro_batches=(2,))
        return max(line.at(2) for line in found.phases["optimizer_step"])

    assert peak("litgpt again") - peak("litgpt") == logits
