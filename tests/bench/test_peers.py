"""Other tools beside batchfit: what each is asked, and what it has no words for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from bench.accuracy import peers
from bench.accuracy.peers import accelerate, deepspeed, eleuther, megatron
from bench.accuracy.question import CannotExpress, Question

pytestmark = pytest.mark.torch

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}
#: The embedding and the output layer, and in each layer attention's four, the gated three and two norms; the last norm.
PARAMETERS = 2 * 64_000 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64


#: Elements of the rotary embedding's two buffers, which accelerate counts as weights.
ROTARY = 2 * 8


def ask(replicas: int, **trace: object) -> Question:
    return Question(
        {"config": CONFIG, "seq_len": 8, "weights": "bf16", **trace}, "g", "allocated", 1, replicas=replicas
    )


def test_accelerate_says_twice_the_float32_weights() -> None:
    """Adam's states, which it takes to be the most of a step, in mixed precision."""
    assert accelerate.peak(ask(1)) == 2 * 4 * (PARAMETERS + ROTARY)
    with pytest.raises(CannotExpress, match="more than one GPU"):
        accelerate.peak(ask(2))


def test_deepspeed_says_18_bytes_a_parameter_over_the_gpus() -> None:
    assert deepspeed.peak(ask(2)) == 4 * 64_000 + 9 * PARAMETERS
    with pytest.raises(CannotExpress, match="one GPU alone"):
        deepspeed.peak(ask(1))


def test_eleuther_says_16_bytes_a_parameter_and_34_a_token() -> None:
    parameters = 2 * 64_000 + 64 * 8 + 8 * 64 * 2 + 2 * 64 + 4 * 2 * 64 * 64 + 3 * 2 * 64 * 128
    held = 8 * 64 * 2 * 34
    assert eleuther.peak(ask(1, checkpointing="full")) == 16 * parameters + held
    assert eleuther.peak(ask(1)) == 16 * parameters + held + 8 * 2 * 5 * 4 * 8
    assert eleuther.peak(ask(2, checkpointing="full")) == 8 * parameters + 3e9 + held


def test_megatron_says_18_bytes_a_parameter_or_12_over_the_replicas() -> None:
    parameters = PARAMETERS
    held = 1.05 * (8 * 64 * 34 * 2 + 8 * 8 + 8 * 64 + 2 * 8 * (1000 + 64))
    assert megatron.peak(ask(1)) == pytest.approx(18 * parameters + held)
    assert megatron.peak(ask(4)) == pytest.approx(9 * parameters + held)


@pytest.mark.parametrize("tool", [accelerate, deepspeed, eleuther, megatron], ids=lambda tool: tool.NAME)
def test_adapters_are_no_words_of_theirs(tool: Any) -> None:
    for replicas in (1, 2):
        with pytest.raises(CannotExpress):
            tool.peak(ask(replicas, adapters={}))


def test_each_tool_is_asked() -> None:
    kept = peers.load()
    assert set(kept) == set(peers.tools())
    assert all(re.search(r"==[\d.]+$|@[0-9a-f]{40}$", pin) for pin in peers.packages())


class Tool:
    """Says twice what was measured of one GPU, and has no words for more."""

    NAME = "twice"

    @staticmethod
    def peak(question: Question) -> float:
        if question.replicas > 1:
            raise CannotExpress("more than one GPU")
        return 200.0


def test_errors_are_told_by_family_and_by_what_was_measured() -> None:
    reserved = replace(ask(1, other=1), measure="reserved")
    rows = [
        peers.Asked("f", ask(1), 100, -0.1),
        peers.Asked("g", ask(1), 160, 0.0),
        peers.Asked("g", reserved, 50, 0.2),
        peers.Asked("g", ask(2), 100, 0.0),
    ]
    found = peers._peer(Tool, rows)
    assert found["allocated"] == {"rows": 2, "median": 0.625, "batchfit_median": 0.05}
    assert found["reserved"] == {"rows": 1, "median": 3.0, "batchfit_median": 0.2}
    assert found["without"] == {"more than one GPU": 1}
    worse = {**found, "errors": [{**each, "median": each["median"] + 1} for each in found["errors"]]}
    table = peers.by_family({"worse": worse, "twice": found})
    assert table.splitlines()[2:] == [
        "| f | allocated | twice | 1 | 100.0 % | 10.00 % |",
        "| g | allocated | twice | 1 | 25.0 % | 0.00 % |",
        "| g | reserved | twice | 1 | 300.0 % | 20.00 % |",
    ]


def test_a_tool_without_words_has_no_figures() -> None:
    silent = peers._peer(Tool, [peers.Asked("f", ask(2), 100, 0.0)])
    assert peers.text({"silent": silent}).splitlines()[2] == "| silent |  |  |  |  | 1 more than one GPU |"
