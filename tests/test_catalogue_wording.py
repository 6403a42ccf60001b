"""The catalogues speak one language well: its terms, its typography, and one way to speak to a reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from batchfit.languages import catalogue
from tests.particulars import PARTICULARS, faults, glossary, says, without_words_apart
from tests.test_catalogues import TRANSLATED, catalogues

#: What other rules hold for: code, what a person types, and names with the number of a version.
_LITERAL = re.compile(
    r"`[^`]+`|[A-Za-z_]+(?:\.\w+)*\(\)|\b[a-z_]+[._][a-z_.]+\b|--[a-z-]+|5%|\d:12GB,8:14GB|2\^80"
    r"|(?:PyTorch|bitsandbytes|Liger-Kernel|PCI Express) [\d.]+(?: x16)?"
)
#: What stands for a placeholder and for a literal: a sign that is of no script.
_ANYTHING = "\ue000"
#: Reasons that hold for prose alone: in messages, signs of direction hold a value together.
_OF_PROSE = frozenset(
    {"a sign of direction, which the page sets itself", "a question without its opening mark"}
)


def forms(lang: str) -> Iterator[tuple[str, str]]:
    """Each English text with each form of its translation."""
    for message in catalogues.read(catalogues.LOCALE / f"{lang}.po"):
        if message.id:
            english = message.id if isinstance(message.id, str) else message.id[1]
            for form in [message.string] if isinstance(message.string, str) else message.string:
                yield english, form


def bare(text: str) -> str:
    """A text without its placeholders and without what is the same in every language."""
    return _LITERAL.sub(_ANYTHING, re.sub(r"\{\w+\}", _ANYTHING, text))


@pytest.mark.parametrize("lang", TRANSLATED)
def test_typography(lang: str) -> None:
    found = [fault for _, form in forms(lang) for fault in faults(bare(form), lang, but=_OF_PROSE)]
    assert found == []


#: Where a word that the glossary has another one for means something else.
_MEANT = {
    ("zh-Hans", "内存"): ("Metal's recommended working set", "for want of memory or time"),  # not a card's
    ("ar", "معامل"): ("Coefficient of the fit", "Scales per block of 8-bit values"),
    ("ar", "رمز"): ("QR code", "Symbol"),
}


@pytest.mark.parametrize("lang", TRANSLATED)
def test_no_second_word_for_a_term(lang: str) -> None:
    second = [
        (word, form)
        for english, form in forms(lang)
        for term, _, avoided in glossary(lang)
        if says(bare(english), term)
        for word in avoided
        if says(without_words_apart(bare(form), lang), word)
        and not any(part in english for part in _MEANT.get((lang, word), ()))
    ]
    assert second == []


@pytest.mark.parametrize("lang", TRANSLATED)
@pytest.mark.parametrize("kind", ["full", "selective"])
def test_a_kind_of_checkpointing_has_one_word_wherever_it_stands(kind: str, lang: str) -> None:
    """Alone in the planner's lists, in its sentences, and in the calculators' lists: "Full: every layer"."""
    word = catalogue(lang).text(kind).casefold()
    listed = [form for english, form in forms(lang) if english.startswith(f"{kind.capitalize()}: ")]
    said = [form for english, form in forms(lang) if f"{kind} checkpointing" in english.casefold()]
    assert listed
    assert said
    assert [form for form in [*listed, *said] if word not in form.casefold()] == []


@pytest.mark.parametrize("lang", TRANSLATED)
def test_no_checkpointing_is_called_the_same_alone_and_where_it_is_explained(lang: str) -> None:
    alone = catalogue(lang).text("none").casefold()
    explained = [form.casefold() for english, form in forms(lang) if english.startswith("None")]
    assert len(explained) > 1
    assert [form for form in explained if not form.startswith(alone)] == []


@pytest.mark.parametrize("lang", TRANSLATED)
def test_a_unit_that_follows_a_placeholder_stays_with_it(lang: str) -> None:
    broken = [form for _, form in forms(lang) if re.search(r"\} (?:[kKMGT]i?B|GB/s|TFLOP/s|µs)\b", form)]
    assert broken == []


@pytest.mark.parametrize(
    ("lang", "amount", "form"),
    [
        ("fr", 0.5, "seconde"),
        ("fr", 1.5, "seconde"),
        ("fr", 2.5, "secondes"),
        ("pt-BR", 1.5, "segundo"),
        ("en", 1.5, "seconds"),
        ("es", 0.5, "segundos"),
        ("de", 0.5, "Sekunden"),
    ],
)
def test_a_fraction_takes_the_form_that_its_language_counts_it_with(
    lang: str, amount: float, form: str
) -> None:
    assert catalogue(lang).count("{n} second", "{n} seconds", amount).split()[-1] == form


def test_faults_are_found() -> None:
    assert faults("Der Stand ist 5 %, sagst du.", "de")
    assert faults("¿Quiere usted 8 bits?", "es")
    assert faults("你的显卡", "zh-Hans")
    assert faults("微批次小时用 5% 到 8%", "zh-Hans")
    assert faults("從 5 到 8%", "zh-Hant")
    assert faults("10,000 億個 token", "zh-Hant")
    assert faults(bare("{name}: {text}"), "zh-Hant")
    assert not faults("微批次很小时，8 小时用 5% 到 8%，2,800 亿个", "zh-Hans")
    assert faults("顯示卡 (80 GB)", "zh-Hant")
    assert faults(bare("GPU{n}基、空きは分からない"), "ja")
    assert not faults(bare("その他の値に基づき、推定式は分かれる"), "ja")
    assert faults("이 비를 쓰고 스텝을 밟습니다", "ko")
    assert not faults("이 비율에 비해 비용이 준비됩니다", "ko")
    assert faults("Ton modèle : voilà", "fr")
    assert faults("256 de 4.096 tokens cada uma uma.", "pt-BR")
    assert not faults("für die die Rate gilt", "de")
    assert faults("أضف A و B", "ar")
    assert not faults(bare("seit PyTorch 2.8 etwa `5 %`"), "de")
    assert all("forbidden" in particulars for particulars in PARTICULARS.values())
