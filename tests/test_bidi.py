"""What runs from left to right is held together in a right-to-left language, and left alone in any other."""

import re

import pytest

from batchfit import calculators
from batchfit.bidi import isolated, with_isolates, with_isolates_around_values
from batchfit.languages import direction, languages, translate
from batchfit.wording import in_words
from tests.test_catalogue_wording import forms


def marked(text: str) -> str:
    """`text` with its isolates as ⟨ and ⟩."""
    return with_isolates(text, "ar").replace("\xa0", " ").replace("\u2066", "⟨").replace("\u2069", "⟩")


@pytest.mark.parametrize(
    "text",
    [
        "ذاكرة كل وحدة: ⟨4 × 0.5 GB = 2 GB⟩.",
        "المتوسط ⟨(4 + 2) / 2 = 3⟩، وليس ⟨−26⟩",
        "نموذج (1.244 مليار، ⟨fp32⟩) على ⟨GPU⟩، 8 مرات",
        "⟨Adam⟩: 2 و⟨2b⟩؛ ⟨(14 GB − 12 GB) / 4 = 0.5 GB⟩",
        "رتبة ⟨LoRA (rank)⟩ وجدولة ⟨(GPipe)⟩",
        "نموذج ⟨GPT-2 small⟩ (124.4 مليون)",
        "الناتج ⟨2 GB⟩. 64 وحدة، ⟨√8 ≈ 2.8⟩ مرة",
        "لا شيء هنا: 1,000 و 32",
        "من 1 إلى ⟨5%⟩، وعند ⟨58%⟩ تضيع نسبة ⟨42%⟩.",
        "بالخيار ⟨--allow-trace⟩، ثم ⟨backward()⟩ مرة",
    ],
)
def test_a_left_to_right_piece_is_held_together(text: str) -> None:
    assert marked(text.replace("⟨", "").replace("⟩", "")) == text


@pytest.mark.parametrize(
    "text",
    [
        "⟨AdamW⟩، 8 بت",
        "عدد وحدات ⟨GPU⟩: 8 وحدات مدة أسبوع",
        "{micro_batch} لكل ⟨GPU⟩ × {steps} × {gpus}",
        "⟨{n} GB/s⟩",
        "⟨{time} µs⟩ لإطلاق نواة",
        "{n} ساعات ⟨GPU⟩",
        "⟨4:12GB,8:14GB⟩ أو `5%` في كل بطاقة",
        "AdamW (fused)",
    ],
)
def test_a_text_of_a_catalogue_is_held_together_around_its_values(text: str) -> None:
    typed = text.replace("⟨4:12GB", "\u20664:12GB").replace("14GB⟩", "14GB\u2069")
    held = with_isolates_around_values(typed.replace("⟨", "").replace("⟩", ""), "ar")
    assert held.replace("\u2066", "⟨").replace("\u2069", "⟩") == text


def test_catalogues_hold_together_what_runs_from_left_to_right() -> None:
    assert translate("GPU-hours", "ar") == "ساعات \u2066GPU\u2069"
    assert with_isolates_around_values("{n} GB/s", "de") == "{n} GB/s"


def test_a_formula_stays_on_its_line_where_it_fits_on_any() -> None:
    assert with_isolates("في 4 × 0.5 GB = 2 GB", "ar") == "في \u20664\xa0×\xa00.5\xa0GB\xa0=\xa02\xa0GB\u2069"
    long = "7,000,000,000 × (4 + 4 + 8) B = 112 GB"
    assert with_isolates(long, "ar") == f"\u2066{long}\u2069"


def test_other_languages_are_left_alone() -> None:
    assert with_isolates("4 × 0.5 GB = 2 GB", "de") == "4 × 0.5 GB = 2 GB"
    assert [isolated("2 GB", lang) for lang in ("en", "ja")] == ["2 GB", "2 GB"]


def test_directions() -> None:
    assert [direction(lang) for lang in ("en", "de", "zh-Hant", "ar")] == ["ltr", "ltr", "ltr", "rtl"]


def test_a_size_in_a_right_to_left_sentence_is_held_together() -> None:
    field = calculators.load("gradient-accumulation").field("activation_per_sample")
    assert in_words(field, 5 * 10**8, "ar") == "\u20660.5\u00a0GB\u2069"
    assert in_words(field, 5 * 10**8, "en") == "0.5\u00a0GB"


#: A number and what must stay at its right, outside of isolates, of code and of what is Latin as a whole.
_APART = re.compile(r"\d\s?(?:%|[kKMGT]i?B\b|Gb/s)")


def apart(text: str) -> str | None:
    """A number of a right-to-left text whose unit would stand at its left."""
    found = _APART.search(re.sub(r"[\u2066\u2068][^\u2069]*\u2069|`[^`]*`", "", text))
    return found[0] if found and re.search(r"[\u0621-\u064a]", text) else None


@pytest.mark.parametrize("lang", [lang for lang in languages() if direction(lang) == "rtl"])
def test_a_number_of_a_catalogue_keeps_its_unit_at_its_right(lang: str) -> None:
    assert [form for _, form in forms(lang) if apart(form)] == []


def test_a_unit_at_the_wrong_side_is_found() -> None:
    assert apart("شبكة، 400 Gb/s") == "0 Gb/s"
    assert apart("شبكة، \u2066400 Gb/s\u2069") is apart("`5%` أو") is apart("12 GB") is None
