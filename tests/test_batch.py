"""Batch arithmetic against brute force and against each other."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit import BadInput, Batch
from batchfit.batch import Choice, factorings, samples_for_tokens, solve_steps

small = st.integers(1, 60)


def test_the_effective_batch_is_the_product() -> None:
    assert Batch(4, 8, 1).effective_batch == 32
    assert Batch(4, 8, 4).effective_batch == 128
    assert Batch(4).effective_batch == 4
    assert Batch(2, 4, 8).tokens_per_step(seq_len=4096) == 262144


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1), "micro_batch: must be a whole number of 1 or more; you gave 0"),
        ((4, -2, 1), "accumulation_steps: must be a whole number of 1 or more; you gave -2"),
        ((4, 2, 1.5), "replicas: must be a whole number of 1 or more; you gave 1.5"),
        ((True, 2, 1), "micro_batch: must be a whole number of 1 or more; you gave True"),
    ],
)
def test_a_part_that_is_no_whole_number_is_named(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(BadInput) as wrong:
        Batch(*arguments)
    assert str(wrong.value) == message


def test_an_epoch_that_divides_evenly_has_no_ragged_window() -> None:
    for last in ("drop", "pad", "short"):
        epoch = Batch(4, 8, 1).epoch(320, last)
        assert (epoch.optimizer_steps, epoch.samples_used) == (10, 320)
        assert (epoch.samples_dropped, epoch.samples_padded) == (0, 0)
        assert (epoch.last_step_samples, epoch.last_step_micro_batches) == (32, 8)


def test_the_ragged_last_window_is_dropped_padded_or_short() -> None:
    batch = Batch(4, 8, 2)
    dropped = batch.epoch(1000, "drop")
    assert (dropped.optimizer_steps, dropped.samples_used, dropped.samples_dropped) == (15, 960, 40)
    padded = batch.epoch(1000, "pad")
    assert (padded.optimizer_steps, padded.samples_padded, padded.last_step_samples) == (16, 24, 64)
    short = batch.epoch(1000, "short")
    assert (short.optimizer_steps, short.last_step_samples, short.last_step_micro_batches) == (16, 40, 5)


def test_a_data_set_smaller_than_one_window_has_no_whole_step() -> None:
    assert Batch(4, 8, 1).epoch(31, "drop").optimizer_steps == 0
    assert Batch(4, 8, 1).epoch(31, "drop").last_step_samples == 0
    assert Batch(4, 8, 1).epoch(31, "short").last_step_samples == 31
    assert Batch(4, 8, 1).epoch(0, "short").optimizer_steps == 0


@given(small, small, small, st.integers(0, 10_000))
def test_an_epoch_accounts_for_every_sample(b: int, a: int, g: int, samples: int) -> None:
    batch = Batch(b, a, g)
    drop, pad, short = (batch.epoch(samples, last) for last in ("drop", "pad", "short"))
    assert drop.samples_used + drop.samples_dropped == samples
    assert pad.samples_used == short.samples_used == samples
    assert pad.optimizer_steps * batch.effective_batch == samples + pad.samples_padded
    assert short.optimizer_steps == pad.optimizer_steps
    if samples:
        whole_steps = short.optimizer_steps - 1
        assert whole_steps * batch.effective_batch + short.last_step_samples == samples
        assert (short.last_step_micro_batches - 1) * b * g < short.last_step_samples
        assert short.last_step_micro_batches * b * g >= short.last_step_samples


def test_the_steps_around_a_target() -> None:
    choices = solve_steps(250, micro_batch=4, replicas=8)
    assert choices.nearest == choices.above == Choice(Batch(4, 8, 8), +6)
    assert choices.below == Choice(Batch(4, 7, 8), -26)
    assert [choice.drift for choice in choices] == [-26, 6]


def test_a_target_reached_exactly_is_the_only_choice() -> None:
    choices = solve_steps(256, micro_batch=4, replicas=8)
    assert list(choices) == [choices.nearest] == [Choice(Batch(4, 8, 8), 0)]


def test_a_target_below_one_pass_has_no_choice_below() -> None:
    choices = solve_steps(5, micro_batch=4, replicas=8)
    assert choices.below is None
    assert list(choices) == [Choice(Batch(4, 1, 8), 27)]


@given(st.integers(1, 5000), small, small)
def test_the_steps_around_a_target_are_what_counting_finds(target: int, b: int, g: int) -> None:
    choices = solve_steps(target, micro_batch=b, replicas=g)
    drifts = {steps: Batch(b, steps, g).effective_batch - target for steps in range(1, target + 2)}
    best = min(drifts, key=lambda steps: (abs(drifts[steps]), steps))
    assert choices.nearest == Choice(Batch(b, best, g), drifts[best])
    reaching = min(steps for steps in drifts if drifts[steps] >= 0)
    assert choices.above == Choice(Batch(b, reaching, g), drifts[reaching])
    missing = [steps for steps in drifts if drifts[steps] <= 0]
    assert choices.below == (Choice(Batch(b, max(missing), g), drifts[max(missing)]) if missing else None)


def test_tokens_become_the_nearest_number_of_samples() -> None:
    assert samples_for_tokens(4_000_000, 8192) == 488
    assert samples_for_tokens(4_194_304, 8192) == 512
    assert samples_for_tokens(12288, 8192) == 1
    assert samples_for_tokens(12289, 8192) == 2
    assert samples_for_tokens(1, 8192) == 1


@given(st.integers(1, 400))
def test_factorings_are_all_there_and_exact(target: int) -> None:
    found = {(batch.micro_batch, batch.accumulation_steps, batch.replicas) for batch in factorings(target)}
    divisors = [d for d in range(1, target + 1) if target % d == 0]
    expected = {(b, target // (b * g), g) for g in divisors for b in divisors if target % (b * g) == 0}
    assert found == expected
    assert all(prod(parts) == target for parts in found)


def test_factorings_keep_to_their_bounds_and_start_with_the_most_replicas() -> None:
    found = factorings(256, max_micro_batch=8, max_accumulation_steps=16, max_replicas=8)
    assert found[0] == Batch(8, 4, 8)
    assert found[-1] == Batch(8, 16, 2)
    assert all(
        b.micro_batch <= 8 and b.accumulation_steps <= 16 and b.replicas <= 8 and b.effective_batch == 256
        for b in found
    )
    assert factorings(251, max_micro_batch=8, max_replicas=8, max_accumulation_steps=100) == []
