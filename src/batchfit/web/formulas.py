"""A calculator's formulas as they are shown: in symbols, and with the numbers put in.

Both come from the formulas' own source. Each number of a worked example carries the name of what it is the value
of, so that the page's JavaScript can put in others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from markupsafe import Markup, escape

from batchfit.calculator import Calculator, Output, Value
from batchfit.emit import Quantity, Style, to_mathml, to_text, worked_example
from batchfit.fields import Field
from batchfit.languages import catalogue
from batchfit.numbers import format_number, symbols
from batchfit.units import UNITS

#: Enough to show a product of typed numbers as it is, and to hide what rounding to whole bytes did to it.
_DIGITS = 9


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


def shown(
    calculator: Calculator, values: Mapping[str, Value], units: Mapping[str, str], lang: str
) -> list[Shown]:
    """The formula of each output; without values, no worked examples."""
    return [
        Shown(
            output,
            Markup(to_mathml(output.formula, _letters(calculator), output.symbol, style=_style(lang))),
            _worked(calculator, output, values, units, lang) if values else Markup(),
        )
        for output in calculator.outputs
    ]


def as_text(
    calculator: Calculator, values: Mapping[str, Value], units: Mapping[str, str], lang: str
) -> list[tuple[Output, str, str]]:
    """Each output with its formula and its worked example as text; without values, the latter is empty."""
    records, letters, style = _records(calculator), _letters(calculator), _style(lang)

    def show(name: str | None, value: Value) -> Quantity:
        of = records.get(name or "")
        if of is None or of.kind != "bytes":
            return Quantity(format_number(value, lang, significant=_DIGITS))
        unit = units[of.name]
        return Quantity(format_number(Decimal(value) / UNITS[unit], lang, significant=_DIGITS), unit)

    found = []
    for output in calculator.outputs:
        # The result is asked for by the formula's name.
        records[output.formula.__name__] = output
        given = {name: values[name] for name in output.parameters} if values else None
        symbolic = to_text(output.formula, letters, output.symbol, style=style)
        worked = (
            to_text(output.formula, letters, output.symbol, given, style=style, show=show) if given else ""
        )
        found.append((output, symbolic, worked))
    return found


def _records(calculator: Calculator) -> dict[str, Field | Output]:
    return {of.name: of for of in calculator.fields} | {of.name: of for of in calculator.outputs}


def _letters(calculator: Calculator) -> dict[str, str]:
    return {name: of.symbol for name, of in _records(calculator).items()}


def _worked(
    calculator: Calculator, output: Output, values: Mapping[str, Value], units: Mapping[str, str], lang: str
) -> Markup:
    records = _records(calculator)

    def placeholder(name: str | None, value: Value) -> Quantity:
        # The result is asked for by the formula's name.
        name = output.name if name == output.formula.__name__ else name
        if name not in records:
            return Quantity(format_number(value, lang, significant=_DIGITS))
        return Quantity(f"{{{name}}}", f"{{{name}}}" if records[name].kind == "bytes" else "")

    given = {name: values[name] for name in output.parameters}
    html = worked_example(
        output.formula, _letters(calculator), output.symbol, given, style=_style(lang), show=placeholder
    )

    def number(found: re.Match[str]) -> str:
        name = found[1]
        scale = UNITS[units[name]] if records[name].kind == "bytes" else 1
        text = format_number(Decimal(values[name]) / scale, lang, significant=_DIGITS)
        return f'<mn data-value="{name}">{escape(text)}</mn>'

    def unit(found: re.Match[str]) -> str:
        return f'<mtext data-unit="{found[1]}">&nbsp;{escape(units[found[1]])}</mtext>'

    html = re.sub(r"<mn>\{(\w+)\}</mn>", number, html)
    return Markup(re.sub(r"<mtext>&nbsp;\{(\w+)\}</mtext>", unit, html))


def _style(lang: str) -> Style:
    text = catalogue(lang).text
    return Style(
        if_=text("if"),
        otherwise=text("otherwise"),
        where=text("where"),
        and_=text("and"),
        or_=text("or"),
        not_=text("not"),
        separator=";" if symbols(lang).decimal == "," else ",",
    )
