"""Other tools beside batchfit: what each is asked, and what it has no words for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from bench.accuracy import peers
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
    assert peers.accelerate(ask(1)) == 2 * 4 * (PARAMETERS + ROTARY)
    with pytest.raises(CannotExpress, match="more than one GPU"):
        peers.accelerate(ask(2))


def test_deepspeed_says_18_bytes_a_parameter_over_the_gpus() -> None:
    assert peers.deepspeed(ask(2)) == 4 * 64_000 + 9 * PARAMETERS
    with pytest.raises(CannotExpress, match="one GPU alone"):
        peers.deepspeed(ask(1))


@pytest.mark.parametrize("tool", peers.PEER_TOOLS.values(), ids=list(peers.PEER_TOOLS))
def test_adapters_are_no_words_of_theirs(tool: object) -> None:
    for replicas in (1, 2):
        with pytest.raises(CannotExpress):
            tool(ask(replicas, adapters={}))  # type: ignore[operator]
