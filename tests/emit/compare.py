"""Python and the emitted JavaScript, side by side, for the emitter's tests and for every calculator's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from batchfit.emit import to_module
from tests.emit.node import Thrown, evaluate

#: What stands for a call that raises: JavaScript must throw there.
RAISES = "raises"


def differences(
    function: Callable[..., Any],
    calls: Sequence[Sequence[Any]],
    *,
    tolerance: float = 0.0,
    module: str | None = None,
) -> list[tuple[Sequence[Any], Any, Any]]:
    """The calls for which Python and JavaScript disagree, with what each gave; so none, if all is well.

    `tolerance` is relative. `module` is another translation to compare with than the emitter's.
    """
    emitted = evaluate(module or to_module([function]), function.__name__, calls)
    results = [(call, _python(function, call), _page(js)) for call, js in zip(calls, emitted, strict=True)]
    return [each for each in results if not _same(each[1], each[2], tolerance)]


def _python(function: Callable[..., Any], call: Sequence[Any]) -> Any:
    """What Python gives, in the forms that JSON has."""
    try:
        value = function(*call)
    except (ArithmeticError, ValueError, TypeError):  # TypeError: a complex number where none may be
        return RAISES
    if isinstance(value, complex):  # a root of a negative number, which throws in JavaScript
        return RAISES
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    return value


def _page(value: Any) -> Any:
    if not isinstance(value, Thrown):
        return value
    assert value.name == "FormulaError", value
    return RAISES


def _same(python: Any, page: Any, tolerance: float) -> bool:
    if isinstance(python, dict):
        return isinstance(page, dict) and _same(list(python.items()), list(page.items()), tolerance)
    if isinstance(python, list | tuple):
        return len(python) == len(page) and all(
            _same(a, b, tolerance) for a, b in zip(python, page, strict=True)
        )
    if isinstance(python, bool | str) or isinstance(page, bool | str):
        return type(python) is type(page) and bool(python == page)
    if isinstance(python, float) and math.isnan(python):
        return math.isnan(page)
    return math.isclose(python, page, rel_tol=tolerance, abs_tol=0.0)
