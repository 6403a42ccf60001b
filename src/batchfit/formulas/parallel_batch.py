"""Which GPUs multiply the batch: those that hold one copy of the model together count as one replica."""

from __future__ import annotations


def gpus_per_replica(tensor_parallel: int, pipeline_parallel: int, context_parallel: int) -> int:
    """GPUs that work on the same samples: t·p·c."""
    return tensor_parallel * pipeline_parallel * context_parallel


def data_parallel_replicas(gpus: int, gpus_per_replica: int) -> int:
    """Whole copies of the model that the GPUs hold, n / (t·p·c) rounded down."""
    return gpus // gpus_per_replica


def idle_gpus(gpus: int, gpus_per_replica: int) -> int:
    """GPUs left over when the copies are made up."""
    return gpus % gpus_per_replica


def tokens_per_step(effective_batch_size: int, sequence_length: int) -> int:
    """Tokens that contribute to one optimizer step, where every sample has `sequence_length` of them."""
    return effective_batch_size * sequence_length


def steps_per_epoch(samples: int, effective_batch_size: int) -> int:
    """Optimizer steps that see every sample once; the last may be an incomplete batch."""
    return -(-samples // effective_batch_size)


def last_step_samples(samples: int, effective_batch_size: int, steps_per_epoch: int) -> int:
    """Samples of an epoch's last step."""
    return samples - (steps_per_epoch - 1) * effective_batch_size


def holds_a_replica(gpus: int, tensor_parallel: int, pipeline_parallel: int, context_parallel: int) -> bool:
    """Whether the GPUs are enough for one copy of the model."""
    return gpus >= gpus_per_replica(tensor_parallel, pipeline_parallel, context_parallel)
