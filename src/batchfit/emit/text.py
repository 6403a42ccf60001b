"""Layouts as one line of text, for terminals: fractions with a slash, powers with a caret."""

from __future__ import annotations

from batchfit.emit import notation
from batchfit.emit.notation import Layout


def text(layout: Layout) -> str:
    """The layout on one line."""
    match layout:
        case notation.Figure(number=number, unit=unit):
            return f"{number} {unit}".rstrip()
        case notation.Letter(base=base, subscript=subscript):
            return f"{base}_{subscript}" if subscript else base
        case notation.Sign(text="⋅"):
            return "·"
        case notation.Sign(text=sign) | notation.Word(text=sign):
            return sign
        case notation.Row(parts=parts):
            return _row(parts)
        case notation.Fraction(above=above, below=below):
            return f"{_tight(above)} / {_tight(below)}"
        case notation.Power(base=base, exponent=exponent):
            return f"{_tight(base)}^{_tight(exponent)}"
        case notation.Root(of=of):
            return f"√({text(of)})"
        case notation.Fenced(opening=opening, of=of, closing=closing):
            return f"{opening}{text(of)}{closing}"
        case notation.Applied(
            function=function, arguments=arguments, subscript=subscript, separator=separator
        ):
            name = function if subscript is None else f"{function}_{_tight(subscript)}"
            return f"{name}({f'{separator} '.join(map(text, arguments))})"
        case notation.Cases(rows=rows):
            return "{ " + "; ".join(f"{text(value)} {text(when)}" for value, when in rows) + " }"
        case notation.Series(below=below, above=above, term=term):
            return f"∑({text(below)} … {text(above)}) {text(term)}"


def _row(parts: tuple[Layout, ...]) -> str:
    """The parts with a space between them, but none after a sign or before a comma that belongs to one."""
    line = ""
    for part in parts:
        shown = text(part)
        if line and not line.endswith("\N{WORD JOINER}") and shown not in (",", ";"):
            line += " "
        line += shown + (
            "\N{WORD JOINER}" if isinstance(part, notation.Sign) and part.place == "prefix" else ""
        )
    return line.replace("\N{WORD JOINER}", "")


def _tight(layout: Layout) -> str:
    """The layout, in brackets where it would fall apart beside a slash or a caret."""
    falls_apart = isinstance(layout, notation.Row | notation.Fraction | notation.Cases | notation.Series)
    return f"({text(layout)})" if falls_apart else text(layout)
