"""BERT as TensorFlow and PyTorch wrote it, and the tables of which batches of it ran."""

from __future__ import annotations

import math

import pytest

from bench.accuracy.families import figures, question
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row, read

ROWS = {row.id: row for row in figures(read()) if row.family in ("nvidia_dle", "google_bert")}


def asked(row_id: str, **changes: str) -> Question:
    row = ROWS[row_id]
    return question(Row(row.id, row.family, {**row.values, **changes}))


def test_pre_training_predicts_some_tokens() -> None:
    predictions = {
        (row["notes"].split(";")[0], row["seq_len"]): asked(row.id).trace["config"].get("predictions")
        for row in ROWS.values()
        if row.family == "nvidia_dle"
    }
    assert predictions == {
        ("pretrain", "128"): 20,
        ("pretrain", "512"): 80,
        ("finetune SQuAD", "384"): None,
    }


def test_the_largest_batch_is_two_figures() -> None:
    largest, following = asked("dle-259"), asked("dle-259/next")
    assert (largest.measure, largest.micro_batch) == ("fits", 6)
    assert (following.measure, following.micro_batch) == ("oom", 7)
    # TensorFlow leaves 5 % to the system.
    assert largest.room_bytes == pytest.approx(0.95 * 11.76 * 2**30, abs=1)


def test_what_tensorflow_1_computes_early_is_held_without_loss_scaling() -> None:
    assert asked("dle-259").beside_bytes == 3 * 4 * 110_000_000
    assert asked("dle-259", precision="FP16 mixed (AMP)").beside_bytes is None


def test_xla_fuses() -> None:
    fused, plain = asked("dle-001"), asked("dle-002")
    assert fused.trace["config"]["operations"] == "pytorch"
    assert plain.trace["config"]["operations"] == "tensorflow2"
    assert (fused.trace.get("mixed"), plain.trace.get("mixed")) == ("fp16", None)


def test_what_cannot_be_expressed_is_said() -> None:
    with pytest.raises(CannotExpress, match="the catalogue has no Titan Z"):
        asked("dle-259", gpu="Titan Z")
    with pytest.raises(CannotExpress, match="how many of 256 tokens"):
        asked("dle-001", seq_len="256")
    with pytest.raises(CannotExpress, match="no batch ran"):
        asked("dle-259", micro_batch="0")


def test_electra_has_a_small_generator_and_runs_with_xla() -> None:
    ask = asked("dle-002", model="ELECTRA-Base", hidden="768")
    assert ask.trace["config"]["model_type"] == "electra-of-its-time"
    assert ask.trace["config"]["generator_hidden_size"] == 256
    assert ask.trace["config"]["predictions"] == 19
    assert ask.trace["config"]["operations"] == "pytorch"
    tuned = asked("dle-002", model="ELECTRA-Base", hidden="768", notes="finetune SQuAD; TF2", seq_len="384")
    assert tuned.trace["config"]["model_type"] == "bert-of-its-time"


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["bert-of-its-time", "electra-of-its-time"])
@pytest.mark.parametrize("operations", ["pytorch", "tensorflow1", "tensorflow2"])
def test_the_models_train(kind: str, operations: str) -> None:
    import torch

    from bench.accuracy.plain_models import PLAIN

    config = {
        "operations": operations,
        "predictions": 3,
        "hidden_size": 192,
        "generator_hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "vocab_size": 50,
    }
    model = PLAIN[kind](config, 16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    ids = torch.randint(0, 50, (2, 16))
    loss = model(input_ids=ids, labels=ids)
    # As likely as chance: one word of fifty, and one of two.
    assert loss.item() == pytest.approx(math.log(50) + math.log(2), rel=0.1)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.torch
def test_operations_keep_what_their_frameworks_do() -> None:
    import torch

    from bench.accuracy.bert import OPERATIONS

    def kept(operations: str, what: str) -> int:
        """Bytes that backward needs of an operation on a thousand numbers."""
        x = torch.ones(10, 100, requires_grad=True)
        storages: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.numel() > 100:  # not what is there anyway: a weight, a number a row
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            made = OPERATIONS[operations]()
            result = made.norm(x, torch.nn.LayerNorm(100)) if what == "norm" else getattr(made, what)(x)
            assert result.requires_grad
        return sum(storages.values())

    # GELU: the input, or with it the tanh and the factor.
    assert (kept("pytorch", "gelu"), kept("tensorflow2", "gelu")) == (4000, 12000)
    # The mask in the type of what it masks.
    assert kept("tensorflow2", "dropout") == 4000
    # The input, or with it a factor as large.
    assert kept("pytorch", "norm") == 4000
    assert kept("tensorflow1", "norm") >= 8000
