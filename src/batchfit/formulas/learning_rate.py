"""Learning-rate schedules: warm-up, then decay, in optimizer steps counted from 0; and the rate for another batch.

Rates are as the optimizer takes them. The schedules are those of the field's libraries: step by step the same
factors, so that a curve here is the curve of a run.
"""

from __future__ import annotations

import math

#: The schedules, as numbers that a formula can tell apart.
CONSTANT, LINEAR, COSINE, INVERSE_SQUARE_ROOT, WARMUP_STABLE_DECAY = range(5)


def scaled_rate(base_rate: float, base_batch: int, effective_batch_size: int, exponent: float) -> float:
    """The rate for `effective_batch_size` where `base_rate` suits `base_batch`: η·(E/B)^p.

    p = 1 is the linear rule for SGD (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1), p = 1/2 the
    square-root rule: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", by the
    gradient's variance, and Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms",
    for Adam.
    """
    return float(base_rate * (effective_batch_size / base_batch) ** exponent)


def warmup_length(warmup_steps: int, warmup_share: float, total_steps: int) -> int:
    """Warm-up steps: as given where they are (0 or more), else a share of the run, rounded up."""
    return warmup_steps if warmup_steps >= 0 else math.ceil(total_steps * warmup_share)


def warmup_tokens(warmup: int, effective_batch_size: int, sequence_length: int) -> int:
    """Tokens that the warm-up sees: w·E·s."""
    return warmup * effective_batch_size * sequence_length


def warmed_up(step: int, warmup: int) -> float:
    """The share of the peak rate that a linear warm-up from 0 has reached at a step; 1 from its end on."""
    return step / warmup if step < warmup else 1


def decay_start(warmup: int, total_steps: int, decay_share: float, schedule: int) -> int:
    """The step from which the rate falls: the warm-up's end, or for warmup-stable-decay the beginning of the last
    `decay_share` of the run (Hu et al. 2024, "MiniCPM", section 4)."""
    if schedule == WARMUP_STABLE_DECAY:
        return max(warmup, total_steps - math.ceil(total_steps * decay_share))
    return warmup


def decay_progress(step: int, decay_start: int, total_steps: int) -> float:
    """How far a step is on the way from the decay's start to the run's end, from 0 to 1."""
    return min(1, max(0, step - decay_start) / max(1, total_steps - decay_start))


def decayed(step: int, warmup: int, decay_progress: float, final_share: float, schedule: int) -> float:
    """The share of the peak rate that the decay leaves at a step.

    Linear, cosine (Loshchilov and Hutter 2017, "SGDR", equation 5, with one cycle) and warmup-stable-decay, whose decay
    is a straight line too, end at `final_share`. The inverse square root (Vaswani et al. 2017, "Attention Is All You
    Need", equation 3, as a share of its own peak) has no end, and falls from the second step on without a warm-up.
    """
    if schedule == CONSTANT:
        return 1
    if schedule == INVERSE_SQUARE_ROOT:
        return math.sqrt(max(1, warmup) / max(1, warmup, step))
    if schedule == COSINE:
        return final_share + (1 - final_share) * (1 + math.cos(math.pi * decay_progress)) / 2
    return final_share + (1 - final_share) * (1 - decay_progress)


def rate(peak_rate: float, warmed_up: float, decayed: float) -> float:
    """The rate at a step: the peak times what warm-up and decay leave of it."""
    return peak_rate * warmed_up * decayed


def fits_in_run(step: int, total_steps: int) -> bool:
    """Whether there is such a step."""
    return step <= total_steps


def warmup_fits_in_run(warmup_steps: int, total_steps: int) -> bool:
    """Whether a warm-up of that many steps ends within the run."""
    return warmup_steps <= total_steps
