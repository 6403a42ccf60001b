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

#: As models and data sets are counted: 7B parameters, 15T tokens. Hundreds, ten thousands and their powers, which East
#: Asian languages count in, have no letter of their own: behind a number, "e4" says in any language what 万 says.
COUNTS: dict[str, Scale] = {
    "e2": (1, 2),
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

#: Words for powers of ten that CLDR's short forms leave out.
_BELOW_TEN_THOUSAND = {
    "ja": {"百": 2, "千": 3},
    "ko": {"백": 2},
    "zh-Hans": {"百": 2, "千": 3},
    "zh-Hant": {"百": 2, "千": 3},
}
#: From this power of ten on, a unit closes a group of four digits: what stands before it is a number of its own.
_GROUP = 4

_EXACT = Context(prec=400)
_PART = re.compile(
    r"(([0-9]{1,3}(?:,[0-9]{3}){1,6}|[0-9]{1,20})(?:\.([0-9]{1,20}))? ?([^\x00-\x7f\W\d_]{0,2}) ?)"
)
_SUFFIXED = re.compile(r"\s*(.*?)\s*([^\W\d_]+(?:\s[^\W\d_]+)*|[%٪％﹪])\.?\s*", re.S)


def spellings(scales: Mapping[str, Scale], lang: str) -> dict[str, str]:
    """Every way in which readers of a language type these scales, in lower case, with the scale that it means. A
    scale's own letter means the same in every language: 7B is the name of a size, though "B" is 10¹² to Spaniards."""
    known = {typed: name for typed, name in _SPELLINGS.items() if name in scales}
    # "e4" is read as a part of the number itself.
    letters = {name.lower(): name for name in scales if not name[-1].isdigit()}
    return known | words(scales, lang) | letters


def words(scales: Mapping[str, Scale], lang: str) -> dict[str, str]:
    """A language's own words for powers of ten, in lower case, each with the scale that it means; of counts only."""
    if scales is not COUNTS:
        return {}
    names = {power: name for name, (_, power) in scales.items()}
    known = powers(lang) | _BELOW_TEN_THOUSAND.get(lang, {})
    return {word: names[power] for word, power in known.items() if power in names}


def written(scale: str, lang: str) -> str:
    """A scale as it is written behind a number: by its letter, and where it has none, by the language's word."""
    if scale.isalpha():
        return scale
    return next((word for word, name in words(COUNTS, lang).items() if name == scale), scale)


def split_scale(text: str, scales: Mapping[str, Scale], lang: str) -> tuple[str, str | None]:
    """The number's text and its scale: "7B" gives ("7", "B"), "4.1億" ("4.1", "e8"); a bare number has None. What is no
    scale stays part of the number's text, where the reader will name it."""
    if mixed := _mixed(unicodedata.normalize("NFKC", text).strip(), scales, lang):
        return mixed
    found = _SUFFIXED.fullmatch(unicodedata.normalize("NFC", text)) if scales else None
    if found and (name := spellings(scales, lang).get(" ".join(found[2].lower().split()))):
        return found[1], name
    return text.strip(), None


def _mixed(text: str, scales: Mapping[str, Scale], lang: str) -> tuple[str, str] | None:
    """A number in several of the units that East Asian languages count in, as one number of the first of them:
    "3億5000万" gives ("350000000e-8", "e8"), which every language reads alike; "5.5百万" ("55000000e-5", "e4").

    Hundreds and thousands count within a group of four digits, which 万 or a larger unit closes: 3千5百万. None for
    what is no such number. What stands before a unit, and all that comes after it, has to be smaller than the next
    larger one: nobody can tell whether 1億20000万 lacks a unit or has a digit too many. One digit behind the last unit
    is refused, since to Chinese readers 1万5 is 15,000, and to Japanese ones 10,005; and so are digits behind no more
    than thousands. A fraction counts in a unit, or in one of another such as 百万, and has nothing behind it.
    """
    parts = _PART.findall(text)
    if text.isascii() or "".join(part for part, *_ in parts) != text:
        return None
    known = spellings(scales, lang)
    if len(parts) == 1 and parts[0][-1] in known:
        return None
    if len(parts) > 1 and "." in text:
        return None
    fraction = parts[0][2]
    # From the last part to the first; `closing` is the power of the unit that closes the group.
    total, closing, unit, after = 0, 0, "", -1
    for _, digits, _, word in reversed(parts):
        names = [known[word]] if word in known else [known.get(each, "") for each in word]
        powers = [scales.get(name, (1, 0))[1] for name in names]
        if 0 in powers or (not word and (after >= 0 or len(digits) < 2)):
            return None
        closes = bool(powers) and powers[-1] >= _GROUP
        if closes:
            closing, unit = powers[-1], names[-1]
        place = sum(powers) if closes else sum(powers) + closing
        value = int(digits.replace(",", "") + fraction) * 10**place
        limit = 2 * closing if len(powers) > 1 and powers[0] >= _GROUP else closing + _GROUP
        if after >= 10**place or (place > closing and value >= 10 ** (limit + len(fraction))):
            return None
        total, after = total + value, value
    if not unit and not parts[-1][-1]:
        return None
    unit = unit or "K"  # hundreds alone are not several units
    return f"{total}e-{scales[unit][1] + len(fraction)}", unit


def scaled(number: Decimal, scale: Scale) -> Decimal:
    """`number` of a scale, exactly: 7 and (1, 9) give 7000000000."""
    return _EXACT.multiply(number, Decimal(scale[0])).scaleb(scale[1], _EXACT)
