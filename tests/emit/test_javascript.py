"""The emitted JavaScript gives what Python gives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit import calculators
from batchfit.emit import EmitError, to_javascript, to_module
from batchfit.formulas import activation_memory, batching
from tests.emit import formulas
from tests.emit.compare import differences
from tests.emit.node import STATIC, Thrown, evaluate
from tests.inputs import defaults

EDGES = [0, 1, -1, 2, -2, 3, 7, 10, -10, 2**20, 2**31, -(2**31), 2**32 + 1, 2**53 - 1, -(2**53) + 1]
small = st.integers(-1000, 1000)
whole = st.sampled_from([n for n in EDGES if abs(n) <= 2**20]) | st.integers(-(2**20), 2**20)
large = st.sampled_from(EDGES) | st.integers(-(2**53) + 1, 2**53 - 1)
halves = st.integers(-(2**20), 2**20).map(lambda n: n / 2)
real = st.sampled_from([0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1e-300, 1e15]) | halves | st.floats(-1e15, 1e15)

# Which numbers are given to each formula. Whole numbers stay below 2^53 on the way, as documented.
CASES: dict[Callable[..., Any], list[st.SearchStrategy[Any]]] = {
    formulas.arithmetic: [whole, whole],
    formulas.division: [real, real],
    formulas.whole_division: [large.map(lambda n: n // 4), large],
    formulas.float_division: [real, real],
    formulas.division_up: [large, large],
    formulas.powers: [small, st.integers(0, 5)],
    formulas.comparisons: [st.integers(-12, 12), st.integers(-12, 12)],
    formulas.choices: [whole, whole, st.booleans()],
    formulas.branches: [small, small],
    formulas.rounding: [st.floats(-1e13, 1e13) | halves],
    formulas.digits: [st.floats(-1e6, 1e6) | st.integers(-(10**7), 10**7).map(lambda n: n / 1000) | halves],
    formulas.extremes: [real, real, whole],
    formulas.sums: [st.integers(-3, 60), small],
    formulas.total: [st.integers(-3, 60), small],
    formulas.stepwise: [whole, whole],
    formulas.clipped: [real, real],
    formulas.constants: [real],
    formulas.pair: [whole, whole],
    formulas.uses_pair: [small, small],
    formulas.record: [whole, whole],
    formulas.uses_record: [small, small],
    formulas.interval: [real, real],
    formulas.width: [real, real],
    formulas.calls: [whole, whole],
    formulas.with_default: [whole],
    formulas.defaults_left_out: [whole],
    formulas.alias: [whole, whole],
    batching.effective_batch_size: [st.integers(1, 2**17), st.integers(1, 2**18), st.integers(1, 2**18)],
    batching.accumulation_steps_nearest: [st.integers(1, 2**40), *[st.integers(1, 2**20)] * 2],
    batching.accumulation_steps_below: [st.integers(1, 2**40), *[st.integers(0, 2**20)] * 2],
    batching.accumulation_steps_above: [st.integers(1, 2**40), *[st.integers(0, 2**20)] * 2],
    batching.drift: [st.integers(0, 2**52), st.integers(0, 2**52)],
    activation_memory.activation_memory_bytes: [st.integers(1, 2**20), st.integers(0, 2**33)],
}
#: Those whose results come from functions that C libraries and browsers round differently in the last bits.
ROUNDED: dict[Callable[..., Any], list[st.SearchStrategy[Any]]] = {
    formulas.real_powers: [st.floats(-50, 50) | small, st.floats(-50, 50) | st.integers(-9, 9)],
    formulas.roots: [real],
    formulas.share: [real, real],
    formulas.exponential: [st.floats(-800, 800)],
    formulas.half_cosine: [st.floats(-4, 4)],
}


def names(function: Callable[..., Any]) -> str:
    return function.__name__


@pytest.mark.parametrize("function", CASES, ids=names)
def test_gives_what_python_gives(function: Callable[..., Any]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(*CASES[function]), min_size=20, max_size=100))
    def check(calls: list[tuple[Any, ...]]) -> None:
        assert differences(function, calls) == []

    check()


@pytest.mark.parametrize("function", ROUNDED, ids=names)
def test_gives_what_python_gives_but_for_the_last_bits(function: Callable[..., Any]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(*ROUNDED[function]), min_size=20, max_size=100))
    def check(calls: list[tuple[Any, ...]]) -> None:
        assert differences(function, calls, tolerance=1e-14) == []

    check()


def test_every_formula_is_tested() -> None:
    here = {f for f in vars(formulas).values() if inspect.isfunction(f) and f.__module__ == formulas.__name__}
    shipped = {
        f for module in (batching, activation_memory) for f in vars(module).values() if inspect.isfunction(f)
    }
    assert here | shipped == CASES.keys() | ROUNDED.keys()


def test_a_difference_is_found() -> None:
    """The comparison can fail: an emitted formula that is wrong in one case of many is caught."""
    calls = [(x, y) for x in range(-5, 6) for y in range(1, 6)]
    right = to_module([formulas.whole_division])
    wrong = right.replace("py.mod(x, y)", "x % y")  # JavaScript's % has the sign of the left operand
    assert wrong != right
    assert differences(formulas.whole_division, calls) == []
    found = differences(formulas.whole_division, calls, module=wrong)
    assert found
    assert all(x < 0 for (x, _), _, _ in found)


@pytest.mark.parametrize("slug", calculators.slugs())
def test_a_calculators_formulas_on_its_defaults(slug: str) -> None:
    calculator = calculators.load(slug)
    known = calculator.evaluate(defaults(calculator)).values
    for output in calculator.outputs:
        if output.name in known:
            call = [known[name] for name in output.parameters]
            assert differences(output.formula, [call], tolerance=1e-14) == [], output.name


# ---- Where numbers end ---------------------------------------------------------------------------------


def test_beyond_two_to_the_53_the_result_is_the_nearest_floats() -> None:
    @given(st.lists(st.tuples(*[st.integers(2**26, 2**40)] * 3), min_size=20))
    @settings(max_examples=25, deadline=None)
    def check(calls: list[tuple[int, ...]]) -> None:
        assert differences(batching.effective_batch_size, calls, tolerance=2**-52) == []

    check()
    module = to_module([formulas.powers])
    assert evaluate(module, "powers", [[10, 22], [3, 33], [7, 18]]) == [
        float(formulas.powers(10, 22)),
        formulas.powers(3, 33),
        formulas.powers(7, 18),
    ]


@pytest.mark.parametrize(
    ("function", "call", "message"),
    [
        (formulas.division, [1, 0], "division by zero"),
        (formulas.whole_division, [1, 0], "division by zero"),
        (formulas.real_powers, [0, -1], "division by zero"),
        (formulas.real_powers, [-8, 0.5], "a power that is no real number"),
        (formulas.real_powers, [1e200, 2], "too large"),
        (formulas.exponential, [1000], "too large"),
        (formulas.roots, [-1], "the square root of a negative number"),
        (formulas.roots, [0], "the logarithm of a number that is not positive"),
    ],
)
def test_throws_where_python_raises(function: Callable[..., Any], call: list[float], message: str) -> None:
    if message != "a power that is no real number":  # a complex number in Python: no formula means that
        with pytest.raises((ZeroDivisionError, OverflowError, ValueError)):
            function(*call)
    assert evaluate(to_module([function]), function.__name__, [call]) == [Thrown("FormulaError", message, {})]


RUNTIME = STATIC / "formula-runtime.js"


def test_powers_of_two_have_exact_logarithms() -> None:
    powers = [2.0**n for n in range(-1022, 1024)]
    assert evaluate(RUNTIME, "log2", [[power] for power in powers]) == [math.log2(power) for power in powers]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e22, 1e22), st.integers(0, 15)), min_size=50, max_size=100))
def test_rounds_to_digits_as_python(calls: list[tuple[float, int]]) -> None:
    assert evaluate(RUNTIME, "round", calls) == [round(x, digits) for x, digits in calls]


def test_rounds_halves_to_even_at_every_digit() -> None:
    calls = [(n / 2 ** (digits + 1), digits) for digits in range(8) for n in range(-999, 1000)]
    calls += [(math.nextafter(x, way), digits) for x, digits in calls for way in (-math.inf, math.inf)]
    assert evaluate(RUNTIME, "round", calls) == [round(x, digits) for x, digits in calls]
    assert evaluate(RUNTIME, "round", [[x] for x, _ in calls]) == [round(x) for x, _ in calls]


# ---- The code ------------------------------------------------------------------------------------------


def test_code() -> None:
    assert to_javascript(batching.effective_batch_size) == (
        "/** Samples that contribute to one optimizer step: E = b·a·g. */\n"
        "export function effective_batch_size(micro_batch, accumulation_steps, replicas) {\n"
        "  return micro_batch * accumulation_steps * replicas;\n"
        "}"
    )
    assert to_javascript(formulas.with_default) == (
        "export function with_default(x, new_ = 3, class__ = 2) {\n"
        "  let function_;\n"
        "  function_ = x * new_;\n"
        "  return function_ + class__;\n"
        "}"
    )
    assert "(x + y) * x - (x - (y - 2) * -3) - -y" in to_javascript(formulas.arithmetic)


def test_a_module_holds_what_its_formulas_call() -> None:
    module = to_module([formulas.calls, formulas.width], runtime="/static/runtime.1234.js")
    assert module.startswith('import * as py from "/static/runtime.1234.js";\n')
    for name in ("drift", "with_default", "calls", "interval", "width"):
        assert module.count(f"export function {name}(") == 1
    assert '"calls": ["x", "y"]' in module


def test_two_formulas_of_one_name_are_refused() -> None:
    def drift(x: int) -> int:
        return x

    with pytest.raises(EmitError, match="a second formula called drift"):
        to_module([batching.drift, drift])


def test_a_local_that_hides_a_formula_is_refused() -> None:
    def hiding(drift: int) -> int:
        return batching.drift(drift, 1)

    with pytest.raises(EmitError, match="a name of its own that hides the formula drift"):
        to_javascript(hiding)
