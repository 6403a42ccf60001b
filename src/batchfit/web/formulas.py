"""A calculator's formulas as they are shown: in symbols, and with the numbers put in.

Both come from the formulas' own source. Each number of a worked example carries the name of what it is the value
of, so that the page's JavaScript can put in others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from html import unescape

from markupsafe import Markup, escape

from batchfit.calculator import Calculator, Output, Value
from batchfit.emit import Quantity, Style, to_mathml, to_text, worked_example
from batchfit.fields import Bound, Field
from batchfit.languages import catalogue
from batchfit.numbers import format_number, format_power
from batchfit.numbers import symbols as signs
from batchfit.symbols import letters, letters_of
from batchfit.units import UNITS

#: Enough to show a product of typed numbers as it is, and to hide what rounding to whole bytes did to it.
_DIGITS = 9
#: Characters of a formula that fit on the smallest screen, however wide they are.
_NARROW = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """An output's formula. With cases, the worked example shows the one that applies and holds for its values only."""

    output: Output
    symbolic: Markup
    worked: Markup

    @property
    def has_cases(self) -> bool:
        """Whether the formula tells cases apart."""
        return "<mtable" in self.symbolic

    @property
    def is_wide(self) -> bool:
        """Whether the formula may have to be scrolled on a small screen."""
        return _is_wide(self.symbolic)

    @property
    def is_worked_wide(self) -> bool:
        """Whether a piece of the example that no line can be broken in may have to be scrolled."""
        return _is_wide(self.worked)


def shown(
    calculator: Calculator, values: Mapping[str, Value], units: Mapping[str, str], lang: str
) -> list[Shown]:
    """The formula of each output; without values, no worked examples, nor of an output that these do not have."""
    symbols = letters(calculator)
    return [
        Shown(
            output,
            Markup(
                to_mathml(
                    output.formula, letters_of(output, symbols), symbols[output.name], style=_style(lang)
                )
            ),
            _worked(calculator, output, values, units, lang) if output.name in values else Markup(),
        )
        for output in calculator.outputs
    ]


def _is_wide(html: str) -> bool:
    """Whether any formula has more characters than the smallest screen shows. A few too many are no harm."""
    formulas = re.findall(r"<math.*?</math>", html, re.S)
    return any(len(unescape(re.sub(r"<[^>]*>", "", formula))) > _NARROW for formula in formulas)


def as_text(
    calculator: Calculator, values: Mapping[str, Value], units: Mapping[str, str], lang: str
) -> list[tuple[Output, str, str]]:
    """Each output with its formula and its worked example as text; the latter is empty where there is no value."""
    symbols, style = letters(calculator), _style(lang)
    sizes = _sizes(calculator)
    found = []
    for output in calculator.outputs:

        def show(name: str | None, value: Value, output: Output = output) -> Quantity:
            # The result is asked for by the formula's name.
            name = output.name if name == output.formula.__name__ else name
            if name not in sizes:
                return Quantity(_number(value, lang))
            return Quantity(_number(Decimal(value) / UNITS[units[name]], lang), units[name])

        symbol, taken = symbols[output.name], letters_of(output, symbols)
        symbolic, worked = to_text(output.formula, taken, symbol, style=style), ""
        if output.name in values:
            given = {name: values[name] for name in output.parameters}
            worked = to_text(output.formula, taken, symbol, given, style=style, show=show)
        found.append((output, symbolic, worked))
    return found


@dataclass(frozen=True, slots=True)
class Explained:
    """A symbol of the formulas, as it is written in HTML and in text, what it stands for, and its unit."""

    symbol: Markup
    letters: str
    label: str
    unit: str


def explained(calculator: Calculator, lang: str) -> list[Explained]:
    """Every symbol that the formulas use, fields before outputs; of a choice, the numbers that it gives."""
    texts = catalogue(lang).text
    needed = {name for output in calculator.outputs for name in output.parameters}
    of: list[Field | Bound | Output] = []
    for field in calculator.fields:
        of += [bound for bound in field.binds if bound.name in needed] if field.is_choice else [field]
    of += calculator.outputs
    return [
        Explained(
            _markup(each.symbol),
            each.symbol,
            texts(each.label),
            texts(each.unit) if each.unit and not _is_size(each) else each.unit,
        )
        for each in of
    ]


def _sizes(calculator: Calculator) -> set[str]:
    """The names of values that are shown with a unit of memory."""
    named: list[Field | Output] = [*calculator.fields, *calculator.outputs]
    return {of.name for of in named if of.kind == "bytes"} - {of.name for of in calculator.bounds}


def _is_size(of: Field | Bound | Output) -> bool:
    return not isinstance(of, Bound) and of.kind in ("bytes", "seconds")


def _markup(symbol: str) -> Markup:
    """A symbol in HTML: "n_kv" is an n with the subscript kv."""
    base, _, subscript = symbol.partition("_")
    below = Markup("<sub>{}</sub>").format(subscript) if subscript else Markup()
    return Markup('<i class="symbol">{}{}</i>').format(base, below)


def _worked(
    calculator: Calculator, output: Output, values: Mapping[str, Value], units: Mapping[str, str], lang: str
) -> Markup:
    sizes = _sizes(calculator)
    named = {*output.parameters, output.name}

    def placeholder(name: str | None, value: Value) -> Quantity:
        # The result is asked for by the formula's name.
        name = output.name if name == output.formula.__name__ else name
        if name not in named:
            return Quantity(_number(value, lang))
        return Quantity(f"{{{name}}}", f"{{{name}}}" if name in sizes else "")

    given = {name: values[name] for name in output.parameters}
    symbols = letters(calculator)
    html = worked_example(
        output.formula,
        letters_of(output, symbols),
        symbols[output.name],
        given,
        style=_style(lang),
        show=placeholder,
    )

    def number(found: re.Match[str]) -> str:
        name = found[1]
        scale = UNITS[units[name]] if name in sizes else 1
        exact = values[name] if scale == 1 else Decimal(values[name]) / scale
        return f'<mn data-value="{name}">{escape(_number(exact, lang))}</mn>'

    def unit(found: re.Match[str]) -> str:
        return f'<mtext data-unit="{found[1]}">&nbsp;{escape(units[found[1]])}</mtext>'

    html = re.sub(r"<mn>\{(\w+)\}</mn>", number, html)
    return Markup(re.sub(r"<mtext>&nbsp;\{(\w+)\}</mtext>", unit, html))


def _number(value: Value | Decimal, lang: str) -> str:
    """A number as it stands in a formula: what is too large or small for digits as a power of ten."""
    return format_power(value, lang) or format_number(value, lang, significant=_DIGITS)


def _style(lang: str) -> Style:
    text = catalogue(lang).text
    return Style(
        if_=text("if"),
        otherwise=text("otherwise"),
        where=text("where"),
        and_=text("and"),
        or_=text("or"),
        not_=text("not"),
        separator=";" if signs(lang).decimal == "," else ",",
    )
