"""The languages a person can read batchfit in: which there are, and their texts.

A language is a catalogue `locale/TAG.po` and, for prose, the folder `content/TAG/`. English is what the code
is written in and needs no catalogue. Babel is imported only when another language is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

#: The language the texts in the code are written in, and the one shown where none is known.
SOURCE = "en"


@cache
def languages() -> tuple[str, ...]:
    """The tags of every language there is, English first: ("en", "de", ...)."""
    found = (entry.name for entry in resources.files("batchfit").joinpath("locale").iterdir())
    return (SOURCE, *sorted(name[:-3] for name in found if name.endswith(".po")))


@cache
def catalogue(lang: str) -> Mapping[str, str]:
    """English text -> its translation. Empty for English; fuzzy and empty entries count as missing.

    Raises KeyError for a language there is not.
    """
    if lang == SOURCE:
        return {}
    if lang not in languages():
        raise KeyError(lang)
    from babel.messages.pofile import read_po

    with resources.files("batchfit").joinpath("locale", f"{lang}.po").open("rb") as file:
        messages = read_po(file, locale=lang.replace("-", "_"))
    return {
        message.id: message.string
        for message in messages
        if isinstance(message.id, str) and message.id and isinstance(message.string, str) and message.string
        if not message.fuzzy
    }


def translate(text: str, lang: str) -> str:
    """`text` in a language, or as it stands where the catalogue lacks it."""
    return catalogue(lang).get(text, text)
