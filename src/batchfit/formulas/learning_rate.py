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


def warmup_factor(step: int, warmup: int) -> float:
    """The share of the peak rate at a step of a linear warm-up from 0; 1 from its end on."""
    return step / warmup if step < warmup else 1


def progress(step: int, first: int, last: int) -> float:
    """How far a step is between two others: 0 up to `first`, 1 from `last` on."""
    return min(1, max(0, step - first) / max(1, last - first))


def linear_decay(step: int, warmup: int, total_steps: int) -> float:
    """Falls in a straight line from 1 at the warm-up's end to 0 at the run's."""
    return 1 - progress(step, warmup, total_steps)


def cosine_decay(step: int, warmup: int, total_steps: int) -> float:
    """Falls along half a cosine from 1 to 0 (Loshchilov and Hutter 2017, "SGDR", equation 5, with one cycle)."""
    return (1 + math.cos(math.pi * progress(step, warmup, total_steps))) / 2


def inverse_square_root_decay(step: int, warmup: int) -> float:
    """Falls with the square root of the step: √(w/t) after the warm-up; without one, from the second step on.

    Vaswani et al. 2017, "Attention Is All You Need", equation 3, as a share of its own peak.
    """
    peak = max(1, warmup)
    return math.sqrt(peak / max(peak, step))


def decay_start(warmup: int, total_steps: int, decay_share: float) -> int:
    """The step at which a rate starts to fall that does so only in the last `decay_share` of the run."""
    return max(warmup, total_steps - math.ceil(total_steps * decay_share))


def warmup_stable_decay(step: int, warmup: int, total_steps: int, decay_share: float) -> float:
    """Stays 1 and falls to 0 in the last `decay_share` of the run.

    Hu et al. 2024, "MiniCPM", section 4; the decay is a straight line, one of those that Hägele et al. 2024, "Scaling
    Laws and Compute-Optimal Training Beyond Fixed Training Durations", compare.
    """
    return 1 - progress(step, decay_start(warmup, total_steps, decay_share), total_steps)


def rate_at(
    step: int,
    peak_rate: float,
    warmup: int,
    total_steps: int,
    final_share: float,
    decay_share: float,
    schedule: int,
) -> float:
    """The rate at a step: the peak times what warm-up and decay leave of it.

    `final_share` of the peak is what linear, cosine and warmup-stable-decay end at. The inverse square root has no end
    and a constant rate no decay, so neither knows it.
    """
    reached = peak_rate * warmup_factor(step, warmup)
    if schedule == CONSTANT:
        return reached
    if schedule == INVERSE_SQUARE_ROOT:
        return reached * inverse_square_root_decay(step, warmup)
    if schedule == LINEAR:
        decay = linear_decay(step, warmup, total_steps)
    elif schedule == COSINE:
        decay = cosine_decay(step, warmup, total_steps)
    else:
        decay = warmup_stable_decay(step, warmup, total_steps, decay_share)
    return reached * (final_share + (1 - final_share) * decay)


def fits_in_run(step: int, total_steps: int) -> bool:
    """Whether there is such a step."""
    return step <= total_steps


def warmup_fits_in_run(warmup_steps: int, total_steps: int) -> bool:
    """Whether a warm-up of that many steps ends within the run."""
    return warmup_steps <= total_steps
