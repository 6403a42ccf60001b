"""Data-parallel scaling: what exchanging the gradients costs beside computing them.

Each replica computes the micro-batches of a step, then all replicas exchange the summed gradients once. The exchange
runs while the last micro-batch's backward pass still does; what does not fit under that is waited for.
"""

from __future__ import annotations

import math

GIGA = 10**9


def effective_bandwidth(nominal_bandwidth: float, bandwidth_share: float, measured_bandwidth: float) -> float:
    """GB/s that each GPU sends while it receives as many: the measured ones where known (above 0), else a share of
    the link's nominal ones. What nccl-tests print as "busbw" is this figure."""
    return measured_bandwidth if measured_bandwidth > 0 else nominal_bandwidth * bandwidth_share


def exchanged_bytes(replicas: int, gradients: int) -> int:
    """Bytes that each GPU sends, and receives, in one all-reduce of `gradients` bytes: 2·(g − 1)/g·G.

    A reduce-scatter and an all-gather move (g − 1)/g of the buffer each. No all-reduce can send less
    (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
    """
    return round(2 * (replicas - 1) * gradients / replicas)


def exchange_seconds(exchanged_bytes: int, bandwidth: float) -> float:
    """Seconds of one exchange at `bandwidth` GB/s each way."""
    return exchanged_bytes / (bandwidth * GIGA)


def compute_seconds(micro_batch_seconds: float, accumulation_steps: int) -> float:
    """Seconds that a replica computes for one optimizer step: a·t."""
    return micro_batch_seconds * accumulation_steps


def exposed_seconds(exchange_seconds: float, micro_batch_seconds: float, overlap: float) -> float:
    """Seconds that all replicas wait for the exchange: what exceeds the share `overlap` of one micro-batch's time.

    DistributedDataParallel starts to send a bucket of gradients as soon as backward has filled it, and under no_sync
    only in the last micro-batch (Li et al. 2020, "PyTorch Distributed", section 3.2).
    """
    return max(0, exchange_seconds - overlap * micro_batch_seconds)


def step_seconds(compute_seconds: float, exposed_seconds: float) -> float:
    """Seconds of one optimizer step, the optimizer's own arithmetic left out."""
    return compute_seconds + exposed_seconds


def efficiency(compute_seconds: float, step_seconds: float) -> float:
    """Share of the step in which the GPUs compute: the speed-up as a share of the number of replicas."""
    return compute_seconds / step_seconds


def speed_up(replicas: int, efficiency: float) -> float:
    """How many times the samples per second of one GPU, each replica keeping its micro-batch and steps."""
    return replicas * efficiency


def break_even_seconds(exchange_seconds: float, accumulation_steps: int) -> float:
    """The micro-batch's time at which the exchange takes as long as computing the step; below, it takes longer."""
    return exchange_seconds / accumulation_steps


def accumulation_steps_needed(
    exposed_seconds: float, micro_batch_seconds: float, target_efficiency: float
) -> int:
    """The fewest accumulation steps of which `target_efficiency` or more is computing: ⌈w/t·η/(1 − η)⌉.

    The wait w is the same however many steps are accumulated, so a·t/(a·t + w) ≥ η solves for a. The target is below
    1. At least 1.
    """
    waited = exposed_seconds / micro_batch_seconds
    return max(1, math.ceil(waited * target_efficiency / (1 - target_efficiency)))
