"""What a budget of GPU time buys: tokens, and what repeating a data set is worth."""

from __future__ import annotations

import math

SECONDS_PER_HOUR = 3600

#: R*_D of equation 5 of Muennighoff et al. 2023, "Scaling Data-Constrained Language Models", as fitted in appendix A.
REPETITION_DECAY = 15.387756


def gpu_hours_bought(by_money: int, gpu_hours: float, money: float, price_per_gpu_hour: float) -> float:
    """GPU-hours of a budget: given as such, or by the price of an hour in the same currency."""
    return money / price_per_gpu_hour if by_money == 1 else gpu_hours


def cost(gpu_hours_bought: float, price_per_gpu_hour: float) -> float:
    """What the GPU-hours cost, in the currency of their price."""
    return gpu_hours_bought * price_per_gpu_hour


def wall_clock_seconds(gpu_hours_bought: float, gpus: int) -> float:
    """Seconds that a run takes which uses that many GPUs at once."""
    return gpu_hours_bought * SECONDS_PER_HOUR / gpus


def tokens_bought(gpu_hours_bought: float, throughput: float) -> int:
    """Tokens that so many GPU-hours train on, at a throughput in tokens per second and GPU: 3600·h·r."""
    return round(gpu_hours_bought * SECONDS_PER_HOUR * throughput)


def gpu_hours_per_epoch(dataset_tokens: int, throughput: float) -> float:
    """GPU-hours of one pass over the data set."""
    return dataset_tokens / (SECONDS_PER_HOUR * throughput)


def worth_in_fresh_tokens(training_tokens: int, dataset_tokens: int) -> int:
    """Fresh tokens that would teach as much as `training_tokens` drawn from a data set that is repeated.

    D' = U + U·R*·(1 − e^(−R/R*)), with U the unique tokens seen and R = D/U − 1 the repetitions of each
    (Muennighoff et al. 2023, equation 5). A run that does not finish the first pass repeats nothing.
    """
    unique = min(training_tokens, dataset_tokens)
    repetitions = training_tokens / unique - 1
    return round(unique * (1 + REPETITION_DECAY * (1 - math.exp(-repetitions / REPETITION_DECAY))))


def pays_for_a_second(by_money: int, money: float, price_per_gpu_hour: float) -> bool:
    """Whether money buys at least a second of one GPU."""
    return by_money == 0 or money * SECONDS_PER_HOUR >= price_per_gpu_hour
