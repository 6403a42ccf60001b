"""What cannot be translated faithfully is refused, with its file, line and construct."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from batchfit.emit import EmitError, to_javascript
from batchfit.emit.source import load
from tests.emit import formulas

NAME = "GB"
UNKNOWN = float("nan")


@dataclass
class Point:
    x: int
    y: int


def text(x: int) -> int:
    return x if NAME == "GB" else 0  # REFUSED


def no_hint(x) -> int:  # type: ignore[no-untyped-def]  # REFUSED
    return x  # type: ignore[no-any-return]


def string_parameter(x: str) -> int:  # REFUSED
    return len(x)


def record_parameter(point: Point) -> int:  # REFUSED
    return point.x


def any_number(*x: int) -> int:  # REFUSED
    return x[0]


def no_return(x: int) -> int:  # type: ignore[return]  # noqa: RET503
    if x > 0:  # REFUSED
        return x


def loop(x: int) -> int:
    while x > 10:  # REFUSED
        x -= 1
    return x


def for_loop(x: int) -> int:
    total = 0
    for i in range(x):  # REFUSED
        total += i
    return total


def number_as_condition(x: int) -> int:
    return 1 if x else 2  # REFUSED


def number_or_number(x: int, y: int) -> int:
    return x or y  # REFUSED


def truth_as_number(x: int, y: bool) -> int:
    return x * y  # REFUSED


def not_number(x: int) -> bool:
    return not x  # REFUSED


def membership(x: int) -> bool:
    return x in (1, 2)  # REFUSED


def identity(x: int, y: int) -> bool:
    return x is y  # REFUSED


def bits(x: int) -> int:
    return x & 3  # REFUSED


def inverted(x: int) -> int:
    return ~x  # REFUSED


def random_number(x: int) -> float:
    return x * random.random()  # REFUSED


def unknown_function(x: float) -> float:
    return math.gamma(x)  # REFUSED


def no_such_member(x: float) -> float:
    return math.nothing(x)  # type: ignore[attr-defined,no-any-return]  # REFUSED


def method(x: int) -> int:
    return x.bit_length()  # REFUSED


def attribute(x: int) -> int:
    return x.real  # REFUSED


def nested(x: int) -> int:
    def inner(y: int) -> int:  # REFUSED
        return y

    return inner(x)


def lambda_inside(x: int) -> int:
    double = lambda y: 2 * y  # noqa: E731  # REFUSED
    return int(double(x))  # type: ignore[no-untyped-call]


def many_digits(x: float, digits: int) -> float:
    return round(x, digits)  # REFUSED


def negative_digits(x: int) -> int:
    return round(x, -2)  # REFUSED


def list_minimum(x: int) -> int:
    return min([x, 2])  # REFUSED


def sum_of_list(x: int) -> int:
    return sum([x, 2])  # REFUSED


def sum_from(x: int) -> int:
    return sum((i for i in range(x)), 5)  # REFUSED


def sum_that_hides(x: int) -> int:
    return sum(x for x in range(x))  # REFUSED


def shape(x: int) -> int:
    if x > 3:
        y: float = 2
    else:
        y = x > 2
    return int(y)


def unassigned(x: int) -> int:
    if x > 3:
        y = 2
    return y  # REFUSED


def unreachable(x: int) -> int:  # noqa: RET503
    return x
    x += 1  # REFUSED


def wrong_result(x: int) -> int:
    return x > 2  # REFUSED


def wrong_tuple(x: int) -> tuple[int, int]:
    return x, x > 2  # REFUSED


def wrong_choice(x: int) -> int:
    return x if x > 2 else x > 3  # REFUSED


def not_a_number(x: float) -> float:
    return x * UNKNOWN  # REFUSED


def undefined(x: int) -> int:
    return x * missing  # type: ignore[name-defined,no-any-return]  # noqa: F821  # REFUSED


def too_few_names(x: int, y: int) -> int:
    a, b = formulas.record(x, y)  # type: ignore[misc]  # REFUSED
    return int(a + b)


def unpacked_dataclass(x: int, y: int) -> float:
    a, b = formulas.interval(x, y)  # type: ignore[misc]  # REFUSED
    return a + b  # type: ignore[has-type,no-any-return]


def far_index(x: int, y: int) -> float:
    return formulas.pair(x, y)[2]  # type: ignore[misc,no-any-return]  # REFUSED


def wrong_call(x: int) -> float:
    return formulas.pair(x)[0]  # type: ignore[call-arg]  # REFUSED


def star_call(x: int) -> int:
    return max(*(x, 2))  # REFUSED


def double_star_call(x: int) -> float:
    return formulas.with_default(x, **{"new": 2})  # noqa: PIE804  # REFUSED


def itself(x: int) -> int:
    return 0 if x <= 0 else itself(x - 1)


def raises(x: int) -> int:
    if x < 0:
        raise ValueError(x)  # REFUSED
    return x


def text_default(x: int = "1") -> int:  # type: ignore[assignment]  # REFUSED
    return x


def walrus(x: int) -> int:
    return (y := x) + y  # REFUSED


def other_type(x: int) -> float:
    y, *others = x, x, x  # REFUSED
    return y + others[0]


FUNCTIONS = [f for f in list(globals().values()) if inspect.isfunction(f) and f.__module__ == __name__]
REFUSED = [f for f in FUNCTIONS if "# REFUSED" in inspect.getsource(f)]


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_refused_at_its_line(function: Callable[..., Any]) -> None:
    with pytest.raises(EmitError) as caught:
        to_javascript(function)
    lines, first = inspect.getsourcelines(function)
    (marked,) = [first + number for number, line in enumerate(lines) if "# REFUSED" in line]
    assert caught.value.line == marked
    assert caught.value.file == __file__
    assert caught.value.construct
    assert str(caught.value) == f"{__file__}:{marked}: {caught.value.construct}"


@pytest.mark.parametrize(
    ("function", "construct"),
    [
        (loop, "a statement of the kind While"),
        (number_as_condition, "a number where a truth value is needed"),
        (truth_as_number, "a truth value where a number is needed"),
        (bits, "an expression of the kind BinOp"),
        (random_number, "a call of random.random"),
        (unassigned, "y has no value on some path to here"),
        (no_return, "a path through the formula that ends without a return"),
        (wrong_call, "a call of formulas.pair: missing a required argument: 'y'"),
        (no_hint, "parameter x has no type hint"),
        (negative_digits, "round to other than a fixed number of digits from 0 to 15"),
        (shape, "y has another kind of value on each path"),
        (itself, "itself calls itself"),
        (unpacked_dataclass, "an assignment to several names from a Range"),
    ],
)
def test_says_what_is_refused(function: Callable[..., Any], construct: str) -> None:
    with pytest.raises(EmitError) as caught:
        load(function)
    assert caught.value.construct == construct


def test_what_has_no_source_is_refused() -> None:
    with pytest.raises(EmitError, match="has no Python source"):
        load(math.sqrt)
    with pytest.raises(EmitError, match="is no plain function"):
        load(lambda x: x)


def test_wrappers_are_looked_through() -> None:
    assert load(cache(formulas.division_up)) == load(formulas.division_up)
