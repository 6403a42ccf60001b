"""What may stand behind a number that is no size in bytes: thousands to trillions, percent, units of time.

A scale is a whole number and a power of ten, so that Python and JavaScript multiply by it exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal

Scale = tuple[int, int]

#: As models and data sets are counted: 7B parameters, 15T tokens.
COUNTS: dict[str, Scale] = {"K": (1, 3), "M": (1, 6), "B": (1, 9), "T": (1, 12)}
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

_EXACT = Context(prec=400)
_SUFFIXED = re.compile(r"\s*(.*?)\s*([^\W\d_]+|[%٪％﹪])\.?\s*", re.S)


def spellings(scales: Mapping[str, Scale]) -> dict[str, str]:
    """Every way to type these scales, in lower case, with the scale that it means."""
    return {name.lower(): name for name in scales} | {
        typed: name for typed, name in _SPELLINGS.items() if name in scales
    }


def split_scale(text: str, scales: Mapping[str, Scale]) -> tuple[str, str | None]:
    """The number's text and its scale: "7B" gives ("7", "B"); a bare number has None. What is no scale stays part of
    the number's text, where the reader will name it."""
    found = _SUFFIXED.fullmatch(text)
    if found and (name := spellings(scales).get(found[2].lower())):
        return found[1], name
    return text.strip(), None


def scaled(number: Decimal, scale: Scale) -> Decimal:
    """`number` of a scale, exactly: 7 and (1, 9) give 7000000000."""
    return _EXACT.multiply(number, Decimal(scale[0])).scaleb(scale[1], _EXACT)
