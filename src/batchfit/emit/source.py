"""From a formula's Python source to its tree. All that is refused is refused here, with file and line."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from batchfit.emit import tree
from batchfit.emit.errors import EmitError
from batchfit.emit.tree import Expression, Formula, Kind, Statement, kind_of

#: Python's own functions that formulas may call, by the name the printers know them under, with the fewest
#: and most arguments.
FUNCTIONS: dict[Callable[..., Any], tuple[str, int, int]] = {
    min: ("min", 2, 99),
    max: ("max", 2, 99),
    abs: ("abs", 1, 1),
    round: ("round", 1, 2),
    int: ("trunc", 1, 1),
    float: ("float", 1, 1),
    pow: ("pow", 2, 2),
    math.pow: ("pow", 2, 2),
    math.ceil: ("ceil", 1, 1),
    math.floor: ("floor", 1, 1),
    math.trunc: ("trunc", 1, 1),
    math.sqrt: ("sqrt", 1, 1),
    math.exp: ("exp", 1, 1),
    math.cos: ("cos", 1, 1),
    math.log: ("log", 1, 2),
    math.log2: ("log2", 1, 1),
    math.log10: ("log10", 1, 1),
}
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
#: Digits that round() may keep: more than a float holds would ask for digits that are not there.
_MOST_DIGITS = 15


@cache
def load(function: Callable[..., Any]) -> Formula:
    """The tree of a formula. Raises EmitError where it uses anything that cannot be translated faithfully."""
    return _load(function, ())


def _load(function: Callable[..., Any], callers: tuple[Callable[..., Any], ...]) -> Formula:
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", repr(function))
    try:
        lines, first = inspect.getsourcelines(function)
        node = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        raise EmitError("<unknown>", 0, f"{name} has no Python source to read") from None
    file = inspect.getsourcefile(function) or "<unknown>"
    if not isinstance(node, ast.FunctionDef) or not isinstance(function, types.FunctionType):
        raise EmitError(file, first, f"{name} is no plain function")
    if function in callers:
        raise EmitError(file, first, f"{name} calls itself")
    ast.increment_lineno(node, first - 1)
    return _Reader(function, file, node, (*callers, function)).formula()


class _Reader:
    """Reads one function. `kinds` are the names that have a value where reading stands."""

    def __init__(
        self,
        function: types.FunctionType,
        file: str,
        node: ast.FunctionDef,
        callers: tuple[Callable[..., Any], ...],
    ) -> None:
        self.function = function
        self.file = file
        self.node = node
        self.callers = callers
        self.kinds: dict[str, Kind] = {}
        self.returns: Kind = "number"
        self.names = inspect.getclosurevars(function)

    def refusal(self, node: ast.AST, construct: str) -> EmitError:
        return EmitError(self.file, getattr(node, "lineno", self.node.lineno), construct)

    # ---- The function -----------------------------------------------------------------------------------

    def formula(self) -> Formula:
        given = self.node.args
        if given.vararg or given.kwarg:
            raise self.refusal(self.node, "a parameter that takes any number of arguments")
        try:
            hints = typing.get_type_hints(self.function)
        except NameError as error:
            raise self.refusal(self.node, f"a type hint that cannot be read: {error}") from None
        parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        for parameter in parameters:
            kind = self.kind(parameter, hints.get(parameter.arg), f"parameter {parameter.arg}")
            if kind not in ("number", "truth"):
                raise self.refusal(parameter, f"parameter {parameter.arg} is neither a number nor a bool")
            self.kinds[parameter.arg] = kind
        self.returns = self.kind(self.node, hints.get("return"), "the result")
        names = tuple(tree.Name(p.arg, self.kinds[p.arg]) for p in parameters)
        defaults = self.defaults()
        body = self.node.body
        documented = ast.get_docstring(self.node)
        statements, ends = self.block(body[1:] if documented is not None else body)
        if not ends:
            raise self.refusal(body[-1], "a path through the formula that ends without a return")
        return Formula(
            function=self.function,
            name=self.function.__name__,
            file=self.file,
            line=self.node.lineno,
            summary=(documented or "").partition("\n")[0],
            parameters=names,
            defaults=defaults,
            returns=self.returns,
            body=statements,
        )

    def defaults(self) -> dict[str, tree.Number | tree.Truth]:
        found: dict[str, tree.Number | tree.Truth] = {}
        for parameter in inspect.signature(self.function).parameters.values():
            value = parameter.default
            if value is inspect.Parameter.empty:
                continue
            if not isinstance(value, int | float):
                raise self.refusal(self.node, f"the default of {parameter.name} is no number")
            found[parameter.name] = tree.Truth(value) if isinstance(value, bool) else tree.Number(value)
        return found

    def kind(self, node: ast.AST, hint: Any, what: str) -> Kind:
        """The kind that a type hint stands for."""
        if hint is None:
            raise self.refusal(node, f"{what} has no type hint")
        if hint is bool:
            return "truth"
        if hint in (int, float) or (_is_union(hint) and set(typing.get_args(hint)) <= {int, float}):
            return "number"
        if typing.get_origin(hint) is tuple and Ellipsis not in typing.get_args(hint):
            return tuple(self.kind(node, part, what) for part in typing.get_args(hint))
        if isinstance(hint, type) and fields_of(hint):
            return hint
        raise self.refusal(node, f"{what} is of a type that formulas do not have: {hint}")

    # ---- Statements -------------------------------------------------------------------------------------

    def block(self, nodes: list[ast.stmt]) -> tuple[tuple[Statement, ...], bool]:
        """The statements, and whether every path through them returns."""
        statements: list[Statement] = []
        for position, node in enumerate(nodes):
            statement, ends = self.statement(node)
            statements.append(statement)
            if ends:
                if position + 1 < len(nodes):
                    raise self.refusal(nodes[position + 1], "a statement that is never reached")
                return tuple(statements), True
        return tuple(statements), False

    def statement(self, node: ast.stmt) -> tuple[Statement, bool]:
        match node:
            case ast.Return(value=ast.expr() as value):
                result = self.value(value)
                self.expect(value, result, self.returns)
                return tree.Return(result), True
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self.assign(node, name, self.value(value)), False
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                return self.assign(node, name, self.value(value)), False
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                changed = ast.copy_location(ast.BinOp(ast.Name(name, ast.Load()), operator, value), node)
                return self.assign(node, name, self.value(ast.fix_missing_locations(changed))), False
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                return self.unpack(node, targets, self.value(value)), False
            case ast.If(test=test, body=then, orelse=otherwise):
                return self.branch(test, then, otherwise)
        raise self.refusal(node, f"a statement of the kind {type(node).__name__}")

    def assign(self, node: ast.AST, name: str, value: Expression) -> tree.Assign:
        self.bind(node, name, kind_of(value))
        return tree.Assign(name, value)

    def unpack(self, node: ast.AST, targets: list[ast.expr], value: Expression) -> tree.Unpack:
        of = kind_of(value)
        kinds = _parts(of)
        if isinstance(of, type) and not issubclass(of, tuple):
            raise self.refusal(node, f"an assignment to several names from a {of.__name__}")
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(names) != len(targets) or len(set(names)) != len(names) or len(names) != len(kinds):
            raise self.refusal(node, "an assignment to several names that does not give each one value")
        for name, kind in zip(names, kinds, strict=True):
            self.bind(node, name, kind)
        return tree.Unpack(tuple(names), fields_of(of) if isinstance(of, type) else (), value)

    def bind(self, node: ast.AST, name: str, kind: Kind) -> None:
        if self.kinds.setdefault(name, kind) != kind:
            raise self.refusal(node, f"{name} is given a value of another kind than before")

    def branch(
        self, test: ast.expr, then: list[ast.stmt], otherwise: list[ast.stmt]
    ) -> tuple[Statement, bool]:
        condition = self.truth(test)
        before = dict(self.kinds)
        first, first_ends = self.block(then)
        after_first, self.kinds = self.kinds, before
        second, second_ends = self.block(otherwise)
        if first_ends != second_ends:
            self.kinds = self.kinds if first_ends else after_first
        else:  # only what both paths have given a value has one from here on
            both = after_first.keys() & self.kinds.keys()
            for name in both:
                if after_first[name] != self.kinds[name]:
                    raise self.refusal(test, f"{name} has another kind of value on each path")
            self.kinds = {name: kind for name, kind in after_first.items() if name in both}
        return tree.Branch(condition, first, second), first_ends and second_ends

    # ---- Expressions ------------------------------------------------------------------------------------

    def number(self, node: ast.expr) -> Expression:
        return self.expect(node, self.value(node), "number")

    def truth(self, node: ast.expr) -> Expression:
        return self.expect(node, self.value(node), "truth")

    def expect(self, node: ast.AST, value: Expression, kind: Kind) -> Expression:
        """`value`, refused unless it is of that kind: a number is no truth value, nor the other way round,
        since Python and JavaScript differ in what counts as true."""
        if (found := kind_of(value)) != kind:
            raise self.refusal(node, f"{_told(found)} where {_told(kind)} is needed")
        return value

    def value(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=bool() as truth):
                return tree.Truth(truth)
            case ast.Constant(value=int() | float() as number):
                return tree.Number(number)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return tree.Negative(self.number(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return tree.Logic("not", (self.truth(operand),))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
                return tree.Binary(_ARITHMETIC[type(operator)], self.number(left), self.number(right))
            case ast.BoolOp(op=operator, values=values):
                joined = "and" if isinstance(operator, ast.And) else "or"
                return tree.Logic(joined, tuple(map(self.truth, values)))
            case ast.Compare(left=left, ops=operators, comparators=others):
                if unknown := [op for op in operators if type(op) not in _COMPARISON]:
                    raise self.refusal(node, f"a comparison of the kind {type(unknown[0]).__name__}")
                operands = tuple(map(self.number, [left, *others]))
                return tree.Comparison(tuple(_COMPARISON[type(op)] for op in operators), operands)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                condition, first = self.truth(test), self.value(then)
                second = self.expect(otherwise, self.value(otherwise), kind_of(first))
                return tree.Choice(condition, first, second)
            case ast.Tuple(elts=items):
                return tree.Group(tuple(map(self.value, items)), record=None)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript(value=of, slice=ast.Constant(value=int() as index)):
                return self.subscript(node, self.value(of), index)
            case ast.Call():
                return self.call(node)
        raise self.refusal(node, f"an expression of the kind {type(node).__name__}")

    def name(self, node: ast.AST, name: str) -> Expression:
        if name in self.kinds:
            return tree.Name(name, self.kinds[name])
        if name in self.function.__code__.co_varnames:
            raise self.refusal(node, f"{name} has no value on some path to here")
        return self.constant(node, self.global_value(node, name), name)

    def constant(self, node: ast.AST, value: object, name: str) -> Expression:
        if isinstance(value, bool):
            return tree.Truth(value)
        if isinstance(value, int | float) and value == value:
            return tree.Number(value, name)
        raise self.refusal(node, f"{name} is no number")

    def global_value(self, node: ast.AST, name: str) -> object:
        for names in (self.names.nonlocals, self.function.__globals__, vars(builtins)):
            if name in names:
                return names[name]
        raise self.refusal(node, f"{name} is not defined")

    def attribute(self, node: ast.Attribute) -> Expression:
        module = self.module(node.value)
        if module is not None:
            return self.constant(node, self.member(node, module, node.attr), node.attr)
        of = self.value(node.value)
        kind = kind_of(of)
        fields = fields_of(kind) if isinstance(kind, type) else ()
        if node.attr not in fields:
            raise self.refusal(node, f"the attribute {node.attr}")
        index = fields.index(node.attr)
        return tree.Item(of, index, node.attr, _parts(kind)[index])

    def subscript(self, node: ast.AST, of: Expression, index: int) -> Expression:
        kind = kind_of(of)
        if not isinstance(kind, tuple) or not 0 <= index < len(kind):
            raise self.refusal(node, f"the index {index}")
        return tree.Item(of, index, None, kind[index])

    def module(self, node: ast.expr) -> types.ModuleType | None:
        """The module that a dotted name such as `math` or `batchfit.formulas.batching` stands for."""
        match node:
            case ast.Name(id=name) if name not in self.kinds:
                value = self.global_value(node, name)
            case ast.Attribute(value=of, attr=name) if (module := self.module(of)) is not None:
                value = self.member(node, module, name)
            case _:
                return None
        return value if isinstance(value, types.ModuleType) else None

    def member(self, node: ast.AST, module: types.ModuleType, name: str) -> object:
        if not hasattr(module, name):
            raise self.refusal(node, f"{module.__name__} has no {name}")
        return getattr(module, name)

    # ---- Calls ------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Expression:
        called = self.called(node.func)
        if called is sum:
            return self.sum(node)
        if isinstance(called, type) and fields_of(called):
            return self.record(node, called)
        if isinstance(called, types.FunctionType):
            formula = _load(called, self.callers)
            names = tuple(p.name for p in formula.parameters)
            arguments = self.arguments(node, called, names, formula.defaults)
            for parameter, argument in zip(formula.parameters, arguments, strict=True):
                self.expect(node, argument, parameter.kind)
            return tree.Apply(formula, arguments)
        if not callable(called) or called not in FUNCTIONS or node.keywords:
            raise self.refusal(node, f"a call of {ast.unparse(node.func)}")
        name, fewest, most = FUNCTIONS[called]
        if not fewest <= len(node.args) <= most:
            raise self.refusal(node, f"{name} with {len(node.args)} arguments")
        if name == "round" and len(node.args) == 2 and not self.is_digits(node.args[1]):
            raise self.refusal(node, f"round to other than a fixed number of digits from 0 to {_MOST_DIGITS}")
        return tree.Call(name, tuple(map(self.number, node.args)))

    def called(self, node: ast.expr) -> object:
        match node:
            case ast.Name(id=name) if name not in self.kinds:
                return self.global_value(node, name)
            case ast.Attribute(value=of, attr=name) if (module := self.module(of)) is not None:
                return self.member(node, module, name)
        raise self.refusal(node, f"a call of {ast.unparse(node)}")

    def is_digits(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= _MOST_DIGITS

    def arguments(
        self,
        node: ast.Call,
        called: Callable[..., Any],
        names: tuple[str, ...],
        defaults: dict[str, tree.Number | tree.Truth],
    ) -> tuple[Expression, ...]:
        """The argument for each of `names`, as Python would match them."""
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.refusal(node, "a call with **")
        given = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        try:
            bound = inspect.signature(called).bind(*map(self.value, node.args), **given).arguments
            return tuple(bound[name] if name in bound else defaults[name] for name in names)
        except (TypeError, KeyError) as error:
            raise self.refusal(node, f"a call of {ast.unparse(node.func)}: {error}") from None

    def record(self, node: ast.Call, record: type) -> tree.Group:
        fields = fields_of(record)
        items = self.arguments(node, record, fields, {})
        for item, kind in zip(items, _parts(record), strict=True):
            self.expect(node, item, kind)
        return tree.Group(items, record, fields)

    def sum(self, node: ast.Call) -> tree.Sum:
        match node:
            case ast.Call(
                args=[
                    ast.GeneratorExp(
                        elt=term,
                        generators=[
                            ast.comprehension(
                                target=ast.Name(id=variable),
                                iter=ast.Call(func=ast.Name(id="range"), args=limits, keywords=[]),
                                ifs=conditions,
                                is_async=0,
                            )
                        ],
                    )
                ],
                keywords=[],
            ) if 1 <= len(limits) <= 3 and variable not in self.kinds:
                pass
            case _:
                raise self.refusal(node, "a sum other than of a term for each number in one range")
        start, stop, step = self.limits(limits)
        self.kinds[variable] = "number"
        kept = tuple(map(self.truth, conditions))
        condition = None if not kept else kept[0] if len(kept) == 1 else tree.Logic("and", kept)
        summed = tree.Sum(variable, start, stop, step, self.number(term), condition)
        del self.kinds[variable]
        return summed

    def limits(self, limits: list[ast.expr]) -> tuple[Expression, Expression, Expression]:
        given = [self.number(limit) for limit in limits]
        if len(given) == 1:
            return tree.Number(0), given[0], tree.Number(1)
        return given[0], given[1], given[2] if len(given) == 3 else tree.Number(1)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)


def fields_of(record: type) -> tuple[str, ...]:
    """The fields of a NamedTuple or a dataclass, none for any other type."""
    if issubclass(record, tuple):
        return tuple(getattr(record, "_fields", ()))
    return (
        tuple(field.name for field in dataclasses.fields(record)) if dataclasses.is_dataclass(record) else ()
    )


def _parts(kind: Kind) -> tuple[Kind, ...]:
    """The kinds of the values that a tuple or record holds."""
    if isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return tuple("truth" if hints[field] is bool else "number" for field in fields_of(kind))
    return kind if isinstance(kind, tuple) else ()


def _told(kind: Kind) -> str:
    if isinstance(kind, type):
        return kind.__name__
    return {"number": "a number", "truth": "a truth value"}.get(str(kind), "several values")
