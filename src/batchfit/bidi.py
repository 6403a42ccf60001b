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
_RUN = re.compile(rf"(?:[√−+]|--)*{_ENDS}(?:(?:\({_OTHER}+\)|(?![.,:;!?]\s){_OTHER})*{_ENDS})?(?:%|\(\))?")
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
    # Over two lines, its second half would stand where a reader comes first.
    return _RUN.sub(lambda found: _held(found[0], lang, _LINE), text)


#: What a text of a catalogue holds together itself, and what stands for a value, which brings isolates of its own.
_KEPT = re.compile(r"([\u2066\u2068][^\u2069]*\u2069|`[^`]*`|\{\w*\})")
_MEASURE = re.compile(r"(?<!\u2068)\{\w+\}[ \xa0](?:[A-Za-zµ]+(?:/s)?)(?![A-Za-z/])")


def with_isolates_around_values(template: str, lang: str) -> str:
    """A text of a catalogue with each left-to-right piece of it held together, a value with its unit too."""
    before, after = isolate(lang)
    if not before:
        return template
    template = _MEASURE.sub(lambda found: before + found[0] + after, template)
    if not re.search(f"[{_RIGHT_TO_LEFT}]", template):
        return template
    pieces = _KEPT.split(template)
    pieces[::2] = [_RUN.sub(lambda found: _held(found[0], lang), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _held(run: str, lang: str, line: int = 0) -> str:
    if _PLAIN.fullmatch(run):
        return run
    return isolated(run.replace(" ", "\xa0") if len(run) <= line else run, lang)
