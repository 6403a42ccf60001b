"""Expressions as one writes them by hand: fractions, powers, brackets where they are needed and nowhere else.

The result is a layout, which `emit.mathml` and `emit.text` write out. A number with a value is a figure, one
without is a letter: so the formula and its worked example are the same layout of the same expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from batchfit.emit import tree
from batchfit.emit.errors import EmitError
from batchfit.emit.evaluate import Values
from batchfit.emit.tree import Expression
from batchfit.numbers import format_number

#: A letter, or a letter and its subscript.
Symbol = str | tuple[str, str]


class Quantity(NamedTuple):
    """A number as it is shown: "0.5" and "GB". If not `exact`, "≈" stands before it."""

    number: str
    unit: str = ""
    exact: bool = True


#: How a value is shown, given the name of what it is the value of: a parameter, a local, a result, a constant,
#: or None for a number that stands in the formula. Never negative: the printer sets the minus sign.
Format = Callable[[str | None, int | float], Quantity]


def english(name: str | None, value: int | float) -> Quantity:
    """Any value with up to six decimals, without a unit, as English writes it."""
    text = format_number(value, max_fraction=6)
    return Quantity(text, exact=float(text.replace(",", "")) == value)


@dataclass(frozen=True)
class Style:
    """The words and signs of a language."""

    if_: str = "if"
    otherwise: str = "otherwise"
    where: str = "where"
    and_: str = "and"
    or_: str = "or"
    not_: str = "not"
    separator: str = ","  # between the arguments of max(...): ";" where a comma is the decimal sign


ENGLISH = Style()


# ---- Layouts -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    number: str
    unit: str = ""


@dataclass(frozen=True)
class Letter:
    base: str
    subscript: str = ""


@dataclass(frozen=True)
class Sign:
    """An operator: between two operands, as a "prefix" before one, or "leading" a line that goes on."""

    text: str
    place: Literal["between", "prefix", "leading"] = "between"


@dataclass(frozen=True)
class Word:
    """Words between formulas: "if", "otherwise"."""

    text: str


@dataclass(frozen=True)
class Row:
    parts: tuple[Layout, ...]


@dataclass(frozen=True)
class Fraction:
    above: Layout
    below: Layout


@dataclass(frozen=True)
class Power:
    base: Layout
    exponent: Layout


@dataclass(frozen=True)
class Root:
    of: Layout


@dataclass(frozen=True)
class Fenced:
    opening: str
    of: Layout
    closing: str


@dataclass(frozen=True)
class Applied:
    """A named function of its arguments, the name with a subscript where there is one: log₂(x)."""

    function: str
    arguments: tuple[Layout, ...]
    subscript: Layout | None = None
    separator: str = ","


@dataclass(frozen=True)
class Cases:
    """Values with their conditions; the last row says otherwise."""

    rows: tuple[tuple[Layout, Layout], ...]


@dataclass(frozen=True)
class Series:
    """A sum from what stands below the sigma to what stands above it."""

    below: Layout
    above: Layout
    term: Layout


Layout = Figure | Letter | Sign | Word | Row | Fraction | Power | Root | Fenced | Applied | Cases | Series

# How tightly what is shown holds together, loosest first.
_CASES, _OR, _AND, _NOT, _SERIES, _COMPARISON, _MOD, _SUM, _PRODUCT, _POWER, _ATOM = range(11)

_SIGNS = {"+": "+", "-": "−", "*": "⋅", "==": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥"}
_FENCES = {"floor": ("⌊", "⌋"), "ceil": ("⌈", "⌉"), "abs": ("|", "|")}
_NAMES = {"min": "min", "max": "max", "round": "round", "trunc": "trunc", "log": "ln", "cos": "cos"}


def letter(symbol: Symbol) -> Letter:
    return Letter(symbol) if isinstance(symbol, str) else Letter(*symbol)


@dataclass(frozen=True)
class Notation:
    """Lays out expressions: names by their `symbols`, or by their `values` where they have one."""

    formula: tree.Formula
    symbols: Mapping[str, Symbol]
    style: Style = ENGLISH
    show: Format = english
    values: Values = field(default_factory=dict)

    def layout(self, value: Expression, level: int = _CASES) -> Layout:
        """`value`, in brackets where it holds together less tightly than `level`."""
        shown, own = self._lay(value)
        return shown if own >= level else Fenced("(", shown, ")")

    def figure(self, name: str | None, value: int | float) -> Layout:
        return self._figure(name, value)[0]

    def refusal(self, construct: str) -> EmitError:
        return EmitError(self.formula.file, self.formula.line, construct)

    def _lay(self, value: Expression) -> tuple[Layout, int]:
        """The layout of an expression, and how tightly it holds together."""
        match value:
            case tree.Number(value=math.pi):
                return Letter("π"), _ATOM
            case tree.Number(value=number, name=name):
                named = name is not None and name in self.symbols
                return (letter(self.symbols[str(name)]), _ATOM) if named else self._figure(name, number)
            case tree.Name(name=name):
                return self._name(name)
            case tree.Negative(operand=tree.Binary("//", tree.Negative(operand=above), below)):
                return Fenced("⌈", self._fraction(above, below), "⌉"), _ATOM  # Python's usual way to round up
            case tree.Negative(operand=operand):
                return Row((Sign("−", "prefix"), self.layout(operand, _PRODUCT))), _SUM
            case tree.Binary(operator=operator, left=left, right=right):
                return self._binary(operator, left, right)
            case tree.Comparison(operators=operators, operands=operands):
                signs = [Sign(_SIGNS[operator]) for operator in operators]
                return self._joined(signs, operands, _MOD), _COMPARISON
            case tree.Logic(operator="not", operands=(operand,)):
                return Row((Word(self.style.not_), self.layout(operand, _NOT))), _NOT
            case tree.Logic(operator=operator, operands=operands):
                word, level = (self.style.and_, _AND) if operator == "and" else (self.style.or_, _OR)
                return self._joined([Word(word)] * (len(operands) - 1), operands, level + 1), level
            case tree.Choice():
                return self._cases(value), _CASES
            case tree.Call(function=function, arguments=arguments):
                return self._call(function, arguments)
            case tree.Sum():
                return self._series(value), _SERIES
        raise self.refusal(f"{type(value).__name__} in a formula that is to be shown")

    def _figure(self, name: str | None, value: int | float) -> tuple[Layout, int]:
        shown = self.show(name, abs(value))
        figure = Figure(shown.number, shown.unit)
        if value < 0:
            return Row((Sign("−", "prefix"), figure)), _SUM
        return figure, _PRODUCT if shown.unit else _ATOM

    def _name(self, name: str) -> tuple[Layout, int]:
        if name in self.values:
            return self._figure(name, self.values[name])
        if name not in self.symbols:
            raise self.refusal(f"{name} has no symbol")
        return letter(self.symbols[name]), _ATOM

    def _joined(self, signs: Sequence[Layout], operands: tuple[Expression, ...], level: int) -> Row:
        parts: list[Layout] = [self.layout(operands[0], level)]
        for sign, operand in zip(signs, operands[1:], strict=True):
            parts += [sign, self.layout(operand, level)]
        return Row(tuple(parts))

    def _binary(self, operator: str, left: Expression, right: Expression) -> tuple[Layout, int]:
        match operator:
            case "+" | "-":
                return self._chained(left, operator, right, _SUM), _SUM
            case "*":
                return self._chained(left, operator, right, _PRODUCT), _PRODUCT
            case "/":
                return self._fraction(left, right), _PRODUCT
            case "//":
                return Fenced("⌊", self._fraction(left, right), "⌋"), _ATOM
            case "%":
                mod = (self.layout(left, _POWER), Sign("mod"), self.layout(right, _POWER))
                return Row(mod), _MOD
        return self._power(left, right), _POWER

    def _chained(self, left: Expression, operator: str, right: Expression, level: int) -> Row:
        """A sum or product, in one row with the sums or products that it is made of."""
        before = self.layout(left, level)
        # What is added or multiplied needs no brackets of its own, a + (b + c) = a + b + c, but a first sign does.
        after = self.layout(right, level if operator in "+*" else _PRODUCT)
        if isinstance(after, Row) and after.parts[0] == Sign("−", "prefix"):
            after = Fenced("(", after, ")")
        parts = [part for side in (before, Sign(_SIGNS[operator]), after) for part in _parts(side)]
        return Row(tuple(parts))

    def _fraction(self, above: Expression, below: Expression) -> Fraction:
        return Fraction(self.layout(above), self.layout(below))

    def _power(self, base: Expression, exponent: Expression) -> Power:
        return Power(self.layout(base, _ATOM), self.layout(exponent))

    def _cases(self, value: tree.Choice) -> Cases:
        rows: list[tuple[Layout, Layout]] = []
        rest: Expression = value
        while isinstance(rest, tree.Choice):
            condition = Row((Word(self.style.if_), self.layout(rest.condition)))
            rows.append((self.layout(rest.then), condition))
            rest = rest.otherwise
        return Cases((*rows, (self.layout(rest), Word(self.style.otherwise))))

    def _call(self, function: str, arguments: tuple[Expression, ...]) -> tuple[Layout, int]:
        first = arguments[0]
        match function:
            case "floor" | "ceil" | "abs":
                opening, closing = _FENCES[function]
                return Fenced(opening, self.layout(first), closing), _ATOM
            case "sqrt":
                return Root(self.layout(first)), _ATOM
            case "exp":
                return Power(Letter("e"), self.layout(first)), _POWER
            case "pow":
                return self._power(first, arguments[1]), _POWER
            case "float":
                return self._lay(first)
            case "log2" | "log10":
                return Applied("log", (self.layout(first),), Figure(function.removeprefix("log"))), _ATOM
            case "log" if len(arguments) == 2:
                return Applied("log", (self.layout(first),), self.layout(arguments[1])), _ATOM
        shown = tuple(map(self.layout, arguments))
        return Applied(_NAMES[function], shown, separator=self.style.separator), _ATOM

    def _series(self, value: tree.Sum) -> Series:
        if value.step != tree.Number(1):
            raise self.refusal("a sum over a range with a step, in a formula that is to be shown")
        variable = letter(self.symbols.get(value.variable, value.variable))
        if variable in map(letter, [s for name, s in self.symbols.items() if name != value.variable]):
            raise self.refusal(f"a sum whose variable looks like another symbol: {variable.base}")
        inner = Notation(
            self.formula,
            {value.variable: value.variable, **self.symbols},
            self.style,
            self.show,
            {name: known for name, known in self.values.items() if name != value.variable},
        )
        below: tuple[Layout, ...] = (variable, Sign("="), self.layout(value.start))
        if value.condition is not None:
            below += (Sign(self.style.separator), inner.layout(value.condition))
        return Series(Row(below), self._last(value.stop), inner.layout(value.term, _PRODUCT))

    def _last(self, stop: Expression) -> Layout:
        """The last number before `stop`."""
        match stop:
            case tree.Number(value=number, name=None):
                return self.figure(None, number - 1)
            case tree.Binary(operator="+", left=left, right=tree.Number(value=1)):
                return self.layout(left)
        return self.layout(tree.Binary("-", stop, tree.Number(1)))


def _parts(layout: Layout) -> tuple[Layout, ...]:
    return layout.parts if isinstance(layout, Row) else (layout,)
