"""Formulas that nobody wrote: random programs of the whole subset, in Python, JavaScript and written out."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
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


@cache
def numbers(names: tuple[str, ...], depth: int) -> st.SearchStrategy[str]:
    """Expressions that give numbers, and that C libraries and browsers compute to the same last bit."""
    leaf = st.sampled_from([*names, "0", "1", "2", "3", "10", "0.5", "0.1", "2.5", "BLOCK"])
    if depth == 0:
        return leaf
    part, truth = numbers(names, depth - 1), truths(names, depth - 1)
    variable = f"i{depth}"
    inner = numbers((*names, variable), depth - 1)
    arithmetic = st.tuples(part, st.sampled_from(["+", "-", "*", "-", "/", "//", "%"]), part)
    return st.one_of(
        leaf,
        *[arithmetic.map(" ".join).map(bracketed)] * 8,  # as often as all others together
        st.builds("(-{})".format, part),
        st.builds("({}) ** {}".format, st.sampled_from(["m", "n", "3"]), st.integers(0, 4)).map(bracketed),
        st.builds("({} if {} else {})".format, part, truth, part),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), part, part),
        st.builds(
            "{}({})".format,
            st.sampled_from(["abs", "round", "int", "math.ceil", "math.floor", "math.sqrt"]),
            part,
        ),
        st.builds("round({}, {})".format, part, st.integers(0, 4)),
        st.builds(f"sum({{}} for {variable} in range(n, {{}}))".format, inner, st.integers(0, 9)),
        st.builds(f"sum({{}} for {variable} in range(5) if {{}})".format, inner, truth),
        st.builds("helper({}, {})".format, part, part),
        st.builds("both({}, {})[{}]".format, part, part, st.integers(0, 1)),
    )


@cache
def truths(names: tuple[str, ...], depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return st.sampled_from(["exact", "True", "m < n"])
    part, truth = numbers(names, depth - 1), truths(names, depth - 1)
    sign = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        truth,
        st.builds("({} {} {})".format, part, sign, part),
        st.builds("({} {} {} {} {})".format, part, sign, part, sign, part),
        st.builds("({} {} {})".format, truth, st.sampled_from(["and", "or"]), truth),
        st.builds("(not {})".format, truth),
    )


def bracketed(text: str) -> str:
    return f"({text})"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A function of the PARAMETERS with locals, branches and returns."""
    names: tuple[str, ...] = ("m", "n", "x")
    lines = []
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(["u", "v", "m"]))
        value = draw(numbers(names, 1))
        match draw(st.integers(0, 3)):
            case 0:
                lines.append(f"{name} = {value}")
            case 1:
                other = draw(numbers(names, 1))
                lines += [f"if {draw(truths(names, 1))}:", f"    {name} = {value}"]
                lines += ["else:", f"    {name} = {other}"]
            case 2:
                lines += [f"if {draw(truths(names, 1))}:", f"    return {value}"]
                continue
            case 3:
                lines.append(f"{name}, w = both({value}, {draw(numbers(names, 1))})")
        names = tuple(dict.fromkeys((*names, name)))
    lines.append(f"return {draw(numbers(names, 2))}")
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
    max_examples=100,
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
