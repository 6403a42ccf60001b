"""Sentences in languages: what is put into them, and the punctuation that holds it together."""

from __future__ import annotations

import pytest

from batchfit.planning.result import CHECKPOINTING_NAMES
from batchfit.sentences import Sentence, in_language, listed, parted


@pytest.mark.parametrize(
    ("lang", "comma", "semicolon"),
    [
        ("en", "1, 2, 3", "1; 2; 3"),
        ("fr", "1, 2, 3", "1\u202f; 2\u202f; 3"),
        ("ar", "1، 2، 3", "1؛ 2؛ 3"),
        ("ja", "1、2、3", "1；2；3"),
        ("zh-Hans", "1、2、3", "1；2；3"),
    ],
)
def test_lists_have_the_punctuation_of_a_language(lang: str, comma: str, semicolon: str) -> None:
    assert listed("123", lang) == comma
    assert parted("123", lang) == semicolon


def test_nothing_and_one_are_lists_too() -> None:
    assert listed([], "ja") == ""
    assert listed(["1"], "ja") == "1"


def test_templates_of_punctuation_alone_are_translated() -> None:
    how = Sentence("{sharding}, {checkpointing}", sharding="zero2", checkpointing=CHECKPOINTING_NAMES["full"])
    assert how == "zero2, full checkpointing"
    assert in_language(how, "zh-Hans") == "zero2，完整检查点"
    assert in_language(how, "zh-Hant") == "zero2，完整檢查點"
