"""Tokens, steps and passes, and what a budget buys of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit.batch import Batch
from batchfit.formulas import parallel_batch, token_counts, training_budget


def test_gpt_3s_batch_and_run() -> None:
    """Brown et al. 2020, table 2.1 and section 2.2: batches of 3.2 million tokens, 300 billion in all."""
    per_step = parallel_batch.tokens_per_step(1562, 2048)
    assert per_step == pytest.approx(3.2e6, rel=1e-3)
    assert token_counts.optimizer_steps(300 * 10**9, per_step) == 93781


def test_llama_2_tokens_per_step() -> None:
    """Touvron et al. 2023, "Llama 2", section 2.2: a global batch of 4 million tokens at a context of 4096."""
    assert parallel_batch.tokens_per_step(1024, 4096) == 2**22


@given(st.integers(1, 10**12), st.integers(1, 10**5))
def test_packed_sequences_hold_all_tokens(tokens: int, length: int) -> None:
    sequences = token_counts.sequences(tokens, length)
    assert (sequences - 1) * length < tokens <= sequences * length


@given(st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 64), st.integers(1, 8))
def test_steps_are_those_of_an_epoch_with_a_short_last_step(n: int, b: int, a: int, g: int) -> None:
    batch = Batch(b, a, g)
    per_step = parallel_batch.tokens_per_step(batch.effective_batch, 128)
    assert token_counts.optimizer_steps(n * 128, per_step) == batch.epoch(n, "short").optimizer_steps


@given(st.integers(1, 10**10), st.floats(0.01, 100))
def test_passes_and_tokens_undo_each_other(tokens: int, epochs: float) -> None:
    seen = token_counts.training_tokens(tokens, epochs)
    assert token_counts.epochs_of(seen, tokens) == pytest.approx(epochs, abs=0.51 / tokens)


def test_llama_2_gpu_hours() -> None:
    """Touvron et al. 2023, "Llama 2", table 2: 184,320 A100 hours for 7 billion parameters on 2 trillion tokens."""
    rate = 2e12 / (184_320 * 3600)
    assert training_budget.tokens_bought(184_320, rate) == pytest.approx(2e12)
    assert training_budget.gpu_hours_per_epoch(2 * 10**12, rate) == pytest.approx(184_320)
    assert training_budget.wall_clock_seconds(184_320, 1024) == 180 * 3600
    assert training_budget.gpu_hours_bought(1, 7, 1000, 2.5) == 400
    assert training_budget.gpu_hours_bought(0, 7, 1000, 2.5) == 7
    assert training_budget.cost(400, 2.5) == 1000


def test_money_must_buy_something() -> None:
    assert training_budget.pays_for_a_second(1, 1, 3600)
    assert not training_budget.pays_for_a_second(1, 1, 3601)
    assert training_budget.pays_for_a_second(0, 1, 3601)


@pytest.mark.parametrize("epochs", [1, 2, 4, 8, 16, 40, 100])
def test_each_repetition_is_worth_a_little_less_than_the_one_before(epochs: int) -> None:
    """The model behind the paper's equation 5: the k-th repetition is worth (1 − δ)^k, R* = (1 − δ)/δ and δ small."""
    delta = 1 / (1 + training_budget.REPETITION_DECAY)
    worth = sum((1 - delta) ** k for k in range(epochs))
    assert training_budget.worth_in_fresh_tokens(epochs * 10**9, 10**9) / 1e9 == pytest.approx(
        worth, rel=0.025
    )


def test_four_epochs_are_nearly_as_good_as_fresh_data_and_forty_are_not() -> None:
    """Muennighoff et al. 2023, abstract and section 6: "up to 4 epochs", and no gain in the end after 40."""
    assert training_budget.worth_in_fresh_tokens(4 * 10**9, 10**9) > 0.9 * 4 * 10**9
    assert training_budget.worth_in_fresh_tokens(40 * 10**9, 10**9) < 0.4 * 40 * 10**9


def test_at_r_star_repetitions_the_repeated_tokens_are_worth_1_minus_1_over_e() -> None:
    r = training_budget.REPETITION_DECAY
    worth = training_budget.worth_in_fresh_tokens(round((1 + r) * 10**12), 10**12) / 10**12
    assert worth - 1 == pytest.approx(r * (1 - 1 / math.e))


@given(st.integers(1, 10**13), st.integers(1, 10**13))
def test_a_part_of_the_first_pass_is_worth_itself(tokens: int, more: int) -> None:
    assert training_budget.worth_in_fresh_tokens(tokens, tokens + more) == tokens
    assert training_budget.worth_in_fresh_tokens(tokens + more, tokens) <= tokens + more


def test_a_data_set_in_bytes_words_and_documents() -> None:
    def tokens(measure: int) -> int:
        return token_counts.dataset_tokens(measure, 4_000, 900, 3, 250, text_ratio=4, word_ratio=1.5)

    assert tokens(token_counts.BYTES) == 1000
    assert tokens(token_counts.WORDS) == 1350
    assert tokens(token_counts.DOCUMENTS) == 1125
    for own in (token_counts.bytes_per_token_of, token_counts.tokens_per_word_of):
        assert own(0, 4.5) == 4.5
        assert own(3.4, 4.5) == 3.4


def test_epochs_for_the_tokens_wanted() -> None:
    assert token_counts.epochs_for_budget(25, 10) == 2.5
    assert token_counts.budget_given(1)
    assert not token_counts.budget_given(0)
