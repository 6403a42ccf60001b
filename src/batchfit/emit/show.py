"""A formula as people read it: the formula itself, and the same with numbers put in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from batchfit.emit import source
from batchfit.emit.errors import EmitError
from batchfit.emit.evaluate import Values, evaluate
from batchfit.emit.expand import expand, item
from batchfit.emit.mathml import math
from batchfit.emit.notation import (
    ENGLISH,
    Format,
    Layout,
    Notation,
    Row,
    Sign,
    Style,
    Symbol,
    Word,
    english,
    letter,
)
from batchfit.emit.text import text
from batchfit.emit.tree import Expression, Formula

#: The symbol of a formula's result, or where it has several, one for each: by name for a record's fields, in
#: their order for a tuple's values.
Results = Symbol | list[Symbol] | Mapping[str, Symbol]


def to_mathml(
    function: Callable[..., Any],
    symbols: Mapping[str, Symbol],
    result: Results,
    *,
    style: Style = ENGLISH,
    show: Format = english,
) -> str:
    """The formula as MathML, a `<math>` element for each line: the results, then the locals that it uses.

    `symbols` has one for each parameter, by name. A local with a symbol gets its own "where" line, one
    without is written out where it is used; so are other formulas that the formula calls. `show` gives the
    numbers that stand in the formula. Raises EmitError where something has no symbol, or no notation.
    """
    lines = _Sheet(source.load(function), symbols, result, style, show).formula_lines()
    return "".join(math(line, display="block") for line in lines)


def worked_example(
    function: Callable[..., Any],
    symbols: Mapping[str, Symbol],
    result: Results,
    values: Values,
    *,
    style: Style = ENGLISH,
    show: Format = english,
) -> str:
    """The formula with `values` put in for its parameters, and its result, as HTML with MathML.

    Each line is a `<div>` of several `<math>` elements (the formula, the numbers, the result), between which
    a narrow page can break it. Of a formula with cases, only the case that applies is shown. `show` is asked
    for each value by its parameter's or local's name; for the result by the function's name, or by the name
    of the record's field, or the number of the tuple's value ("0"). Raises EmitError as `to_mathml` does, and
    whatever the formula raises for these values.
    """
    lines = _Sheet(source.load(function), symbols, result, style, show).worked_lines(values)
    return "".join(
        f"<div>{' '.join(math(step, display='inline') for step in steps)}</div>" for steps in lines
    )


def to_text(
    function: Callable[..., Any],
    symbols: Mapping[str, Symbol],
    result: Results,
    values: Values | None = None,
    *,
    style: Style = ENGLISH,
    show: Format = english,
) -> str:
    """The same as text, a line each: the formula, or with `values`, the worked example.

    "E = b · a · g", "E = b · a · g = 4 · 8 · 1 = 32".
    """
    sheet = _Sheet(source.load(function), symbols, result, style, show)
    if values is None:
        return "\n".join(map(text, sheet.formula_lines()))
    return "\n".join(" ".join(map(text, steps)) for steps in sheet.worked_lines(values))


@dataclass(frozen=True)
class _Equation:
    """A result or a local, with the expression that gives it."""

    name: str
    symbol: Symbol
    value: Expression


@dataclass(frozen=True)
class _Sheet:
    """One formula, with all that its lines need."""

    formula: Formula
    symbols: Mapping[str, Symbol]
    result: Results
    style: Style
    show: Format

    def formula_lines(self) -> list[Layout]:
        expanded = expand(self.formula, self.symbols)
        lines: list[Layout] = []
        for each in self.results(expanded.result):
            lines.append(Row((letter(each.symbol), Sign("="), self.in_letters.layout(each.value))))
        for name, value in expanded.where:
            equation = (letter(self.symbols[name]), Sign("="), self.in_letters.layout(value))
            lines.append(Row((Word(self.style.where), *equation)))
        return lines

    def worked_lines(self, values: Values) -> list[list[Layout]]:
        expanded = expand(self.formula, self.symbols, values)
        known = dict(values)
        lines = []
        for name, value in expanded.where:
            lines.append(self.steps(_Equation(name, self.symbols[name], value), known))
            known[name] = evaluate(value, known)
        if evaluate(expanded.result, known) != self.formula.function(**values):
            raise self.refusal("an example that does not give what the formula gives")
        return lines + [self.steps(each, known) for each in self.results(expanded.result)]

    def steps(self, equation: _Equation, known: Values) -> list[Layout]:
        """One line of an example in its steps: "E = b · a · g", "= 4 · 8 · 1", "= 32"."""
        in_numbers = Notation(self.formula, self.symbols, self.style, self.show, known)
        found = evaluate(equation.value, known)
        letters = self.in_letters.layout(equation.value)
        numbers, answer = in_numbers.layout(equation.value), in_numbers.figure(equation.name, found)
        equals = "=" if self.show(equation.name, abs(found)).exact else "≈"
        steps: list[Layout] = [Row((letter(equation.symbol), Sign("="), letters))]
        if numbers not in (letters, answer):
            steps.append(Row((Sign("=", "leading"), numbers)))
        if answer != letters:
            steps.append(Row((Sign(equals, "leading"), answer)))
        return steps

    @cached_property
    def in_letters(self) -> Notation:
        return Notation(self.formula, self.symbols, self.style, self.show)

    def results(self, value: Expression) -> list[_Equation]:
        """An equation for each value that the formula gives and `result` has a symbol for; but none for a
        local of the same symbol, which has its own line."""
        return [e for e in self.all_results(value) if self.in_letters.layout(e.value) != letter(e.symbol)]

    def all_results(self, value: Expression) -> list[_Equation]:
        kind, result = self.formula.returns, self.result
        match result:
            case str() | tuple() if kind == "number":
                return [_Equation(self.formula.name, result, value)]
            case list() if isinstance(kind, tuple) and len(result) == len(kind):
                return [_Equation(str(i), symbol, item(value, i)) for i, symbol in enumerate(result)]
            case Mapping() if isinstance(kind, type) and result.keys() <= set(source.fields_of(kind)):
                places = {field: index for index, field in enumerate(source.fields_of(kind))}
                return [_Equation(f, symbol, item(value, places[f])) for f, symbol in result.items()]
        raise self.refusal(f"{self.formula.name} does not give what these are symbols of: {result}")

    def refusal(self, construct: str) -> EmitError:
        return EmitError(self.formula.file, self.formula.line, construct)
