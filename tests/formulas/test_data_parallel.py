"""Data-parallel scaling against the bounds of all-reduce and a simulated ring."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit.formulas import data_parallel as dp


def ring(replicas: int, size: int) -> list[int]:
    """Bytes that each replica sends when a ring reduces and then gathers `size` bytes in as many chunks."""
    chunks = [size // replicas] * replicas
    sent = [0] * replicas
    for step in range(2 * (replicas - 1)):
        for replica in range(replicas):
            sent[replica] += chunks[(replica - step) % replicas]
    return sent


@pytest.mark.parametrize("replicas", [1, 2, 3, 8, 64])
def test_every_gpu_of_a_ring_sends_what_the_formula_says(replicas: int) -> None:
    size = replicas * 1000
    assert ring(replicas, size) == [dp.exchanged_bytes(replicas, size)] * replicas


@given(st.integers(2, 10**5), st.integers(1, 10**12))
def test_the_exchange_grows_towards_twice_the_gradients_and_never_reaches_it(g: int, size: int) -> None:
    assert size <= dp.exchanged_bytes(g, size) <= 2 * size
    assert dp.exchanged_bytes(g + 1, size) >= dp.exchanged_bytes(g, size)
    assert dp.exchanged_bytes(1, size) == 0


def step(g: int, size: int, bandwidth: float, t: float, a: int, overlap: float) -> tuple[float, float, float]:
    """(exposed seconds, efficiency, speed-up)."""
    exposed = dp.exposed_seconds(dp.exchange_seconds(dp.exchanged_bytes(g, size), bandwidth), t, overlap)
    computing = dp.compute_seconds(t, a)
    efficiency = dp.efficiency(computing, dp.step_seconds(computing, exposed))
    return exposed, efficiency, dp.speed_up(g, efficiency)


def test_seven_billion_bf16_gradients_over_eight_gpus() -> None:
    """14 GB over 8 GPUs are 24.5 GB each way; at 25 GB/s that is 0.98 s, as long as a micro-batch of 0.98 s."""
    assert dp.exchanged_bytes(8, 14 * 10**9) == 24.5e9
    bandwidth = dp.effective_bandwidth(50, 0.5, 0)
    assert dp.exchange_seconds(245 * 10**8, bandwidth) == pytest.approx(0.98)
    assert dp.effective_bandwidth(50, 0.5, 30) == 30
    assert step(8, 14 * 10**9, 25, 0.98, 1, 0) == pytest.approx((0.98, 0.5, 4))


@settings(deadline=None)
@given(
    st.integers(1, 4096),
    st.integers(1, 10**11),
    st.floats(1, 1000),
    st.floats(0.001, 100),
    st.integers(1, 1000),
    st.floats(0, 1),
)
def test_speed_up_is_bounded_by_the_replicas_and_grows_with_accumulation(
    g: int, size: int, bandwidth: float, t: float, a: int, overlap: float
) -> None:
    _, efficiency, speed_up = step(g, size, bandwidth, t, a, overlap)
    assert 0 < efficiency <= 1
    assert 0 < speed_up <= g
    assert step(g, size, bandwidth, t, a + 1, overlap)[1] >= efficiency
    assert step(g, size, bandwidth, t, a, 0)[1] <= efficiency


@given(st.floats(0, 100), st.floats(0.001, 100), st.floats(0.01, 0.99))
def test_the_steps_found_reach_the_efficiency_and_one_fewer_does_not(
    exposed: float, t: float, target: float
) -> None:
    a = dp.accumulation_steps_needed(exposed, t, target)
    assert a * t / (a * t + exposed) >= target * (1 - 1e-12)
    if a > 1:
        assert (a - 1) * t / ((a - 1) * t + exposed) < target * (1 + 1e-12)


def test_at_the_break_even_micro_batch_half_of_an_unhidden_step_is_exchange() -> None:
    exchange = dp.exchange_seconds(dp.exchanged_bytes(64, 2 * 10**9), 10)
    t = dp.break_even_seconds(exchange, 4)
    assert step(64, 2 * 10**9, 10, t, 4, 0)[1] == pytest.approx(0.5)
