from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit.errors import BadInput
from batchfit.settings import TrainingSettings

sizes = st.integers(1, 1000)


@given(micro=sizes, steps=sizes, replicas=sizes)
def test_any_three_of_the_batch_give_the_fourth(micro: int, steps: int, replicas: int) -> None:
    whole = TrainingSettings(
        micro_batch=micro,
        accumulation_steps=steps,
        replicas=replicas,
        effective_batch=micro * steps * replicas,
    )
    for name in ("micro_batch", "accumulation_steps", "replicas", "effective_batch"):
        without: dict[str, int | None] = {name: None}
        assert dataclasses.replace(whole, **without).solved() == whole  # type: ignore[arg-type]


def test_two_of_the_batch_give_no_more() -> None:
    known = TrainingSettings(micro_batch=4, effective_batch=256)
    assert known.solved() == known
    assert known.batch == 256


def test_factors_that_do_not_divide_the_batch_are_an_error() -> None:
    with pytest.raises(BadInput) as caught:
        TrainingSettings(micro_batch=3, accumulation_steps=2, effective_batch=256).solved()
    assert str(caught.value) == (
        "effective_batch: must be a multiple of 6, the product of the factors given; it is 256"
    )


def test_the_factors_win_over_a_batch_that_was_said_before() -> None:
    """So that a plan can replace one factor of settings that were read."""
    read = TrainingSettings(micro_batch=4, accumulation_steps=8, replicas=8, effective_batch=256)
    planned = dataclasses.replace(read, micro_batch=2)
    assert planned.batch == 128
    assert planned.solved().effective_batch == 128


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("micro_batch", 0, "micro_batch: must be a whole number of 1 or more; it is 0"),
        ("replicas", True, "replicas: must be a whole number of 1 or more; it is True"),
        ("seq_len", 2.5, "seq_len: must be a whole number of 1 or more; it is 2.5"),
        (
            "precision",
            "bf17",
            "precision: must be one of fp32, bf16, fp16, bf16-mixed, fp16-mixed; it is 'bf17'",
        ),
        ("sharding", "zero4", "sharding: must be one of none, ddp, zero1, zero2, zero3, fsdp; it is 'zero4'"),
        (
            "model",
            "a\nb: c",
            "model: must be a name of printable characters on one line; it is 'a\\nb: c'",
        ),
        (
            "lora_targets",
            ("q", ""),
            "lora_targets: must be a name of printable characters on one line; it is ''",
        ),
    ],
)
def test_a_wrong_value_is_restated(field: str, value: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        TrainingSettings(**{field: value})  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_nodes_divide_the_replicas() -> None:
    with pytest.raises(BadInput, match="nodes: must divide the 6 replicas evenly; it is 4"):
        TrainingSettings(replicas=6, nodes=4)
    assert TrainingSettings(replicas=8, nodes=4).replicas_per_node == 2
    assert TrainingSettings(replicas=8).replicas_per_node == 8


def test_notes_do_not_count_in_comparison() -> None:
    assert TrainingSettings(micro_batch=2, notes=("one",)) == TrainingSettings(micro_batch=2)
    assert hash(TrainingSettings(notes=("one",))) == hash(TrainingSettings())
