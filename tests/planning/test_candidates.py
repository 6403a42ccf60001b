"""The factorings of a target, against a search that tries everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit.batch import factorings
from batchfit.errors import BadInput
from batchfit.planning.candidates import candidates
from batchfit.planning.target import Target


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 64), st.integers(1, 3000))
def test_exact_targets_have_the_factorings_that_batch_finds(batch: int, replicas: int, most: int) -> None:
    micro, steps = candidates(Target(batch, batch, batch), replicas, most_micro_batch=most)
    expected = {
        (found.micro_batch, found.accumulation_steps)
        for found in factorings(batch, max_micro_batch=most, max_replicas=replicas)
        if found.replicas == replicas
    }
    assert set(zip(micro.tolist(), steps.tolist(), strict=True)) == expected
    assert len(micro) == len(expected)


@settings(deadline=None)
@given(
    st.integers(1, 200),
    st.integers(0, 30),
    st.integers(1, 9),
    st.integers(1, 200),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
)
def test_a_tolerance_finds_every_pair_within_it_once(
    batch: int, slack: int, replicas: int, most: int, micro: int | None, steps: int | None, limit: int | None
) -> None:
    target = Target(batch, max(1, batch - slack), batch + slack)
    found = candidates(
        target,
        replicas,
        most_micro_batch=most,
        micro_batch=micro,
        accumulation_steps=steps,
        most_accumulation_steps=limit,
    )
    expected = [
        (b, a)
        for b in range(1, most + 1)
        for a in range(1, target.high + 1)
        if target.low <= b * a * replicas <= target.high
        and (micro is None or b == micro)
        and (steps is None or a == steps)
        and (limit is None or a <= limit)
    ]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


def test_a_tolerance_that_leaves_too_many_is_refused() -> None:
    with pytest.raises(BadInput, match=r"tolerance: leaves [0-9,]+ ways"):
        candidates(Target(10**7, 1, 2 * 10**7), 1, most_micro_batch=10**7)
