"""Activation memory of one micro-batch."""

from __future__ import annotations


def activation_memory_bytes(micro_batch: int, activation_per_sample: int) -> int:
    """Bytes that a micro-batch's activations take on each GPU at their peak: M = b·A.

    `activation_per_sample` is in bytes. The accumulation steps do not appear: each micro-batch's activations
    are freed by its own backward pass before the next one starts.
    """
    return micro_batch * activation_per_sample
