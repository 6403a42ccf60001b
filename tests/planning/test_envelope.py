"""Peaks of arrays of micro-batches are those of the profile itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit.planning.envelope import Envelope, allocated
from batchfit.profile import NO_LIMIT, MemoryProfile
from tests.planning.decoder import SMALL, decoder, family


@settings(deadline=None)
@given(st.sampled_from(family(SMALL)), st.integers(512, 16384), st.booleans(), st.integers(0, 10**11))
def test_arrays_agree_with_the_profile(
    profile: MemoryProfile, seq_len: int, accumulates: bool, capacity: int
) -> None:
    envelope, steps = Envelope(profile, seq_len), 2 if accumulates else 1
    micro = np.array([1, 2, 3, 7, 8, 64, 1000])
    peaks = envelope.allocated(micro, accumulates)
    reserved = envelope.reserved(micro, peaks, accumulates)
    assert reserved is not None
    for index, micro_batch in enumerate(micro.tolist()):
        peak = profile.peak(micro_batch, steps, seq_len)
        assert peaks[index] == peak.allocated_bytes
        assert int(reserved[index]) == pytest.approx(peak.reserved_bytes, rel=1e-9)
    assert envelope.largest(capacity, accumulates) == profile.largest_micro_batch(capacity, steps, seq_len)


def test_several_profiles_at_once_take_what_each_takes_alone() -> None:
    micro = np.array([1, 2, 7, 1000])
    envelopes = [Envelope(profile, 2048) for profile in family(SMALL)]
    for accumulates in (False, True):
        rows = allocated(envelopes, micro, accumulates)
        for envelope, row in zip(envelopes, rows, strict=True):
            assert row.tolist() == envelope.allocated(micro, accumulates).tolist()


def test_a_profile_that_was_never_replayed_has_no_reserved_peak() -> None:
    envelope = Envelope(decoder(SMALL, reserved=None), 1024)
    micro = np.array([1, 2])
    assert envelope.reserved(micro, envelope.allocated(micro, True), True) is None


@pytest.mark.parametrize("accumulates", [False, True])
def test_nothing_that_grows_has_no_limit(accumulates: bool) -> None:
    profile = decoder(SMALL)
    flat = MemoryProfile(
        **{f: getattr(profile, f) for f in MemoryProfile.__slots__ if f != "phases"},
        phases={"optimizer_step": profile.phases["optimizer_step"]},
    )
    assert Envelope(flat, 1024).largest(10**12, accumulates) == NO_LIMIT
    assert Envelope(flat, 1024).largest(10, accumulates) == 0


def test_more_bytes_than_64_bits_hold_are_still_more_than_any_card_has() -> None:
    envelope = Envelope(decoder(SMALL), 16384)
    micro = np.array([10**9, 10**12])
    peaks = envelope.allocated(micro, True)
    reserved = envelope.reserved(micro, peaks, True)
    assert reserved is not None
    assert min(*peaks, *reserved) > 10**18
