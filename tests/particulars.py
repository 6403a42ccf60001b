"""What is particular to a language: its glossary, and what its typography and its address of readers do not allow."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path

from batchfit.units import UNITS

GLOSSARY = resources.files("batchfit").joinpath("locale", "glossary")

#: What is particular to a language, from tests/languages/TAG.toml: a new language brings its own file.
PARTICULARS = {
    file.stem: tomllib.loads(file.read_text(encoding="utf-8"))
    for file in (Path(__file__).parent / "languages").glob("*.toml")
}


@cache
def glossary(lang: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(English term, translation, words not used for it) for each line of a glossary's table."""
    lines = GLOSSARY.joinpath(f"{lang}.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return tuple(
        (english, term, tuple(word.strip() for word in avoided.split(",") if word.strip()))
        for english, term, avoided in rows[2:]
    )


def says(text: str, term: str) -> bool:
    """Whether a text has a term, inflected at its end or part of a compound."""
    return term.casefold() in text.casefold().replace("\xa0", " ")


def without_words_apart(text: str, lang: str) -> str:
    """A text without the words that mean something else than the avoided word they have in them."""
    for word in PARTICULARS[lang].get("apart", ()):
        text = text.replace(word, "")
    return text


_UNITS = "|".join(unit for unit in UNITS if len(unit) > 1)
_EVERYWHERE = {
    rf"\d (?:{_UNITS})\b": "a breaking space before a unit",
    r"(?<![^\W\d])[x*] *\d": "a letter or an asterisk for ×",
    r"[ \t]\n": "a space at the end of a line",
    r"\d -\d| - ": "a hyphen for a minus or a dash",
    r"['\"]": "a straight quotation mark",
    # German and French have pairs of them, as "die die" and "vous vous".
    r"\b(?!(?:d(?:er|ie|as|em|en)|[nv]ous)\b)([^\W\d_A-Z]+)\s\1\b": "a word that stands twice",
}


def faults(text: str, lang: str, *, but: frozenset[str] = frozenset()) -> list[str]:
    """What a text has that its language does not allow, `but` for these reasons, with the place."""
    return [
        f"{why}: {text[max(0, found.start() - 15) : found.end() + 15]!r}"
        for pattern, why in (_EVERYWHERE | PARTICULARS[lang]["forbidden"]).items()
        if why not in but
        for found in re.finditer(pattern, text)
    ]
