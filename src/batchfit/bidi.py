"""What runs from left to right within a right-to-left text: sizes, formulas, Latin names.

The Unicode bidirectional algorithm puts a number after an Arabic word to the right of the Latin unit that follows
it, and so turns "4 × 0.5 GB = 2 GB" round in parts. An isolate keeps such a piece together, whatever stands beside it.
"""

from __future__ import annotations

import re

from batchfit.languages import direction

_RIGHT_TO_LEFT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"  # Hebrew, Arabic, Syriac and their like
_OTHER = rf"[^(){_RIGHT_TO_LEFT}\n]"
_ENDS = rf"(?:[A-Za-z0-9]|\({_OTHER}+\))"  # a letter, a digit, or what stands whole in brackets
# As long as no right-to-left letter comes, nor the end of a clause, nor a bracket whose other half is outside.
_RUN = re.compile(rf"[√−+]*{_ENDS}(?:(?:\({_OTHER}+\)|(?![.,:;!?]\s){_OTHER})*{_ENDS})?%?")
_PLAIN = re.compile(r"[0-9.,]+")
_LINE = 35  # characters that fit on a line of the smallest screen


def isolate(lang: str) -> tuple[str, str]:
    """What stands before and after a left-to-right piece of a sentence in that language; mostly nothing."""
    if direction(lang) == "ltr":
        return "", ""
    return "\N{LEFT-TO-RIGHT ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"


def isolated(text: str, lang: str) -> str:
    """`text` as one left-to-right piece of a sentence in that language."""
    return text.join(isolate(lang))


def with_isolates(text: str, lang: str) -> str:
    """A sentence with each left-to-right piece of it held together: "4 × 0.5 GB = 2 GB", "GPU", "−26"."""
    if direction(lang) == "ltr":
        return text
    return _RUN.sub(lambda found: _held(found[0], lang), text)


def _held(run: str, lang: str) -> str:
    if _PLAIN.fullmatch(run):
        return run
    # Over two lines, its second half would stand where a reader comes first.
    return isolated(run.replace(" ", "\xa0") if len(run) <= _LINE else run, lang)
