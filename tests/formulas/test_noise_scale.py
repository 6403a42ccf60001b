"""The noise-scale estimator on gradients whose noise is known, and the paper's relations."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchfit.formulas import noise_scale


def measured(mean: list[float], deviation: float, batch: int, draws: int, seed: int) -> float:
    """The mean squared norm of batch gradients around `mean`, each sample's with independent noise."""
    chance = random.Random(seed)
    spread = deviation / batch**0.5
    return sum(sum((m + chance.gauss(0, spread)) ** 2 for m in mean) for _ in range(draws)) / draws


def test_the_estimator_finds_the_noise_of_synthetic_gradients() -> None:
    mean, deviation, small, large = [0.3] * 20, 2.0, 8, 512
    norms = (measured(mean, deviation, small, 20_000, 1), measured(mean, deviation, large, 20_000, 2))
    squared = noise_scale.squared_gradient_norm(small, large, *norms)
    variance = noise_scale.gradient_variance(small, large, *norms)
    assert squared == pytest.approx(20 * 0.3**2, rel=0.02)
    assert variance == pytest.approx(20 * 2.0**2, rel=0.02)
    assert noise_scale.simple_noise_scale(variance, squared) == pytest.approx((2.0 / 0.3) ** 2, rel=0.04)


@given(st.integers(1, 10**5), st.integers(1, 10**5), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_noise_free_measurements_are_solved_exactly(
    b: int, more: int, squared: float, variance: float
) -> None:
    large = b * 2 + more
    norms = (squared + variance / b, squared + variance / large)
    assume(variance / b > 1e-6 * squared)
    assume(squared > 1e-6 * variance)
    assert noise_scale.squared_gradient_norm(b, large, *norms) == pytest.approx(squared, rel=1e-3)
    assert noise_scale.gradient_variance(b, large, *norms) == pytest.approx(variance, rel=1e-3)


steps_and_samples = st.tuples(st.floats(100, 1e6), st.floats(1e4, 1e9))


@given(steps_and_samples, st.integers(1, 10**6))
def test_steps_and_samples_trade_along_the_papers_hyperbola(least: tuple[float, float], batch: int) -> None:
    least_steps, least_examples = least
    critical = least_examples / least_steps
    steps = least_steps * (1 + critical / batch)
    samples = least_examples * (1 + batch / critical)
    assert samples == pytest.approx(steps * batch)
    assert (steps / least_steps - 1) * (samples / least_examples - 1) == pytest.approx(1, rel=1e-6)


def test_at_the_critical_batch_twice_the_fewest_steps_and_samples() -> None:
    critical = 1000
    assert noise_scale.steps_ratio(critical, 10**15, critical) == pytest.approx(0.5)
    assert noise_scale.samples_ratio(critical, 1, critical) == pytest.approx(0.5, rel=1e-2)
    assert noise_scale.progress_per_step(critical, critical) == 0.5


@given(steps_and_samples, st.integers(1, 10**5), st.integers(2, 100))
def test_two_runs_to_one_loss_give_the_critical_batch(
    least: tuple[float, float], first: int, factor: int
) -> None:
    least_steps, least_examples = least
    second = first * factor
    runs = [least_steps + least_examples / batch for batch in (first, second)]
    assume(runs[0] - runs[1] > 1e-6 * runs[0])
    examples = noise_scale.least_examples(first, second, *runs)  # type: ignore[arg-type]
    steps = noise_scale.least_steps(first, runs[0], examples)  # type: ignore[arg-type]
    assert examples == pytest.approx(least_examples, rel=1e-5)
    assert steps == pytest.approx(least_steps, rel=1e-3)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.floats(1, 1e7))
def test_the_ratios_agree_that_samples_are_steps_times_the_batch(b: int, other: int, critical: float) -> None:
    steps = noise_scale.steps_ratio(b, other, critical)
    assert noise_scale.samples_ratio(b, other, critical) == pytest.approx(steps * other / b)
    assert (steps <= 1) == (other >= b) or steps == pytest.approx(1)


#: |G|² = 0.01 and tr Σ = 16; and the same noise scale of 1,600 in runs of S_min = 2,000 and E_min = 3.2 million.
NORMS = (32, 1024, 0.51, 0.025625)
RUNS = (256, 1024, 14_500, 5_125)


@pytest.mark.parametrize("by_runs", [0, 1])
def test_both_measurements_give_the_same_critical_batch(by_runs: int) -> None:
    assert noise_scale.critical_batch(by_runs, *NORMS, *RUNS) == pytest.approx(1600)


def test_what_measurements_must_be_like() -> None:
    assert noise_scale.batches_grow(0, 32, 1024)
    assert not noise_scale.batches_grow(0, 32, 32)
    assert noise_scale.runs_grow(1, 256, 1024)
    assert not noise_scale.runs_grow(1, 256, 256)
    assert noise_scale.norms_fall(0, 0.51, 0.0256)
    assert not noise_scale.norms_fall(0, 0.51, 0.51)
    assert noise_scale.gradient_remains(0, *NORMS)
    assert not noise_scale.gradient_remains(0, 32, 1024, 0.51, 0.0159)
    assert noise_scale.steps_fall(1, 14_500, 5_125)
    assert not noise_scale.steps_fall(1, 5_125, 5_125)
    assert noise_scale.samples_rise(1, *RUNS)
    assert not noise_scale.samples_rise(1, 256, 1024, 4_000, 1_000)
    assert noise_scale.norms_measured(0)
    assert noise_scale.runs_measured(1)


def test_nothing_is_asked_of_what_was_not_measured() -> None:
    assert not noise_scale.norms_measured(1)
    assert not noise_scale.runs_measured(0)
    assert noise_scale.batches_grow(1, 2, 1)
    assert noise_scale.runs_grow(0, 2, 1)
    assert noise_scale.norms_fall(1, 1, 2)
    assert noise_scale.gradient_remains(1, 1, 2, 2, 1)
    assert noise_scale.steps_fall(0, 1, 2)
    assert noise_scale.samples_rise(0, 1, 2, 2, 1)
