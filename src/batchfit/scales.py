"""What may stand behind a number that is no size in bytes: thousands to trillions, percent, units of time.

A scale is a whole number and a power of ten, so that Python and JavaScript multiply by it exactly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from decimal import Context, Decimal

from batchfit.numbers import powers

Scale = tuple[int, int]

#: As models and data sets are counted: 7B parameters, 15T tokens. Ten thousands and their powers, which East Asian
#: languages count in, have no letter of their own: behind a number, "e4" says in any language what 万 says.
COUNTS: dict[str, Scale] = {
    "K": (1, 3),
    "e4": (1, 4),
    "M": (1, 6),
    "e8": (1, 8),
    "B": (1, 9),
    "T": (1, 12),
    "e16": (1, 16),
}
SHARES: dict[str, Scale] = {"%": (1, -2)}
DURATIONS: dict[str, Scale] = {"ms": (1, -3), "s": (1, 0), "min": (60, 0), "h": (3600, 0), "d": (86_400, 0)}

#: What else people type, in lower case.
_SPELLINGS = {
    "g": "B",
    "千": "K",  # which CLDR's short forms leave out
    "mio": "M",
    "mrd": "B",
    "٪": "%",
    "％": "%",
    "﹪": "%",
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}

_EXACT = Context(prec=400)
_SUFFIXED = re.compile(r"\s*(.*?)\s*([^\W\d_]+(?:\s[^\W\d_]+)*|[%٪％﹪])\.?\s*", re.S)


def spellings(scales: Mapping[str, Scale], lang: str) -> dict[str, str]:
    """Every way in which readers of a language type these scales, in lower case, with the scale that it means. A
    scale's own letter means the same in every language: 7B is the name of a size, though "B" is 10¹² to Spaniards."""
    known = {typed: name for typed, name in _SPELLINGS.items() if name in scales}
    return known | words(scales, lang) | {name.lower(): name for name in scales}


def words(scales: Mapping[str, Scale], lang: str) -> dict[str, str]:
    """A language's own words for powers of ten, in lower case, each with the scale that it means; of counts only."""
    if scales is not COUNTS:
        return {}
    names = {power: name for name, (_, power) in scales.items()}
    return {word: names[power] for word, power in powers(lang).items() if power in names}


def written(scale: str, lang: str) -> str:
    """A scale as it is written behind a number: by its letter, and where it has none, by the language's word."""
    if scale.isalpha():
        return scale
    return next((word for word, name in words(COUNTS, lang).items() if name == scale), scale)


def split_scale(text: str, scales: Mapping[str, Scale], lang: str) -> tuple[str, str | None]:
    """The number's text and its scale: "7B" gives ("7", "B"), "4.1億" ("4.1", "e8"); a bare number has None. What is no
    scale stays part of the number's text, where the reader will name it."""
    found = _SUFFIXED.fullmatch(unicodedata.normalize("NFC", text)) if scales else None
    if found and (name := spellings(scales, lang).get(" ".join(found[2].lower().split()))):
        return found[1], name
    return text.strip(), None


def scaled(number: Decimal, scale: Scale) -> Decimal:
    """`number` of a scale, exactly: 7 and (1, 9) give 7000000000."""
    return _EXACT.multiply(number, Decimal(scale[0])).scaleb(scale[1], _EXACT)
