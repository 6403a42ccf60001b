"""Layouts as presentation MathML in HTML: no namespace, no inline style, left to right in every language."""

from __future__ import annotations

from html import escape

from batchfit.emit import notation
from batchfit.emit.notation import Layout

_FUNCTION_APPLICATION = "<mo>&#x2061;</mo>"


def math(layout: Layout, *, display: str) -> str:
    """A `<math>` element. `display` is "block" for one on its own line, else "inline"."""
    size = (
        "" if display == "block" else ' displaystyle="true"'
    )  # fractions as large as on a line of their own
    return f'<math display="{display}"{size} dir="ltr">{_row(layout)}</math>'


def _row(layout: Layout) -> str:
    """A layout where several elements may stand."""
    return "".join(map(_one, layout.parts)) if isinstance(layout, notation.Row) else _one(layout)


def _one(layout: Layout) -> str:
    """A layout as exactly one element."""
    match layout:
        case notation.Figure(number=number, unit=""):
            return _element("mn", escape(number))
        case notation.Figure(number=number, unit=unit):
            figure = _element("mn", escape(number))
            return _element("mrow", f"{figure}<mtext>&nbsp;{escape(unit)}</mtext>")
        case notation.Letter(base=base, subscript=""):
            return _element("mi", escape(base))
        case notation.Letter(base=base, subscript=subscript):
            return _element("msub", _element("mi", escape(base)) + _element("mi", escape(subscript)))
        case notation.Sign(text=text, place="prefix"):
            return f'<mo form="prefix">{escape(text)}</mo>'
        case notation.Sign(text=text, place="leading"):
            return f'<mo lspace="0">{escape(text)}</mo>'
        case notation.Sign(text=text) if text.isalpha():
            return f'<mo lspace="0.3em" rspace="0.3em">{escape(text)}</mo>'
        case notation.Sign(text=text):
            return _element("mo", escape(text))
        case notation.Word(text=text):
            return _element("mtext", f"&nbsp;{escape(text)}&nbsp;")
        case notation.Row():
            return _element("mrow", _row(layout))
        case notation.Fraction(above=above, below=below):
            return _element("mfrac", _one(above) + _one(below))
        case notation.Power(base=base, exponent=exponent):
            return _element("msup", _one(base) + _one(exponent))
        case notation.Root(of=of):
            return _element("msqrt", _row(of))
        case notation.Fenced(opening=opening, of=of, closing=closing):
            return _fenced(opening, _row(of), closing)
        case notation.Applied():
            return _applied(layout)
        case notation.Cases(rows=rows):
            cells = "".join(
                f"<mtr><mtd>{_row(value)}</mtd><mtd>{_row(when)}</mtd></mtr>" for value, when in rows
            )
            return _element("mrow", f"<mo>{{</mo><mtable>{cells}</mtable>")
        case notation.Series(below=below, above=above, term=term):
            sigma = _element("munderover", f"<mo>∑</mo>{_one(below)}{_one(above)}")
            return _element("mrow", sigma + _one(term))


def _applied(layout: notation.Applied) -> str:
    name = _element("mi", escape(layout.function))
    if layout.subscript is not None:
        name = _element("msub", name + _one(layout.subscript))
    between = f'<mo separator="true" rspace="0.3em">{escape(layout.separator)}</mo>'
    arguments = _fenced("(", between.join(map(_one, layout.arguments)), ")")
    return _element("mrow", name + _FUNCTION_APPLICATION + arguments)


def _fenced(opening: str, inner: str, closing: str) -> str:
    # That brackets at the ends of a row stretch, browsers know without attributes.
    left, right = f"<mo>{opening}</mo>", f"<mo>{closing}</mo>"
    return _element("mrow", left + inner + right)


def _element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>"
