"""A formula as JavaScript that gives the same numbers as Python.

JavaScript has one kind of number, the 64-bit float. Python's integers are exact at any size, so results are
the same to the last digit as long as every intermediate value stays within 2^53 (9.007·10^15), and rounded
to a float's 53 bits beyond that. What raises in Python (division by zero, the logarithm of zero, a power that
overflows) throws a FormulaError. Where the languages differ, the code calls `static/formula-runtime.js`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from batchfit.emit import source, tree
from batchfit.emit.errors import EmitError
from batchfit.emit.tree import Expression, Formula, Statement

#: The module that holds what JavaScript does otherwise than Python, as the emitted code imports it.
RUNTIME = "./formula-runtime.js"

# What may stand as a name in Python and not in a JavaScript module, or is taken by the emitted code itself.
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        arguments await break case catch class const continue debugger default delete do else enum eval export
        extends false finally for function if implements import in instanceof interface let new null package
        private protected public py return static super switch this throw true try typeof undefined var void
        while with yield NaN Infinity PARAMETERS
        """,
    )
)
_CONDITIONAL, _OR, _AND, _EQUAL, _ORDER, _SUM, _PRODUCT, _UNARY, _ATOM = range(9)
_OPERATORS = {"+": _SUM, "-": _SUM, "*": _PRODUCT}
_CALLS = {"/": "div", "//": "floordiv", "%": "mod", "**": "pow"}
_ORDERS = {"==": "===", "!=": "!==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def to_javascript(function: Callable[..., Any]) -> str:
    """The formula as one exported JavaScript function of the same name, parameters in the same order.

    Tuples become arrays, records objects. It refers to the runtime as `py` and to formulas it calls by their
    names: `to_module` gives a module with all of them. Raises EmitError.
    """
    return _function(source.load(function))


def to_module(functions: Iterable[Callable[..., Any]], runtime: str = RUNTIME) -> str:
    """An ES module of these formulas and all that they call, with `runtime` as the address of the runtime.

    It also exports PARAMETERS: the names of each function's parameters, in order. Raises EmitError.
    """
    formulas: dict[str, Formula] = {}
    for function in functions:
        for formula in _needed(source.load(function)):
            if formulas.setdefault(formula.name, formula).function is not formula.function:
                raise EmitError(formula.file, formula.line, f"a second formula called {formula.name}")
    parameters = {name: [p.name for p in formula.parameters] for name, formula in formulas.items()}
    parts = [
        f"import * as py from {json.dumps(runtime)};",
        *map(_function, formulas.values()),
        f"export const PARAMETERS = {json.dumps(parameters)};",
    ]
    return "\n\n".join(parts) + "\n"


def _needed(formula: Formula) -> Iterator[Formula]:
    """The formulas that a formula calls, directly or not, before itself."""
    for value in tree.expressions(formula.body):
        for part in tree.walk(value):
            if isinstance(part, tree.Apply):
                yield from _needed(part.formula)
    yield formula


def _function(formula: Formula) -> str:
    own = {parameter.name for parameter in formula.parameters} | tree.assigned(formula.body)
    for called in {f.name for f in _needed(formula)} - {formula.name}:
        if called in own:
            raise EmitError(formula.file, formula.line, f"a name of its own that hides the formula {called}")
    parameters = []
    for parameter in formula.parameters:
        default = formula.defaults.get(parameter.name)
        value = "" if default is None else f" = {_print(default)}"
        parameters.append(_name(parameter.name) + value)
    lines = []
    if formula.summary:
        lines.append(f"/** {formula.summary.replace('*/', '* /')} */")
    lines.append(f"export function {_name(formula.name)}({', '.join(parameters)}) {{")
    if locals_ := sorted(tree.assigned(formula.body) - {parameter.name for parameter in formula.parameters}):
        lines.append(f"  let {', '.join(map(_name, locals_))};")
    lines += [f"  {line}" for line in _block(formula.body)]
    return "\n".join([*lines, "}"])


def _name(name: str) -> str:
    return f"{name}_" if name.rstrip("_") in _RESERVED else name


# ---- Statements ----------------------------------------------------------------------------------------


def _block(body: tuple[Statement, ...]) -> list[str]:
    return [line for statement in body for line in _statement(statement)]


def _statement(statement: Statement) -> list[str]:
    match statement:
        case tree.Assign(name=name, value=value):
            return [f"{_name(name)} = {_print(value)};"]
        case tree.Unpack(names=names, fields=(), value=value):
            return [f"[{', '.join(map(_name, names))}] = {_print(value)};"]
        case tree.Unpack(names=names, fields=fields, value=value):
            targets = [f"{field}: {_name(name)}" for field, name in zip(fields, names, strict=True)]
            return [f"({{ {', '.join(targets)} }} = {_print(value)});"]
        case tree.Return(value=value):
            return [f"return {_print(value)};"]
        case tree.Branch(condition=condition, then=then, otherwise=otherwise):
            lines = [f"if ({_print(condition)}) {{", *(f"  {line}" for line in _block(then))]
            if otherwise:
                lines += ["} else {", *(f"  {line}" for line in _block(otherwise))]
            return [*lines, "}"]


# ---- Expressions ---------------------------------------------------------------------------------------


def _print(value: Expression, level: int = _CONDITIONAL) -> str:
    """`value` as JavaScript, in brackets where it binds more loosely than `level`."""
    text, own = _expression(value)
    return text if own >= level else f"({text})"


def _call(name: str, *arguments: Expression) -> tuple[str, int]:
    return f"py.{name}({', '.join(map(_print, arguments))})", _ATOM


def _expression(value: Expression) -> tuple[str, int]:
    """The JavaScript of an expression, and how tightly it binds."""
    match value:
        case tree.Number(value=number):
            return _number(number)
        case tree.Truth(value=truth):
            return ("true" if truth else "false"), _ATOM
        case tree.Name(name=name):
            return _name(name), _ATOM
        case tree.Negative(operand=operand):
            return f"-{_print(operand, _ATOM)}", _UNARY
        case tree.Binary(operator=operator, left=left, right=right):
            if operator in _CALLS:
                return _call(_CALLS[operator], left, right)
            level = _OPERATORS[operator]
            return f"{_print(left, level)} {operator} {_print(right, level + 1)}", level
        case tree.Comparison(operators=operators, operands=operands):
            pairs = zip(operators, operands, operands[1:], strict=False)
            parts = [f"{_print(a, _SUM)} {_ORDERS[op]} {_print(b, _SUM)}" for op, a, b in pairs]
            return " && ".join(parts), _EQUAL if len(parts) == 1 else _AND
        case tree.Logic(operator="not", operands=(operand,)):
            return f"!{_print(operand, _UNARY)}", _UNARY
        case tree.Logic(operator=operator, operands=operands):
            sign, level = ("&&", _AND) if operator == "and" else ("||", _OR)
            return f" {sign} ".join(_print(operand, level + 1) for operand in operands), level
        case tree.Choice(condition=condition, then=then, otherwise=otherwise):
            text = f"{_print(condition, _OR)} ? {_print(then, _OR)} : {_print(otherwise)}"
            return text, _CONDITIONAL
        case tree.Call(function=function, arguments=arguments):
            return _call(function, *arguments)
        case tree.Apply(formula=formula, arguments=arguments):
            return f"{_name(formula.name)}({', '.join(map(_print, arguments))})", _ATOM
        case tree.Sum():
            return _sum(value)
        case tree.Group(items=items, record=None):
            return f"[{', '.join(map(_print, items))}]", _ATOM
        case tree.Group(items=items, fields=fields):
            pairs_ = [f"{field}: {_print(item)}" for field, item in zip(fields, items, strict=True)]
            return f"{{ {', '.join(pairs_)} }}", _ATOM
        case tree.Item(of=of, index=index, field=field):
            return _print(of, _ATOM) + (f".{field}" if field else f"[{index}]"), _ATOM
    raise AssertionError(value)


def _number(number: int | float) -> tuple[str, int]:
    if isinstance(number, float) and math.isinf(number):
        return ("Infinity", _ATOM) if number > 0 else ("-Infinity", _UNARY)
    return repr(number), _ATOM if number >= 0 else _UNARY


def _sum(value: tree.Sum) -> tuple[str, int]:
    limits = ", ".join(map(_print, (value.start, value.stop, value.step)))
    variable = _name(value.variable)
    text = f"py.sum({limits}, ({variable}) => {_print(value.term)}"
    if value.condition is not None:
        text += f", ({variable}) => {_print(value.condition)}"
    return text + ")", _ATOM
