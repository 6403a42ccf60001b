"""Formulas that nobody wrote: random programs of the whole subset, in Python, JavaScript and written out."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchfit.emit import EmitError, Quantity, Symbol, to_text, tree
from batchfit.emit.evaluate import evaluate as value_of
from batchfit.emit.expand import expand
from batchfit.emit.source import load
from tests.emit.compare import RAISES, differences

PARAMETERS = {"m": "int", "n": "int", "x": "float", "exact": "bool"}
CALLS = [
    (m, n, x, exact)
    for m, n, x in [(0, 0, 0.0), (1, 2, 0.5), (-3, 7, -2.5), (12, -5, 1e6), (100, 3, 0.1), (-1, -1, -0.75)]
    for exact in (True, False)
]
EXACT = 2**53

# ---- Programs ------------------------------------------------------------------------------------------


SHAPES = ["arithmetic"] * 10 + [
    "negative",
    "power",
    "choice",
    "extreme",
    "rounding",
    "digits",
    "series",
    "call",
]
FUNCTIONS = ["abs", "round", "int", "math.ceil", "math.floor", "math.sqrt"]
TRUTHS = ["comparison"] * 3 + ["chain", "and", "or", "not"]


def number(draw: st.DrawFn, names: tuple[str, ...], depth: int) -> str:
    """An expression that gives a number, and that C libraries and browsers compute to the same last bit."""
    if depth == 0:
        return draw(st.sampled_from([*names, "1", "2", "3", "0.5", "0.1", "2.5", "BLOCK"]))

    def part() -> str:
        return number(draw, names, draw(st.integers(0, depth - 1)))

    match draw(st.sampled_from(SHAPES)):
        case "arithmetic":
            left = number(draw, names, depth - 1)
            operator = draw(st.sampled_from(["+", "-", "*", "-", "/", "//", "%"]))
            return f"({left} {operator} {number(draw, names, depth - 1)})"
        case "negative":
            return f"(-{part()})"
        case "power":
            return f"({draw(st.sampled_from(['m', 'n', '3', '(-n)']))} ** {draw(st.integers(0, 4))})"
        case "choice":
            return f"({part()} if {truth(draw, names, depth - 1)} else {part()})"
        case "extreme":
            return f"{draw(st.sampled_from(['min', 'max']))}({part()}, {part()})"
        case "rounding":
            return f"{draw(st.sampled_from(FUNCTIONS))}({part()})"
        case "digits":
            return f"round({part()}, {draw(st.integers(0, 4))})"
        case "series":
            term = number(draw, (*names, f"i{depth}"), depth - 1)
            if draw(st.booleans()):
                return f"sum({term} for i{depth} in range(n, {draw(st.integers(0, 9))}))"
            condition = truth(draw, (*names, f"i{depth}"), depth - 1)
            return f"sum({term} for i{depth} in range(5) if {condition})"
        case _:
            return draw(st.sampled_from(["helper({}, {})", "both({}, {})[0]", "both({}, {})[1]"])).format(
                part(), part()
            )


def truth(draw: st.DrawFn, names: tuple[str, ...], depth: int) -> str:
    """An expression that gives a truth value."""
    if depth == 0:
        return draw(st.sampled_from(["exact", "m < n"]))
    signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    match draw(st.sampled_from(TRUTHS)):
        case "comparison":
            return f"({number(draw, names, depth)} {draw(signs)} {number(draw, names, depth - 1)})"
        case "chain":
            first, second, third = (number(draw, names, depth - 1) for _ in range(3))
            return f"({first} {draw(signs)} {second} {draw(signs)} {third})"
        case "not":
            return f"(not {truth(draw, names, depth - 1)})"
        case joined:
            return f"({truth(draw, names, depth - 1)} {joined} {truth(draw, names, depth - 1)})"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A function of the PARAMETERS with locals, branches and returns."""
    names: tuple[str, ...] = ("m", "n", "x")
    lines = []
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(["u", "v", "m"]))
        value = number(draw, names, draw(st.integers(1, 2)))
        match draw(st.integers(0, 3)):
            case 0:
                lines.append(f"{name} = {value}")
            case 1:
                other = number(draw, names, 1)
                lines += [f"if {truth(draw, names, 1)}:", f"    {name} = {value}"]
                lines += ["else:", f"    {name} = {other}"]
            case 2:
                lines += [f"if {truth(draw, names, 1)}:", f"    return {value}"]
                continue
            case 3:
                lines.append(f"{name}, w = both({value}, {number(draw, names, 1)})")
        names = tuple(dict.fromkeys((*names, name)))
    lines.append(f"return {number(draw, names, draw(st.integers(1, 3)))}")
    return "\n".join(f"    {line}" for line in lines)


