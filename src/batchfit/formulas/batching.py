"""Batch arithmetic: how micro-batch size, accumulation steps and replicas make an effective batch."""

from __future__ import annotations


def effective_batch_size(micro_batch: int, accumulation_steps: int, replicas: int) -> int:
    """Samples that contribute to one optimizer step: E = b·a·g.

    Each of g data-parallel replicas runs a micro-batches of b samples before the gradients are applied.
    """
    return micro_batch * accumulation_steps * replicas


def accumulation_steps_below(target_batch: int, micro_batch: int, replicas: int) -> int:
    """The most accumulation steps whose effective batch does not exceed `target_batch`; at least 1."""
    return max(1, target_batch // (micro_batch * replicas))


def accumulation_steps_above(target_batch: int, micro_batch: int, replicas: int) -> int:
    """The fewest accumulation steps whose effective batch reaches `target_batch`."""
    return -(-target_batch // (micro_batch * replicas))


def accumulation_steps_nearest(target_batch: int, micro_batch: int, replicas: int) -> int:
    """The accumulation steps whose effective batch is nearest to `target_batch`; of two equally near, the fewer."""
    below = accumulation_steps_below(target_batch, micro_batch, replicas)
    above = accumulation_steps_above(target_batch, micro_batch, replicas)
    missing = target_batch - effective_batch_size(micro_batch, below, replicas)
    surplus = effective_batch_size(micro_batch, above, replicas) - target_batch
    return above if surplus < missing else below


def drift(effective_batch_size: int, target_batch: int) -> int:
    """Samples by which the effective batch misses the target: positive when it is larger."""
    return effective_batch_size - target_batch
