"""Learning-rate schedules beside the library's own, and the published examples of scaling."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit.formulas import learning_rate as lr


def rate_at(
    step: int, peak: float, warmup: int, total: int, final: float, decay_share: float, schedule: int
) -> float:
    """The rate at a step, by all formulas of a schedule."""
    start = lr.decay_start(warmup, total, decay_share, schedule)
    progress = lr.decay_progress(step, start, total)
    return lr.rate(peak, lr.warmed_up(step, warmup), lr.decayed(step, warmup, progress, final, schedule))


def test_the_linear_rule_of_imagenet_in_an_hour() -> None:
    """Goyal et al. 2017: 0.1 at a batch of 256 becomes 3.2 at 8192; 5 epochs of warm-up."""
    assert lr.scaled_rate(0.1, 256, 8192, 1) == 3.2
    assert lr.warmup_length(-1, 5 / 90, math.ceil(90 * 1_281_167 / 8192)) == 782
    assert lr.warmup_length(0, 5 / 90, 1000) == 0


@given(st.floats(1e-6, 10), st.integers(1, 10**6), st.integers(1, 1000))
def test_the_square_root_rule_is_the_linear_rule_taken_half_way(rate: float, batch: int, k: int) -> None:
    """Malladi et al. 2022: k times the batch, √k times the rate."""
    assert lr.scaled_rate(rate, batch, batch * k, 0.5) == pytest.approx(rate * math.sqrt(k))
    assert lr.scaled_rate(rate, batch, batch * k, 0) == rate
    back = lr.scaled_rate(lr.scaled_rate(rate, batch, batch * k, 0.5), batch * k, batch, 0.5)
    assert back == pytest.approx(rate)


def test_gpt_3s_warm_up() -> None:
    """Brown et al. 2020, appendix B: a linear warm-up over the first 375 million tokens, decay to 10 %."""
    assert lr.warmup_tokens(117, 1562, 2048) == pytest.approx(375e6, rel=0.01)
    assert rate_at(10_000, 6e-4, 117, 10_000, 0.1, 0, lr.COSINE) == pytest.approx(6e-5)


def test_the_transformers_own_schedule() -> None:
    """Vaswani et al. 2017, equation 3: d^-0.5 · min(t^-0.5, t·w^-1.5), at its peak 7.0e-4 for d = 512, w = 4000."""
    width, warmup = 512, 4000
    peak = width**-0.5 * warmup**-0.5
    assert peak == pytest.approx(7.0e-4, rel=0.01)
    for step in (1, 100, 4000, 4001, 16_000, 100_000):
        own = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert rate_at(step, peak, warmup, 10**6, 0, 0, lr.INVERSE_SQUARE_ROOT) == pytest.approx(own)


WARMUPS = [(0, 100), (1, 100), (10, 100), (37, 1000), (99, 100)]


def library_rates(make: Callable[..., Any], steps: int, **options: object) -> list[float]:
    """The rates that a scheduler of transformers gives an optimizer with peak 1, step by step."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, **options)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.torch
@pytest.mark.parametrize(("warmup", "total"), WARMUPS)
def test_the_curves_are_those_of_transformers(warmup: int, total: int) -> None:
    library = pytest.importorskip("transformers.optimization")
    share, decay = 0.1, 0.2
    decay_steps = min(total - warmup, math.ceil(total * decay))
    steps = range(total + 1)
    both = [
        (
            lr.CONSTANT,
            share,
            library_rates(library.get_constant_schedule_with_warmup, total + 1, num_warmup_steps=warmup),
        ),
        (
            lr.LINEAR,
            0,
            library_rates(
                library.get_linear_schedule_with_warmup,
                total + 1,
                num_warmup_steps=warmup,
                num_training_steps=total,
            ),
        ),
        (
            lr.COSINE,
            share,
            library_rates(
                library.get_cosine_with_min_lr_schedule_with_warmup,
                total + 1,
                num_warmup_steps=warmup,
                num_training_steps=total,
                min_lr_rate=share,
            ),
        ),
        (
            lr.WARMUP_STABLE_DECAY,
            0,
            library_rates(
                library.get_wsd_schedule,
                total + 1,
                num_warmup_steps=warmup,
                num_decay_steps=decay_steps,
                num_stable_steps=total - warmup - decay_steps,
                decay_type="linear",
            ),
        ),
    ]
    if warmup:  # without one, the library takes a time scale of its own
        rates = library_rates(library.get_inverse_sqrt_schedule, total + 1, num_warmup_steps=warmup)
        both.append((lr.INVERSE_SQUARE_ROOT, share, rates))
    for schedule, final, rates in both:
        own = [rate_at(step, 1, warmup, total, final, decay, schedule) for step in steps]
        assert own == pytest.approx(rates, abs=1e-12), schedule


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 1000), st.floats(0, 1), st.floats(0, 1), st.integers(0, 4))
def test_no_schedule_leaves_its_bounds(
    warmup: int, more: int, final: float, decay: float, schedule: int
) -> None:
    total = warmup + more
    rates = [rate_at(step, 2, warmup, total, final, decay, schedule) for step in range(total + 1)]
    assert all(0 <= rate <= 2 * (1 + 1e-12) for rate in rates)
    assert rates[warmup] == pytest.approx(2)
    after = rates[warmup:]
    assert all(later <= rate * (1 + 1e-12) for rate, later in itertools.pairwise(after))
    if schedule in (lr.LINEAR, lr.COSINE):
        assert rates[-1] == pytest.approx(2 * final, abs=1e-12)


def test_what_lies_beyond_the_run() -> None:
    assert lr.fits_in_run(100, 100)
    assert not lr.fits_in_run(101, 100)
    assert lr.warmup_fits_in_run(-1, 100)
    assert not lr.warmup_fits_in_run(101, 100)