HEAD = """
import math

BLOCK = 512


def helper(x: float, y: float) -> float:
    total = sum(x * i for i in range(3))
    if x > y:
        return total - y
    return total


def both(a: float, b: float) -> tuple[float, float]:
    larger = a
    if b > a:
        larger = b
    return larger, a - b


def formula(m: int, n: int, x: float, exact: bool) -> float:
"""

counter = itertools.count()


def compiled(program: str, folder: Path) -> Callable[..., Any]:
    """The program as a function whose source can be read."""
    path = folder / f"formula_{next(counter)}.py"
    path.write_text(HEAD + program + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    function: Callable[..., Any] = module.formula
    return function


# ---- What must hold ------------------------------------------------------------------------------------


def steps(value: tree.Expression, names: dict[str, Any]) -> Iterator[Any]:
    """The values of all parts of an expression, those of each term of a sum included."""
    if isinstance(value, tree.Sum):
        start, stop, step = (value_of(part, names) for part in (value.start, value.stop, value.step))
        total = 0
        for number in range(start, stop, step):
            known = {**names, value.variable: number}
            if value.condition is None or value_of(value.condition, known):
                yield from steps(value.term, known)
                total += value_of(value.term, known)
                yield total
        return
    yield value_of(value, names)
    for part in tree.children(value):
        yield from steps(part, names)


def stays_exact(function: Callable[..., Any], call: tuple[Any, ...]) -> bool:
    """Whether no integer on the way goes beyond 2^53, where JavaScript is no longer exact."""
    names = dict(zip(PARAMETERS, call, strict=True))
    try:
        found = list(steps(expand(load(function), (), names).result, names))
    except (ArithmeticError, ValueError, TypeError):
        return True  # where Python raises, JavaScript must too, whatever came before
    return all(not isinstance(value, complex) and not abs(value) > EXACT for value in found)


SETTINGS = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SETTINGS
@given(programs())
def test_javascript_gives_what_python_gives(tmp_path: Path, program: str) -> None:
    function = compiled(program, tmp_path)
    calls = [call for call in CALLS if stays_exact(function, call)]
    assert differences(function, calls) == []


@SETTINGS
@given(programs())
def test_written_out_it_gives_the_same(tmp_path: Path, program: str) -> None:
    formula = load(compiled(program, tmp_path))
    for call in CALLS:
        names = dict(zip(PARAMETERS, call, strict=True))
        try:
            wanted = formula.function(*call)
        except (ArithmeticError, ValueError, TypeError):
            wanted = RAISES
        for known in (None, names):
            try:
                found = value_of(expand(formula, (), known).result, names)
            except (ArithmeticError, ValueError, TypeError):
                found = RAISES
            if wanted == RAISES:
                continue  # written out, a local that is never used is not computed, and cannot raise
            assert found == wanted or (math.isnan(found) and math.isnan(wanted))


# ---- As it is shown ------------------------------------------------------------------------------------

#: The notation's signs as Python's, for expressions without cases, sums and |x|.
PYTHON = {"·": "*", "−": "-", "^": "**", " mod ": " % ", "trunc(": "math.trunc("}
PYTHON |= {"⌊": "math.floor(", "⌋": ")", "⌈": "math.ceil(", "⌉": ")"}


def exactly(name: str | None, value: float) -> Quantity:
    return Quantity(f"F('{Decimal(value)}')")


def with_fractions(value: tree.Expression) -> tree.Expression:
    if isinstance(value, tree.Number):
        return tree.Number(Fraction(value.value))  # type: ignore[arg-type]
    return tree.rebuild(value, with_fractions)


@SETTINGS
@given(programs())
def test_read_as_python_what_is_shown_gives_the_same(tmp_path: Path, program: str) -> None:
    """No bracket is missing: in exact fractions, the text that is shown has the value of the formula."""
    function = compiled(program, tmp_path)
    symbols: dict[str, Symbol] = {name: name for name in PARAMETERS}
    for call in CALLS:
        names = dict(zip(PARAMETERS, call, strict=True))
        try:
            shown = (
                to_text(function, symbols, "R", names, show=exactly).partition(" = ")[2].partition(" = ")[0]
            )
        except (ArithmeticError, ValueError, TypeError, EmitError):
            continue  # no result, or a truth value that has no notation
        if any(sign in shown for sign in "{∑|√"):
            continue
        for sign, python in PYTHON.items():
            shown = shown.replace(sign, python)
        fractions: Any = {name: Fraction(number) for name, number in names.items()}
        value = with_fractions(expand(load(function), (), names).result)
        try:
            wanted = value_of(value, fractions)
        except (ArithmeticError, TypeError):
            continue
        assert eval(shown, {"math": math, "F": Fraction, **fractions}) == wanted
