"""Profiles from measured points."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit.calibrate import Point, calibrate, correct, fit_line
from batchfit.errors import BadInput
from batchfit.planning import plan
from batchfit.profile import MemoryProfile
from tests.planning.decoder import SMALL, decoder

GIB = 2**30


@given(st.integers(0, 10**11), st.integers(0, 10**10), st.sets(st.integers(1, 500), min_size=2, max_size=2))
def test_two_points_are_met_exactly(constant: int, slope: int, batches: set[int]) -> None:
    points = [Point(b, max(1, constant + slope * b)) for b in batches]
    made = calibrate(points)
    for point in points:
        # Coefficients are kept to a thousandth of a byte per sample.
        assert (
            abs(made.profile.peak(point.micro_batch, 4).allocated_bytes - point.nbytes)
            <= 1 + 0.001 * point.micro_batch
        )


def test_more_points_give_least_squares_and_what_is_left() -> None:
    points = [Point(1, 10 * GIB), Point(2, 13 * GIB), Point(3, 14 * GIB)]
    constant, slope = fit_line(points)
    assert constant / GIB == pytest.approx(25 / 3)
    assert slope / GIB == pytest.approx(2.0)
    made = calibrate(points)
    assert sum(made.residuals) == pytest.approx(0, abs=3)
    assert made.worst == pytest.approx(2 * GIB / 3, abs=2)
    assert made.profile.affinity.deviation == pytest.approx((2 / 3) / 13, rel=1e-3)


def test_a_calibrated_profile_plans_without_sharding_or_speed() -> None:
    made = calibrate([Point(2, 21 * GIB), Point(8, 57 * GIB)], "mine")
    again = MemoryProfile.from_json(made.profile.to_json())
    assert again == made.profile
    answer = plan(again, batch=64, gpu="h100-80gb", gpus=8)
    assert {each.sharding for each in answer.plans if each.replicas > 1} == {"ddp"}
    assert answer.best is not None
    assert (answer.best.micro_batch, answer.best.replicas) == (8, 8)
    assert answer.best.relative_step_time is None
    with pytest.raises(BadInput, match="sharding: must be ddp"):
        plan(again, batch=64, gpu="h100-80gb", gpus=8, sharding="fsdp")


@pytest.mark.parametrize(
    ("points", "complaint"),
    [
        ([], "two different micro-batches"),
        ([Point(4, GIB)], "two different micro-batches"),
        ([Point(4, GIB), Point(4, 2 * GIB)], "two different micro-batches"),
        ([Point(1, 2 * GIB), Point(2, GIB)], "grows with the micro-batch"),
        ([Point(1, 1), Point(100, 10 * GIB)], "negative size"),
    ],
)
def test_points_that_give_no_line(points: list[Point], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        calibrate(points)


@pytest.mark.parametrize(("batch", "size"), [(0, GIB), (-1, GIB), (1, 0), (1, -5)])
def test_points_that_are_none(batch: int, size: int) -> None:
    with pytest.raises(BadInput):
        Point(batch, size)


def test_a_point_corrects_the_overhead_and_nothing_else() -> None:
    profile = decoder(SMALL)
    measured = profile.peak(4, 1, 1024).allocated_bytes + 300 * 2**20
    made = correct(profile, [Point(4, measured)], 1024)
    corrected = made.profile.peak(4, 1, 1024)
    assert corrected.allocated_bytes == measured
    assert corrected.parts["overhead"] == 300 * 2**20
    assert made.profile.activation_per_sample == profile.activation_per_sample
    assert (
        made.profile.peak(9, 2, 2048).allocated_bytes
        == profile.peak(9, 2, 2048).allocated_bytes + 300 * 2**20
    )
    assert made.residuals == (0,)
    assert "nothing else was changed" in made.profile.assumptions[-1]


def test_a_point_far_below_the_profile_is_of_other_settings() -> None:
    profile = decoder(SMALL)
    with pytest.raises(BadInput, match="other settings"):
        correct(profile, [Point(4, profile.peak(4, 1, 1024).allocated_bytes // 2)], 1024)
    with pytest.raises(BadInput, match="there is none"):
        correct(profile, [], 1024)
