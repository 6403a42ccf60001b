"""The languages a person can read batchfit in: which there are, and their texts.

A language is a catalogue `locale/TAG.po` and, for prose, the folder `content/TAG/`. English is what the code
is written in and needs no catalogue. Babel is imported only when another language is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_LOCALE = Path(__file__).parent / "locale"

#: The language the texts in the code are written in, and the one shown where none is known.
SOURCE = "en"


@cache
def languages() -> tuple[str, ...]:
    """The tags of every language there is, English first: ("en", "de", ...)."""
    return (SOURCE, *sorted(file.stem for file in _LOCALE.glob("*.po")))


@cache
def direction(lang: str) -> str:
    """Whether a language is written from left to right, "ltr", or from right to left, "rtl"."""
    if lang == SOURCE:
        return "ltr"
    from babel import Locale

    return "rtl" if Locale.parse(lang, sep="-").text_direction == "rtl" else "ltr"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The texts of one language, by their English. Fuzzy and empty translations count as missing."""

    texts: Mapping[str, str]
    plurals: Mapping[str, tuple[str, ...]]
    plural_index: Callable[[int], int]

    def text(self, english: str) -> str:
        """The translation, or the English where it is missing."""
        return self.texts.get(english, english)

    def count(self, one: str, many: str, number: float) -> str:
        """The form of `one`/`many` that this language uses with `number`. Fractions take the form of a hundred;
        below two that of their whole part where nought is singular, as in French: 1.5 seconde."""
        index, size = self.plural_index, abs(number)
        whole = int(size) if number == int(number) or (size < 2 and index(0) == index(1)) else 100
        forms = self.plurals.get(one, (one, many))
        return forms[min(index(whole), len(forms) - 1)]


@cache
def catalogue(lang: str) -> Catalogue:
    """The texts of a language. Raises KeyError for a language there is not."""
    if lang == SOURCE:
        return Catalogue({}, {}, lambda n: 0 if n == 1 else 1)
    if lang not in languages():
        raise KeyError(lang)
    from babel.messages.plurals import get_plural
    from babel.messages.pofile import read_po

    from batchfit.bidi import with_isolates_around_values as held

    locale = lang.replace("-", "_")
    with (_LOCALE / f"{lang}.po").open("rb") as file:
        messages = [message for message in read_po(file, locale=locale) if message.id and not message.fuzzy]
    texts: dict[str, str] = {}
    plurals: dict[str, tuple[str, ...]] = {}
    for message in messages:
        if isinstance(message.id, str):
            if isinstance(message.string, str) and message.string:
                texts[message.id] = held(message.string, lang)
        elif isinstance(message.string, tuple | list) and all(message.string):
            plurals[message.id[0]] = tuple(held(form, lang) for form in message.string)
    return Catalogue(texts, plurals, _plural_index(get_plural(locale).plural_expr))


def _plural_index(expression: str) -> Callable[[int], int]:
    """gettext's plural expression, a C expression in n, as a function."""
    from gettext import c2py

    function: Callable[[int], int] = c2py(expression)
    return function


def translate(text: str, lang: str) -> str:
    """`text` in a language, or as it stands where the catalogue lacks it."""
    return catalogue(lang).text(text)
