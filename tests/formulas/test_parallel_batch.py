"""Which parallel dimensions multiply the batch: against published runs, and against the plain batch arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit.formulas import batching, parallel_batch
from tests.formulas.both import both


@pytest.mark.parametrize(
    ("gpus", "tensor", "pipeline", "context", "published"),
    [
        # Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 4: data-parallel degrees of 405B.
        (8192, 8, 16, 1, 64),
        (16384, 8, 16, 1, 128),
        (16384, 8, 16, 16, 8),
        # Narayanan et al. 2021, table 1: 1T on 3072 GPUs, tensor 8 and pipeline 64.
        (3072, 8, 64, 1, 6),
    ],
)
def test_replicas_as_published(gpus: int, tensor: int, pipeline: int, context: int, published: int) -> None:
    shared = both(parallel_batch.gpus_per_replica, tensor, pipeline, context)
    assert both(parallel_batch.data_parallel_replicas, gpus, shared) == published
    assert both(parallel_batch.idle_gpus, gpus, shared) == 0


def test_llama_3_takes_16_million_tokens_a_step() -> None:
    """The same table: batch per data-parallel group 32, 16 and 16; sequences of 8192 and 131,072 tokens."""
    assert [
        both(parallel_batch.tokens_per_step, batching.effective_batch_size(batch, 1, replicas), length)
        for batch, replicas, length in ((32, 64, 8192), (16, 128, 8192), (16, 8, 131_072))
    ] == [16 * 2**20] * 3


@given(st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 64), st.integers(1, 16))
def test_every_gpu_is_in_a_replica_or_left_over(gpus: int, t: int, p: int, c: int) -> None:
    shared = parallel_batch.gpus_per_replica(t, p, c)
    replicas = parallel_batch.data_parallel_replicas(gpus, shared)
    left = parallel_batch.idle_gpus(gpus, shared)
    assert replicas * shared + left == gpus
    assert 0 <= left < shared


@given(st.integers(1, 10**12), st.integers(1, 10**6))
def test_the_last_step_takes_what_is_left(samples: int, batch: int) -> None:
    steps = parallel_batch.steps_per_epoch(samples, batch)
    last = parallel_batch.last_step_samples(samples, batch, steps)
    assert (steps - 1) * batch + last == samples
    assert 1 <= last <= batch


def test_a_thousand_samples_in_batches_of_32() -> None:
    assert both(parallel_batch.steps_per_epoch, 1000, 32) == 32
    assert both(parallel_batch.last_step_samples, 1000, 32, 32) == 8
