"""Files with comments in every language: they hold the same settings, and no comment is left in English."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from unicodedata import east_asian_width

import pytest
from hypothesis import given, settings

from batchfit import frameworks
from batchfit.languages import SOURCE, languages
from batchfit.sentences import Code, Sentence, in_language
from batchfit.settings import TrainingSettings
from tests.frameworks.strategies import RICH, planned

TRANSLATED = [lang for lang in languages() if lang != SOURCE]
in_every_language = pytest.mark.parametrize("lang", TRANSLATED)
of_every_framework = pytest.mark.parametrize("name", frameworks.names())


@in_every_language
@of_every_framework
@given(before=planned())
@settings(max_examples=8, deadline=None)
def test_comments_change_no_setting(name: str, lang: str, before: TrainingSettings) -> None:
    english, other = (frameworks.emit(name, before, tag) for tag in (SOURCE, lang))
    assert [note.field for note in other.notes] == [note.field for note in english.notes]
    if frameworks.framework(name).read:
        found = [frameworks.read_settings(each.text, filename=each.filename) for each in (english, other)]
        assert found[0] == found[1]
    if english.filename.endswith(".py"):
        assert _program(english.text) == _program(other.text)


def _program(source: str) -> str:
    """A program without its comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


@in_every_language
@of_every_framework
def test_every_note_is_translated(name: str, lang: str) -> None:
    for each in (
        RICH,
        replace(RICH, sharding="fsdp", model=None),
        replace(RICH, sharding="ddp", lora_rank=None),
    ):
        for note in frameworks.emit(name, each).notes:
            if note.text.template != "{code}":
                assert in_language(note.text, lang) != note.text
            for code in note.text.params.values():
                if isinstance(code, Code):
                    assert code in in_language(note.text, lang)


@in_every_language
@of_every_framework
def test_no_english_sentence_is_left_in_a_comment(name: str, lang: str) -> None:
    english = frameworks.emit(name, RICH, SOURCE)
    other = frameworks.emit(name, RICH, lang)
    left = set(_comments(english.text)) & set(_comments(other.text))
    assert [line for line in left if re.search(r"[a-z]+ (?:[a-z]+ )+[a-z]+", line) and "--" not in line] == []


def _comments(text: str) -> list[str]:
    return [found.strip() for found in re.findall(r"#(?!!)(.*)", text)]


@in_every_language
@of_every_framework
def test_no_invisible_mark_stands_in_a_file(name: str, lang: str) -> None:
    text = frameworks.emit(name, RICH, lang).text
    assert re.findall("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text) == []


@in_every_language
@of_every_framework
def test_comments_are_folded(name: str, lang: str) -> None:
    """Only what cannot be folded is longer: a line of a single name or command."""
    text = frameworks.emit(name, RICH, lang).text
    long = [line for line in text.splitlines() if line.startswith("#") and _columns(line) > 100]
    assert [line for line in long if len(line.removeprefix("#").split()) > 1] == []


def _columns(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


@pytest.mark.parametrize("lang", ["ja", "zh-Hans", "zh-Hant"])
def test_no_folded_line_begins_with_punctuation_that_closes(lang: str) -> None:
    for name in frameworks.names():
        lines = [line.lstrip("# ") for line in frameworks.emit(name, RICH, lang).text.splitlines()]
        assert [line for line in lines if line[:1] in tuple("、。，；：！？）」』】ー")] == []


def test_notes_are_english_where_no_language_is_asked_for() -> None:
    (note,) = (
        note for note in frameworks.emit("accelerate", RICH).notes if note.field == "accumulation_steps"
    )
    assert note.text == "Accelerator(gradient_accumulation_steps=8) in the script."
    assert isinstance(note.text, Sentence)
