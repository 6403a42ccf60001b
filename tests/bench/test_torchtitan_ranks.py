"""Ranks of torchtitan's Llama: their shares of weights and activations, and which rows ask for them."""

from __future__ import annotations

import pytest
import torch

from batchfit.trace import Training, trace
from bench.accuracy.building import training
from bench.accuracy.families import figures, question
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row, read

ROWS = {row.id: row for row in figures(read()) if row.family == "torchtitan"}

HIDDEN, LAYERS, VOCABULARY = 256, 4, 1024


def rank(tensor: int = 1, context: int = 1) -> Training:
    """A rank of a small model, for sequences of 512 tokens."""
    return training(
        {
            "config": {
                "model_type": "torchtitan-llama",
                "hidden_size": HIDDEN,
                "intermediate_size": 3 * HIDDEN,
                "num_hidden_layers": LAYERS,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "vocab_size": VOCABULARY,
            },
            "seq_len": 512 // context,
            "weights": "bf16",
            "tensor": tensor,
            "context": context,
        }
    )


def activations(tensor: int = 1, context: int = 1) -> float:
    """Bytes of activations a sample at the peak."""
    profile = trace(rank(tensor, context), checkpointing="none", attention="flash")
    return max(line.parts["activations"][1][0] for line in profile.phases["first_micro"])


@pytest.mark.parametrize("tensor", [2, 4])
def test_a_rank_has_its_share_of_every_weight_but_the_norms(tensor: int) -> None:
    whole, share = (sum(p.numel() for p in rank(ranks).model.parameters()) for ranks in (1, tensor))
    norms = HIDDEN * (2 * LAYERS + 1)
    assert share - norms == (whole - norms) / tensor


def test_activations_are_shared_with_sequence_parallelism() -> None:
    """All but the inputs of divided layers, which are gathered, and what rotates queries and keys."""
    whole, half, quarter = (activations(tensor=ranks) for ranks in (1, 2, 4))
    assert whole / 2 < half < 0.7 * whole
    assert whole / 4 < quarter < 0.5 * whole


def test_a_rank_of_context_parallelism_keeps_the_keys_and_values_of_all() -> None:
    half = activations(context=2)
    alone = activations(context=1) / 2
    # The other half's keys and values, one of each a query head, in 16 bits.
    kept = 2 * LAYERS * 256 * HIDDEN * 2
    assert half - alone == pytest.approx(kept, rel=0.2)


def test_copies_of_a_divided_model_train_their_own_weights() -> None:
    made = rank(tensor=2, context=2)
    profile = trace(made, checkpointing="none", attention="flash")
    weights = sum(p.numel() * 2 for p in made.model.parameters())
    assert profile.states.gradients_bytes == pytest.approx(weights + VOCABULARY * HIDDEN, rel=0.02)
    assert all(p.device == torch.device("meta") for p in made.model.parameters())


def asked(row_id: str, **changes: str) -> Question:
    row = ROWS[row_id]
    return question(Row(row.id, row.family, {**row.values, **changes}))


def test_replicas_shard_what_tensor_parallelism_left() -> None:
    found = asked("TTN097")
    assert (found.trace["tensor"], found.trace["context"], found.replicas) == (2, 1, 4)
    assert found.trace["seq_len"] == 8192


def test_context_parallelism_divides_sequences_and_its_ranks_shard_as_replicas_do() -> None:
    found = asked("TTN113")
    assert (found.trace["tensor"], found.trace["context"], found.replicas) == (1, 2, 4)
    assert found.trace["seq_len"] == 4096


def test_a_row_without_division_is_asked_as_before() -> None:
    found = asked("TTN097", tp="", n_gpus="4")
    assert "tensor" not in found.trace
    assert found.replicas == 4


@pytest.mark.parametrize(("column", "reason"), [("pp", "pipeline parallelism"), ("ep", "expert parallelism")])
def test_what_has_no_words(column: str, reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        asked("TTN097", **{column: "2"})
