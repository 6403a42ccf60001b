"""The script behind the token ratios of languages, on a text whose counts are known."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "count_tokens.py"))


def test_a_page_becomes_its_lines_of_text() -> None:
    page = "<html><head><title>No</title></head><body><h1>All &amp; each</h1>\n\n<p>are born <b>free</b></p></body>"
    assert SCRIPT["plain"](page) == "All & each\nare born\nfree"


@pytest.mark.torch
def test_bytes_words_and_tokens_are_counted(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"born": 0, "free": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["born free, für alle", "born"]
    counted = SCRIPT["counts"](iter(texts), tmp_path / "tokenizer.json", spaced=True)
    assert counted == (24, 5, 6)
    assert SCRIPT["counts"](iter(texts), tmp_path / "tokenizer.json", spaced=False).words == 23
