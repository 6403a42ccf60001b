"""Bytes parsed and printed: decimal and binary units stay apart."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit import BadInput
from batchfit.units import UNITS, format_bytes, parse_bytes, split_unit, to_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0.5GB", 500_000_000),
        ("0.5 GiB", 536_870_912),
        ("512MiB", 536_870_912),
        ("80gb", 80_000_000_000),
        ("2", 2_000_000_000),
        ("100 bytes", 100),
        ("0,5 Go", 500_000_000),
        ("512 Mio", 536_870_912),
        ("100 octets", 100),
        ("1,5GB", 1_500_000_000),
        ("1e-3 TB", 1_000_000_000),
        ("0.1234567891GB", 123_456_789),
    ],
)
def test_sizes_are_read_to_the_byte(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "1 GX", "nan GB", "inf", "five", "1e99999 GB", "1e999999999"])
def test_what_is_no_size_is_restated(text: str) -> None:
    with pytest.raises(BadInput) as wrong:
        parse_bytes(text, field="capacity")
    assert str(wrong.value) == f"capacity: must be a size such as 0.5GB or 512MiB; you typed {text!r}"


def test_gb_and_gib_differ_by_seven_percent() -> None:
    assert UNITS["GiB"] / UNITS["GB"] == 1.073741824


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (2**31, None, "2 GiB"),
        (72_434_623_283, None, "67.46 GiB"),
        (500_000_000, "GB", "0.5 GB"),
        (2_000_000_000, "GB", "2 GB"),
        (0, None, "0 B"),
        (1023, None, "1023 B"),
        (1536, None, "1.5 KiB"),
        (-(2**30), None, "-1 GiB"),
        (123_456_789_012_345, "GB", "123,457 GB"),
        (1_234_000, "GB", "0.001 GB"),
    ],
)
def test_sizes_are_printed_with_their_unit(count: int, unit: str | None, text: str) -> None:
    assert format_bytes(count, unit) == text


@given(st.integers(0, 10**18), st.sampled_from(sorted(UNITS)))
def test_a_size_in_any_unit_comes_back_exactly(count: int, unit: str) -> None:
    assert to_bytes(Decimal(count) / UNITS[unit], unit) == count


def test_an_unknown_unit_stays_with_the_number() -> None:
    assert split_unit("3 GX", "GB") == ("3 GX", "GB")
    assert split_unit("3", "GiB") == ("3", "GiB")
