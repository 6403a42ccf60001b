"""Numbers in every language: what is read, what is written, and that the page's JavaScript does the same."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from babel import Locale
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit.errors import BadInput
from batchfit.languages import languages
from batchfit.numbers import (
    LONGEST,
    decimal_text,
    entry_text,
    format_compact,
    format_figure,
    format_number,
    format_percent,
    magnitudes,
    percent_sign,
    read_number,
    symbols,
)
from batchfit.units import UNITS, to_bytes
from tests.emit.node import STATIC, Thrown, evaluate

NUMBERS_JS = STATIC / "numbers.js"
CASES = json.loads((Path(__file__).parent / "cases/numbers.json").read_text(encoding="utf-8"))
LANGUAGES = ["en", "de", "es", "fr", "pt-BR", "ar", "ja", "ko", "zh-Hans", "zh-Hant"]


def outcome(text: str, locale: str) -> dict[str, object]:
    """What Python reads, as the cases say it."""
    try:
        read = read_number(text, locale)
    except BadInput as error:
        return {"error": error.template}
    return {"value": decimal_text(read.value), "ambiguous": read.ambiguous, "echo": read.echo}


def outcome_in_page(result: Any) -> dict[str, object]:
    """What JavaScript reads, as the cases say it."""
    if isinstance(result, Thrown):
        return {"error": result.properties["template"]}
    assert result.pop("number") == float(result["value"])
    return dict(result)


def expected(case: dict[str, Any]) -> dict[str, object]:
    return {key: case[key] for key in ("value", "ambiguous", "echo", "error") if key in case}


# ---- Reading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES["readings"], ids=lambda case: f"{case['locale']}:{case['text']!a}")
def test_reads(case: dict[str, Any]) -> None:
    assert outcome(case["text"], case["locale"]) == expected(case)


def test_page_reads_the_same_cases() -> None:
    cases = CASES["readings"]
    results = evaluate(NUMBERS_JS, "readNumber", [[case["text"], case["locale"]] for case in cases])
    assert [(case["text"], outcome_in_page(r)) for case, r in zip(cases, results, strict=True)] == [
        (case["text"], expected(case)) for case in cases
    ]


def test_every_character_means_the_same_to_python_and_to_the_page() -> None:
    """The two tables of spaces, apostrophes, signs and digits are equal: each character, in every place."""
    characters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    characters += [chr(code) for code in range(0x10000, 0x110000) if chr(code).isdecimal()]
    texts = [pattern.replace("?", c) for c in characters for pattern in ("1?000", "?5")]
    results = evaluate(NUMBERS_JS, "readNumber", [[text, "de"] for text in texts])
    different = [
        (text, outcome(text, "de"), outcome_in_page(result))
        for text, result in zip(texts, results, strict=True)
        if outcome(text, "de") != outcome_in_page(result)
    ]
    assert different == []


typed = st.text("0123456789.,' _-+e٫٬٣０×^⁹\u00a0\u202f’", max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(typed, st.sampled_from(LANGUAGES)), min_size=50, max_size=200))
def test_page_reads_what_python_reads(typed: list[tuple[str, str]]) -> None:
    results = evaluate(NUMBERS_JS, "readNumber", typed)
    assert list(map(outcome_in_page, results)) == [outcome(*each) for each in typed]


@given(st.text(max_size=80), st.sampled_from(LANGUAGES))
def test_any_text_is_a_number_or_bad_input(text: str, language: str) -> None:
    found = outcome(text, language)
    assert "error" in found or Decimal(str(found["value"])).is_finite()


@given(
    st.decimals(min_value=-(10**12), max_value=10**12, places=4, allow_nan=False),
    st.sampled_from(LANGUAGES),
    st.booleans(),
)
def test_what_is_written_is_read_back(value: Decimal, language: str, grouping: bool) -> None:
    text = format_number(value, language, max_fraction=4, grouping=grouping)
    assert read_number(text, language).value == value


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.builds(
                lambda digits, power: Decimal(digits).scaleb(power),
                st.integers(-(10**20), 10**20),
                st.integers(-12, 40),
            ),
            st.sampled_from(LANGUAGES),
        ),
        min_size=50,
        max_size=100,
    )
)
def test_what_stands_in_an_entry_field_is_exact_and_the_same_in_the_page(
    values: list[tuple[Decimal, str]],
) -> None:
    written = [entry_text(value, lang) for value, lang in values]
    assert written == evaluate(NUMBERS_JS, "entryText", [[decimal_text(v), lang] for v, lang in values])
    for (value, lang), text in zip(values, written, strict=True):
        assert read_number(text, lang)[::2] == (value, text)
        assert "e" in text or not text.endswith("0" * 15)


@given(st.decimals(min_value=-(10**9), max_value=10**9, allow_nan=False), st.sampled_from(LANGUAGES))
def test_the_echo_is_never_ambiguous_for_whole_numbers(value: Decimal, language: str) -> None:
    whole = int(value)
    again = read_number(read_number(str(whole), language).echo, language)
    assert (again.whole, again.ambiguous) == (whole, False)


def test_whole() -> None:
    assert read_number("4,0", "de").whole == 4
    assert read_number("2.5").whole is None
    assert read_number("1e30").whole == 10**30


def test_messages() -> None:
    def message(text: str) -> str:
        with pytest.raises(BadInput) as caught:
            read_number(text, "en", field="micro_batch")
        return str(caught.value)

    assert message("four") == 'micro_batch: must be a number such as 0.5; you typed "four"'
    assert message("\t") == "micro_batch: is empty; enter a number such as 0.5"
    assert message("1e400") == 'micro_batch: is too large or too close to zero; you typed "1e400"'
    assert message("1" * 65) == "micro_batch: must be a number of at most 64 characters; you typed 65"
    assert message("\x1b[2Jx\n{y}") == 'micro_batch: must be a number such as 0.5; you typed "\ufffd[2Jx {y}"'


def test_what_was_typed_is_cut_where_it_is_long() -> None:
    invisible = "\u200b" * 200
    with pytest.raises(BadInput) as caught:
        read_number("x" + invisible)
    assert len(str(caught.value.params["typed"])) == LONGEST + 1


# ---- Bytes ---------------------------------------------------------------------------------------------


def exact(digits: int, places: int) -> str:
    return decimal_text(Decimal(digits).scaleb(-places))


def test_bytes_are_the_same_integers() -> None:
    cases = CASES["bytes"]
    results = evaluate(NUMBERS_JS, "toBytes", [[case["value"], case["bytes_per_unit"]] for case in cases])
    assert results == [case["bytes"] for case in cases]
    names = {size: name for name, size in UNITS.items()}
    assert [to_bytes(Decimal(c["value"]), names[c["bytes_per_unit"]]) for c in cases] == results


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.builds(exact, st.integers(-8192 * 10**12, 8192 * 10**12), st.integers(12, 25)),
            st.sampled_from(sorted(unit for unit in UNITS if UNITS[unit] <= 2**40)),
        ),
        min_size=50,
        max_size=200,
    )
)
def test_page_counts_the_bytes_that_python_counts(sizes: list[tuple[str, str]]) -> None:
    results = evaluate(NUMBERS_JS, "toBytes", [[value, UNITS[unit]] for value, unit in sizes])
    assert results == [to_bytes(Decimal(value), unit) for value, unit in sizes]


# ---- Writing -------------------------------------------------------------------------------------------

VALUES: list[int | float] = [
    *(0, 1, -1, 12, 999, 1000, 1234, -1234, 9999, 10_000, 12_345, 999_999, 1_000_000, 2**40, 2**53 - 1),
    *(0.5, -0.5, 0.0005, 0.00049, -0.0001, 1.005, 2.675, 0.125, 0.1 + 0.2, 1234.5, 9999.9996, 1e15 + 0.5),
    *(999.9995, 1e21, 1.5e-7, -0.0, 12345.6789),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_fraction": 0},
    {"min_fraction": 2, "max_fraction": 2},
    {"max_fraction": 6},
    {"significant": 4},
    {"significant": 1},
    {"grouping": False},
    {"plus": True, "max_fraction": 0},
]


def in_page(options: dict[str, Any]) -> dict[str, Any]:
    names = {"max_fraction": "maxFraction", "min_fraction": "minFraction"}
    return {names.get(key, key): value for key, value in options.items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_writes_what_the_server_writes(language: str) -> None:
    calls = [(value, options) for value in VALUES for options in OPTIONS]
    written = evaluate(NUMBERS_JS, "formatNumber", [[value, language, in_page(o)] for value, o in calls])
    assert written == [format_number(value, language, **options) for value, options in calls]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**53), 2**53) | st.floats(-1e18, 1e18),
            st.sampled_from(LANGUAGES),
            st.sampled_from(OPTIONS),
        ),
        min_size=50,
        max_size=200,
    )
)
def test_any_number_is_written_the_same(calls: list[tuple[float, str, dict[str, Any]]]) -> None:
    written = evaluate(NUMBERS_JS, "formatNumber", [[value, lang, in_page(o)] for value, lang, o in calls])
    assert written == [format_number(value, lang, **options) for value, lang, options in calls]


@given(st.decimals(-(10**15), 10**15, places=3, allow_nan=False))
def test_english_is_babels(value: Decimal) -> None:
    from babel.numbers import format_decimal

    assert format_number(value, "en") == format_decimal(value + 0, locale="en")  # Babel writes "-0"


@pytest.mark.parametrize("language", LANGUAGES)
def test_symbols_are_babels_and_the_browsers(language: str) -> None:
    (found,) = evaluate(NUMBERS_JS, "symbols", [[language]])
    assert found == {
        "decimal": symbols(language).decimal,
        "group": symbols(language).group,
        "minus": symbols(language).minus,
    }


def test_written_in_each_language() -> None:
    assert {language: format_number(-1234567.125, language) for language in LANGUAGES} == {
        "en": "-1,234,567.125",
        "de": "-1.234.567,125",
        "es": "-1.234.567,125",
        "fr": "-1\u202f234\u202f567,125",
        "pt-BR": "-1.234.567,125",
        "ar": "\u200e-1,234,567.125",
        "ja": "-1,234,567.125",
        "ko": "-1,234,567.125",
        "zh-Hans": "-1,234,567.125",
        "zh-Hant": "-1,234,567.125",
    }
    signed = [format_number(n, lang, plus=True) for lang in ("de", "ar") for n in (6, 0, -6)]
    assert signed == ["+6", "0", "-6", "\u200e+6", "0", "\u200e-6"]
    assert [format_number(n, "es") for n in (1234, 12345)] == ["1234", "12.345"]
    assert format_number(1234567.5, "en-IN") == "12,34,567.5"


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), Decimal("NaN")])
def test_only_finite_numbers_are_written(value: float | Decimal) -> None:
    with pytest.raises(ValueError, match="cannot write"):
        format_number(value)


@pytest.mark.parametrize(("language", "imported"), [("en", False), ("de", True)])
def test_english_needs_no_babel(language: str, imported: bool) -> None:
    code = (
        "import sys; from batchfit.numbers import *;"
        f"format_number(1234.5, {language!r}); read_number('1,000', {language!r}); print('babel' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{imported}\n"


# ---- Figures of any size -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "lang", "text"),
    [
        (0, "en", "0"),
        (8030261248, "en", "8,030,261,248"),
        (6.72e23, "en", "6.72 × 10²³"),
        (6.72e23, "de", "6,72 × 10²³"),
        (9.9999e22, "en", "1 × 10²³"),
        (3e-4, "en", "0.0003"),
        (1.2345e-9, "en", "1.235 × 10⁻⁹"),
        (0.123456, "en", "0.1235"),
        (12.3456, "en", "12.346"),
        (-3e-9, "en", "-3 × 10⁻⁹"),
    ],
)
def test_a_figure_of_any_size_is_written_readably(value: float, lang: str, text: str) -> None:
    assert format_figure(value, lang) == text


def test_a_share_has_four_digits_and_the_languages_sign() -> None:
    assert format_percent((8 - 1) / (32 + 8 - 1)) == "17.95"
    assert format_percent(12.3456) == "1,235"
    assert [percent_sign(lang) for lang in ("en", "de", "ja")] == ["%", "\xa0%", "%"]


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "8.03B"),
        ("de", "8,03\xa0Mrd."),
        ("es", "8030\xa0M"),
        ("ja", "80.3億"),
        ("zh-Hant", "80.3億"),
        ("ko", "80.3억"),
    ],
)
def test_a_large_count_is_shortened_as_a_language_does(lang: str, text: str) -> None:
    assert format_compact(8_030_261_248, lang) == text
    assert format_compact(999_999, lang) == format_compact(10**15, lang) == ""


@pytest.mark.parametrize("lang", languages())
def test_shortening_needs_no_plural_and_nothing_before_the_number(lang: str) -> None:
    patterns = Locale.parse(lang, sep="-").compact_decimal_formats["short"]
    for power in range(6, 15):
        forms = {
            (each[str(10**power)].prefix[0], each[str(10**power)].suffix[0]) for each in patterns.values()
        }
        assert len(forms) == 1
        assert next(iter(forms))[0] == ""


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(LANGUAGES),
    st.lists(
        st.floats(-1e30, 1e30, allow_nan=False) | st.floats(-1e-5, 1e-5) | st.integers(-(2**53), 2**53),
        min_size=50,
        max_size=100,
    ),
)
def test_figures_are_written_as_the_page_writes_them(lang: str, values: list[float]) -> None:
    values = [float(f"{value:.15g}") if isinstance(value, float) else value for value in values]
    for name, written in (
        ("formatFigure", [format_figure(value, lang) for value in values]),
        ("formatPercent", [format_percent(value, lang) for value in values]),
    ):
        assert evaluate(NUMBERS_JS, name, [[value, lang] for value in values]) == written
    calls = [[value, lang, magnitudes(lang)] for value in values]
    assert evaluate(NUMBERS_JS, "formatCompact", calls) == [format_compact(value, lang) for value in values]
