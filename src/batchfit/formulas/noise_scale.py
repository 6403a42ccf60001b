"""The gradient noise scale: how large a batch still pays.

McCandlish, Kaplan, Amodei and the OpenAI Dota Team 2018, "An Empirical Model of Large-Batch Training". Batches are in
samples; squared norms in whatever unit the gradients have, the same for all.
"""

from __future__ import annotations


def squared_gradient_norm(
    small_batch: int, large_batch: int, small_squared_norm: float, large_squared_norm: float
) -> float:
    """|G|², the squared norm of the gradient without noise, unbiased (appendix A.1).

    A batch of B samples measures E|G_B|² = |G|² + tr(Σ)/B; two batches solve for both. The estimate of noisy
    measurements can be negative: average both norms over many steps first.
    """
    return (large_batch * large_squared_norm - small_batch * small_squared_norm) / (large_batch - small_batch)


def gradient_variance(
    small_batch: int, large_batch: int, small_squared_norm: float, large_squared_norm: float
) -> float:
    """tr(Σ), the summed variance of one sample's gradient, unbiased (appendix A.1)."""
    return (small_squared_norm - large_squared_norm) / (1 / small_batch - 1 / large_batch)


def least_examples(first_batch: int, second_batch: int, first_steps: int, second_steps: int) -> float:
    """E_min, the samples that the loss takes at the smallest batch, from two runs that reached the same loss.

    By (S/S_min − 1)·(E/E_min − 1) = 1 (section 2.3) with E = B·S, a run takes S = S_min + E_min/B steps: a line in
    1/B, of which this is the slope.
    """
    return (first_steps - second_steps) / (1 / first_batch - 1 / second_batch)


def least_steps(first_batch: int, first_steps: int, least_examples: float) -> float:
    """S_min, the optimizer steps that the loss takes at the largest batch: S − E_min/B."""
    return first_steps - least_examples / first_batch


def simple_noise_scale(gradient_variance: float, squared_gradient_norm: float) -> float:
    """B_simple = tr(Σ)/|G|², in samples (section 2.2): the estimate of the critical batch size."""
    return gradient_variance / squared_gradient_norm


def critical_batch(
    by_runs: int,
    small_batch: int,
    large_batch: int,
    small_squared_norm: float,
    large_squared_norm: float,
    first_batch: int,
    second_batch: int,
    first_steps: int,
    second_steps: int,
) -> float:
    """The critical batch size in samples: E_min/S_min of two runs, else tr(Σ)/|G|² of two gradient norms.

    A run at it takes twice the fewest steps and twice the fewest samples (section 2.3).
    """
    if by_runs == 1:
        examples = least_examples(first_batch, second_batch, first_steps, second_steps)
        return examples / least_steps(first_batch, first_steps, examples)
    return simple_noise_scale(
        gradient_variance(small_batch, large_batch, small_squared_norm, large_squared_norm),
        squared_gradient_norm(small_batch, large_batch, small_squared_norm, large_squared_norm),
    )


def steps_ratio(batch: int, new_batch: int, critical_batch: float) -> float:
    """Steps to the same loss at `new_batch`, as a share of those at `batch`: (1 + B_crit/B')/(1 + B_crit/B)."""
    return (1 + critical_batch / new_batch) / (1 + critical_batch / batch)


def samples_ratio(batch: int, new_batch: int, critical_batch: float) -> float:
    """Samples to the same loss at `new_batch`, as a share of those at `batch`: (1 + B'/B_crit)/(1 + B/B_crit)."""
    return (1 + new_batch / critical_batch) / (1 + batch / critical_batch)


def progress_per_step(new_batch: int, critical_batch: float) -> float:
    """Progress of one step as a share of that of a step without noise: 1/(1 + B_crit/B) (section 2.2)."""
    return 1 / (1 + critical_batch / new_batch)


# Which measurements there are, and what they must be like for there to be an estimate.


def norms_measured(by_runs: int) -> bool:
    """Whether gradient norms at two batches were measured."""
    return by_runs == 0


def runs_measured(by_runs: int) -> bool:
    """Whether two runs to one loss were measured."""
    return by_runs == 1


def batches_grow(by_runs: int, small_batch: int, large_batch: int) -> bool:
    """Whether the two batches differ in the way their names say."""
    return by_runs == 1 or small_batch < large_batch


def runs_grow(by_runs: int, first_batch: int, second_batch: int) -> bool:
    """Whether the second run's batch is the larger."""
    return by_runs == 0 or first_batch < second_batch


def norms_fall(by_runs: int, small_squared_norm: float, large_squared_norm: float) -> bool:
    """Whether the larger batch's gradient is shorter, as noise that averages out makes it."""
    return by_runs == 1 or large_squared_norm < small_squared_norm


def gradient_remains(
    by_runs: int, small_batch: int, large_batch: int, small_squared_norm: float, large_squared_norm: float
) -> bool:
    """Whether the norms leave a gradient under the noise: |G|² above 0."""
    return by_runs == 1 or large_batch * large_squared_norm > small_batch * small_squared_norm


def steps_fall(by_runs: int, first_steps: int, second_steps: int) -> bool:
    """Whether the run at the larger batch took fewer steps: E_min above 0."""
    return by_runs == 0 or second_steps < first_steps


def samples_rise(
    by_runs: int, first_batch: int, second_batch: int, first_steps: int, second_steps: int
) -> bool:
    """Whether the run at the larger batch took more samples: S_min above 0."""
    return by_runs == 0 or second_batch * second_steps > first_batch * first_steps
