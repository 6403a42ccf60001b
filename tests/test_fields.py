"""Fields: one record reads what people type and refuses what it cannot use."""

import pytest

from batchfit import BadInput
from batchfit.calculators import load
from batchfit.fields import Field

BATCH = load("gradient-accumulation").field("micro_batch")
SIZE = load("gradient-accumulation").field("activation_per_sample")


def refusal(field: Field, text: str, lang: str = "en") -> str:
    with pytest.raises(BadInput) as wrong:
        field.read(text, lang)
    assert wrong.value.field == field.name
    return wrong.value.reason


def test_a_whole_number_is_read_and_may_be_grouped() -> None:
    assert BATCH.read("4").value == 4
    assert BATCH.read("1,048,576").value == 2**20
    assert BATCH.read("1.048.576", "de").value == 2**20
    assert BATCH.read("8.0").value == 8


@pytest.mark.parametrize("typed", ["2.5", "0", "-4", "1048577", "four", "4 4 x", "1e30"])
def test_what_is_no_whole_number_in_bounds_is_refused_with_the_bounds(typed: str) -> None:
    assert refusal(BATCH, typed) == f"must be a whole number from 1 to 1,048,576; you typed {typed}"


def test_an_empty_field_asks_for_a_value() -> None:
    assert refusal(BATCH, "  ") == "Enter a value to see results"


@pytest.mark.parametrize(
    ("typed", "unit", "count"),
    [
        ("0.5", None, 500_000_000),
        ("0,5", None, 500_000_000),
        ("0.5", "GiB", 536_870_912),
        ("0.5GiB", "GB", 536_870_912),
        ("512 MiB", None, 536_870_912),
        ("0", None, 0),
    ],
)
def test_a_size_is_read_in_its_own_unit_or_the_chosen_one(typed: str, unit: str | None, count: int) -> None:
    assert SIZE.read(typed, "en", unit).value == count


def test_a_size_out_of_bounds_is_told_in_the_fields_unit() -> None:
    assert refusal(SIZE, "2 PB") == "must be a size from 0 to 1,000,000 GB; you typed 2 PB"
    assert refusal(SIZE, "-1") == "must be a size from 0 to 1,000,000 GB; you typed -1"
    assert refusal(SIZE, "3 GX") == "must be a size from 0 to 1,000,000 GB; you typed 3 GX"


def test_what_is_ambiguous_is_decided_by_language_and_marked() -> None:
    german, english = SIZE.read("1.500", "de"), SIZE.read("1.500", "en")
    assert (german.value, german.ambiguous) == (1500 * 10**9, True)
    assert english.value == 1_500_000_000


def test_a_field_knows_its_option_and_its_key() -> None:
    assert (BATCH.option, BATCH.key) == ("--micro-batch", "micro_batch")
    assert (SIZE.option, SIZE.key) == ("--activation-per-sample", "activation_per_sample_bytes")
    assert SIZE.default_value() == 500_000_000
