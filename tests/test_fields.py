"""Fields: one record reads what people type and refuses what it cannot use."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchfit import BadInput
from batchfit.calculators import load
from batchfit.fields import Field
from batchfit.languages import languages
from batchfit.numbers import format_compact
from batchfit.web.state import canonical, in_field
from tests.everything import CALCULATOR as EVERYTHING

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


EVERY = {field.name: field for field in EVERYTHING.fields}


@pytest.mark.parametrize(
    ("typed", "lang", "value", "spelled"),
    [
        ("7B", "en", 7_000_000_000, "7,000,000,000"),
        ("7 b", "en", 7_000_000_000, "7,000,000,000"),
        ("1.5B", "en", 1_500_000_000, "1,500,000,000"),
        ("1,5 Mrd.", "de", 1_500_000_000, "1.500.000.000"),
        ("500K", "en", 500_000, "500,000"),
        ("7e9", "en", 7_000_000_000, "7,000,000,000"),
        ("٧B", "ar", 7_000_000_000, "7,000,000,000"),
        ("8030261248", "fr", 8_030_261_248, "8\u202f030\u202f261\u202f248"),
        ("70億", "ja", 7_000_000_000, "7,000,000,000"),
        ("4.1億", "ja", 410_000_000, "410,000,000"),
        ("４．１億", "zh-Hant", 410_000_000, "410,000,000"),
        ("500萬", "zh-Hant", 5_000_000, "5,000,000"),
        ("80.3 亿", "zh-Hans", 8_030_000_000, "8,030,000,000"),
        ("1.5 万亿", "zh-Hans", 1_500_000_000_000, "1,500,000,000,000"),
        ("70억", "ko", 7_000_000_000, "7,000,000,000"),
        ("50만", "ko", 500_000, "500,000"),
        ("50千", "ja", 50_000, "50,000"),
        ("50百", "ja", 5_000, "5,000"),
        ("25 百", "zh-Hant", 2_500, "2,500"),
        ("30백", "ko", 3_000, "3,000"),
        ("50 千", "zh-Hans", 50_000, "50,000"),
        ("5천", "ko", 5_000, "5,000"),
        ("8,03 Milliarden", "de", 8_030_000_000, "8.030.000.000"),
        ("7 mil millones", "es", 7_000_000_000, "7.000.000.000"),
        ("70 mil", "pt-BR", 70_000, "70.000"),
        ("8,03 bi", "pt-BR", 8_030_000_000, "8.030.000.000"),
        ("1,5 Md", "fr", 1_500_000_000, "1\u202f500\u202f000\u202f000"),
        ("7 مليار", "ar", 7_000_000_000, "7,000,000,000"),
        ("7 billion", "en", 7_000_000_000, "7,000,000,000"),
        ("1 Billion", "de", 1_000_000_000_000, "1.000.000.000.000"),
        ("7B", "es", 7_000_000_000, "7.000.000.000"),
        ("1000", "en", 1000, ""),
    ],
)
def test_a_count_may_be_shortened_and_is_spelled_out(typed: str, lang: str, value: int, spelled: str) -> None:
    reading = EVERY["parameters"].read(typed, lang)
    assert (reading.value, reading.spelled) == (value, spelled)


#: Counts in several units, as both Python and JavaScript read it.
MIXED = json.loads((Path(__file__).parent / "cases/mixed_counts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", MIXED["read"], ids=lambda case: case["text"])
def test_a_count_in_several_units_is_read_as_one_of_the_first(case: dict[str, Any]) -> None:
    field = replace(EVERY["parameters"], minimum=0, maximum=10**16)
    reading = field.read(case["text"], case["lang"])
    assert reading.value == case["value"]
    assert reading.spelled == f"{case['value']:,}"
    assert in_field(field, reading, case["lang"]) == case["shown"]
    for other in languages():
        assert field.read(canonical(field, reading), other).value == case["value"]


@pytest.mark.parametrize("case", MIXED["refused"], ids=lambda case: f"{case['text']}-{case['lang']}")
def test_a_count_in_units_that_make_no_sense_is_refused(case: dict[str, Any]) -> None:
    field = replace(EVERY["parameters"], minimum=0, maximum=10**16)
    with pytest.raises(BadInput, match=f"you typed {re.escape(case['text'])}"):
        field.read(case["text"], case["lang"])


@pytest.mark.parametrize(
    ("lang", "typed"), [("en", "70億"), ("de", "70억"), ("ja", "5천"), ("fr", "7 Mrd X")]
)
def test_words_of_another_language_are_refused(lang: str, typed: str) -> None:
    with pytest.raises(BadInput):
        EVERY["parameters"].read(typed, lang)


@pytest.mark.parametrize(
    ("typed", "lang", "address", "shown"),
    [
        ("4.1億", "ja", "4.1e8", "4.1億"),
        ("41萬", "zh-Hant", "41e4", "41萬"),
        ("2.125억", "ko", "2.1250e8", "2.125억"),
        ("7 Mrd.", "de", "7B", "7B"),
        ("2조", "ko", "2T", "2T"),
        ("30百", "zh-Hans", "30e2", "30百"),
        ("30백", "ko", "30e2", "30백"),
    ],
)
def test_an_address_says_it_for_every_language(typed: str, lang: str, address: str, shown: str) -> None:
    field = replace(EVERY["parameters"], maximum=10**13)
    reading = field.read(typed, lang)
    assert canonical(field, reading) == address
    assert in_field(field, reading, lang) == shown
    for other in languages():
        assert field.read(address, other).value == reading.value


@pytest.mark.parametrize("lang", languages())
def test_what_is_written_short_reads_back(lang: str) -> None:
    """Every language's own short form, but Spain's: its "B" is a million millions, and 7B the name of a size."""
    field = replace(EVERY["parameters"], maximum=10**16)
    for value in (10**6, 8_030_000_000, 410_000_000, 15 * 10**12):
        if (lang, value) != ("es", 15 * 10**12):
            assert field.read(format_compact(value, lang), lang).value == value


@pytest.mark.parametrize("typed", ["1.23456789K", "7X", "B", "7BB", "20T", "7 B B"])
def test_what_is_no_whole_count_is_refused(typed: str) -> None:
    assert refusal(EVERY["parameters"], typed).startswith("must be a whole number from 1,000 to")


def test_a_field_without_suffixes_takes_none() -> None:
    assert "you typed 4K" in refusal(BATCH, "4K")


@pytest.mark.parametrize(
    ("typed", "lang", "value"),
    [("30", "en", 0.3), ("30%", "en", 0.3), ("30 %", "de", 0.3), ("12,5 %", "fr", 0.125), ("٣٠٪", "ar", 0.3)],
)
def test_a_share_is_read_as_a_percentage(typed: str, lang: str, value: float) -> None:
    assert EVERY["shard"].read(typed, lang).value == value


def test_a_bare_share_is_what_its_field_says() -> None:
    fraction = replace(EVERY["shard"], unit="")
    assert fraction.read("0.3").value == fraction.read("30 %").value == 0.3
    assert refusal(fraction, "30") == (
        "must be a percentage from 1 % to 100 %, or a fraction such as 0.3; you typed 30"
    )
    assert refusal(EVERY["shard"], "0.3") == "must be a percentage from 1 to 100; you typed 0.3"


@pytest.mark.parametrize(
    ("typed", "unit", "seconds"),
    [
        ("90", None, 90),
        ("1.5h", None, 5400),
        ("250 ms", None, 0.25),
        ("2", "min", 120),
        ("0.5 days", None, 43200),
    ],
)
def test_a_duration_is_read_in_its_own_unit_or_the_chosen_one(
    typed: str, unit: str | None, seconds: float
) -> None:
    assert EVERY["step_time"].read(typed, "en", unit).value == seconds


def test_a_duration_out_of_bounds_is_told_in_the_fields_unit() -> None:
    assert refusal(EVERY["step_time"], "3d") == "must be a duration from 0.001 to 86,400 s; you typed 3d"


def test_a_choice_is_one_of_its_values_and_binds_numbers() -> None:
    field = EVERY["precision"]
    assert field.read(" FP32 ").value == "fp32"
    assert field.numbers("fp32") == {"weight_bytes": 4}
    assert refusal(field, "fp8") == "must be one of bf16, fp32; you typed fp8"
    assert refusal(field, "bf16,fp32") == "must be one of bf16, fp32; you typed bf16,fp32"
    assert refusal(field, "") == "Choose at least one"


def test_of_several_choices_those_not_taken_are_zero() -> None:
    field = EVERY["modules"]
    assert field.read("k, Q").value == ("q", "k")
    assert field.numbers(("k",)) == {"q": 0, "k": 1}
    assert refusal(field, " , ") == "Choose at least one"
    assert refusal(field, "q,x") == "must be some of q, k, with commas between them; you typed q,x"
    assert replace(field, minimum=0).read("").value == ()


def test_an_optional_field_gives_formulas_its_number_when_empty() -> None:
    field = EVERY["budget"]
    assert field.read("").value is None
    assert field.numbers(None) == {"budget": 0}
    assert field.default_value() is None
    assert field.numbers(5000) == {"budget": 5000}
