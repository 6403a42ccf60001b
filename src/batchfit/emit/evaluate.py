"""What an expression that has been written out gives in Python: for the steps on the way to a result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from batchfit.emit import source, tree
from batchfit.emit.tree import Expression

Values = Mapping[str, int | float | bool]

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_COMPARISON: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {name: f for f, (name, _, _) in source.FUNCTIONS.items()}


def evaluate(value: Expression, names: Values) -> Any:
    """The value of an expression without calls of other formulas. Raises what Python raises."""

    def of(part: Expression) -> Any:
        return evaluate(part, names)

    match value:
        case tree.Number(value=known) | tree.Truth(value=known):
            return known
        case tree.Name(name=name):
            return names[name]
        case tree.Negative(operand=operand):
            return -of(operand)
        case tree.Binary(operator=sign, left=left, right=right):
            return _ARITHMETIC[sign](of(left), of(right))
        case tree.Comparison(operators=signs, operands=operands):
            pairs = zip(signs, operands, operands[1:], strict=False)
            return all(_COMPARISON[sign](of(left), of(right)) for sign, left, right in pairs)
        case tree.Logic(operator="not", operands=(operand,)):
            return not of(operand)
        case tree.Logic(operator=sign, operands=operands):
            return (all if sign == "and" else any)(map(of, operands))
        case tree.Choice(condition=condition, then=then, otherwise=otherwise):
            return of(then) if of(condition) else of(otherwise)
        case tree.Call(function=function, arguments=arguments):
            return _FUNCTIONS[function](*map(of, arguments))
        case tree.Group(items=items, record=record):
            return tuple(map(of, items)) if record is None else record(*map(of, items))
        case tree.Sum(start=start, stop=stop, step=step):
            return sum(_terms(value, names, range(of(start), of(stop), of(step))))
    raise AssertionError(value)


def _terms(value: tree.Sum, names: Values, numbers: range) -> list[Any]:
    known = [{**names, value.variable: number} for number in numbers]
    kept = value.condition
    return [evaluate(value.term, each) for each in known if kept is None or evaluate(kept, each)]
