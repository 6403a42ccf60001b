"""The pipeline's formulas against schedules run on a clock, and against figures of the papers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit.formulas import pipeline
from batchfit.formulas.pipeline import GPIPE, INTERLEAVED, ONE_F_ONE_B, ZB_H1, ZB_H2
from tests.formulas import schedules
from tests.formulas.both import both
from tests.formulas.schedules import Orders

#: Backward takes twice as long as forward; where it is split, all three parts take the same.
WHOLE = {"F": Fraction(1), "B": Fraction(2)}
SPLIT = {"F": Fraction(1), "B": Fraction(1), "W": Fraction(1)}


def simulated(schedule: int, p: int, m: int, v: int) -> tuple[Orders, dict[str, Fraction]]:
    if schedule == GPIPE:
        return schedules.gpipe(p, m), WHOLE
    if schedule == ONE_F_ONE_B:
        return schedules.one_f_one_b(p, m), WHOLE
    if schedule == INTERLEAVED:
        return schedules.interleaved(p, m, v), WHOLE
    return schedules.zero_bubble(p, m, ahead=1 if schedule == ZB_H1 else 2), SPLIT


def share(schedule: int, p: int, m: int, v: int = 2) -> float:
    chunks = both(pipeline.chunks_per_stage, schedule, v)
    result: float = both(pipeline.bubble_share, p, m, chunks, both(pipeline.bubble_weight, schedule))
    return result


CASES = [
    (schedule, p, m, v)
    for p in (2, 4, 5)
    for m in (p, 2 * p, 4 * p)
    for schedule, v in (
        (GPIPE, 1),
        (ONE_F_ONE_B, 1),
        (INTERLEAVED, 2),
        (INTERLEAVED, 3),
        (ZB_H1, 1),
    )
]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), CASES)
def test_stages_stand_idle_as_long_as_on_a_clock(schedule: int, p: int, m: int, v: int) -> None:
    orders, times = simulated(schedule, p, m, v)
    span = schedules.makespan(orders, times)
    busy = m * sum(times.values())
    assert share(schedule, p, m, v) == pytest.approx(float((span - busy) / span))
    chunks, weight = pipeline.chunks_per_stage(schedule, v), pipeline.bubble_weight(schedule)
    assert both(pipeline.step_slowdown, p, m, chunks, weight) == pytest.approx(float(span / busy))


@pytest.mark.parametrize(("schedule", "p", "m", "v"), CASES)
def test_stages_hold_as_many_micro_batches_as_on_a_clock(schedule: int, p: int, m: int, v: int) -> None:
    orders, _ = simulated(schedule, p, m, v)
    chunks = pipeline.chunks_per_stage(schedule, v)
    for stage, order in enumerate(orders, 1):
        most = both(pipeline.in_flight, schedule, p, m, chunks, stage)
        assert most == pytest.approx(float(schedules.most_in_flight(order)))


def test_eight_stages_and_32_micro_batches() -> None:
    assert round(share(ONE_F_ONE_B, 8, 32), 4) == 0.1795
    assert share(GPIPE, 8, 32) == share(ONE_F_ONE_B, 8, 32)
    assert share(ZB_H2, 8, 32) == 0


def test_interleaving_divides_the_bubble_by_the_chunks() -> None:
    """Narayanan et al. 2021, section 2.2.2: (p - 1)/m of the ideal time becomes (p - 1)/(v·m)."""
    assert both(pipeline.step_slowdown, 8, 32, 1, 1) == 1 + 7 / 32
    assert both(pipeline.step_slowdown, 8, 32, 4, 1) == 1 + 7 / 128


@given(st.integers(2, 128), st.integers(2, 16))
def test_the_first_stage_of_an_interleaved_pipeline_holds_what_is_published(p: int, v: int) -> None:
    """Korthikanti et al. 2022, section 4.2.3: L·(1 + (p - 1)/(p·v)) layers' worth, so p times that of a stage."""
    most = pipeline.in_flight(INTERLEAVED, p, 10**6, v, 1)
    assert most == pytest.approx(p * (1 + (p - 1) / (p * v)))


@pytest.mark.parametrize("p", [2, 4, 5, 8])
def test_zb_h2_leaves_no_gap_on_any_stage_and_holds_what_is_published(p: int) -> None:
    """Qi et al. 2024, table 2: no bubble between a stage's first operation and its last, and 2·p - 1 micro-batches.

    Stages begin and end one after the other, so the next step must not wait for all of them.
    """
    m = 4 * p
    orders, times = simulated(ZB_H2, p, m, 1)
    assert [end - begin for begin, end in schedules.spans(orders, times)] == [3 * m] * p
    for stage, order in enumerate(orders, 1):
        assert both(pipeline.in_flight, ZB_H2, p, m, 1, stage) == schedules.most_in_flight(order) == 2 * p - 1


def test_no_stage_holds_more_micro_batches_than_there_are() -> None:
    for schedule in (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_H2):
        assert both(pipeline.in_flight, schedule, 8, 3, 2, 1) <= 3


def test_a_single_stage_is_never_idle() -> None:
    for schedule in (GPIPE, ONE_F_ONE_B, ZB_H1, ZB_H2):
        assert share(schedule, 1, 1) == 0


def needed(schedule: int, p: int, v: int, limit: float) -> int:
    chunks, weight = pipeline.chunks_per_stage(schedule, v), pipeline.bubble_weight(schedule)
    multiple = both(pipeline.micro_batch_multiple, schedule, p)
    result: int = both(pipeline.micro_batches_needed, p, chunks, weight, multiple, limit)
    return result


def test_micro_batches_for_a_bubble_of_five_percent() -> None:
    """7·0.95/0.05 = 133, which must not become 134 by rounding."""
    assert needed(ONE_F_ONE_B, 8, 1, 0.05) == 133
    assert needed(INTERLEAVED, 8, 2, 0.05) == 72
    assert needed(ZB_H2, 8, 1, 0.05) == 1


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_H2]),
    st.integers(1, 64),
    st.integers(2, 8),
    st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5]) | st.floats(0.001, 0.9),
)
def test_the_micro_batches_needed_are_the_fewest(schedule: int, p: int, v: int, limit: float) -> None:
    chunks, weight = pipeline.chunks_per_stage(schedule, v), pipeline.bubble_weight(schedule)
    m, unit = needed(schedule, p, v, limit), pipeline.micro_batch_multiple(schedule, p)
    assert m % unit == 0
    assert pipeline.bubble_share(p, m, chunks, weight) <= limit * (1 + 1e-8)
    if m > unit:
        assert pipeline.bubble_share(p, m - unit, chunks, weight) > limit


def test_activations_in_flight_are_whole_bytes() -> None:
    assert both(pipeline.activation_memory_bytes, 11.5, 3) == 35
