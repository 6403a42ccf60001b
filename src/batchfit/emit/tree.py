"""A formula as a tree of typed values: the one form that every printer starts from.

Whatever is in a tree can be printed; whatever cannot never becomes one (`emit.source` refuses it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

#: What a value is: a number, a truth value, a tuple of such, or a NamedTuple or dataclass of such.
Kind = Literal["number", "truth"] | tuple[Any, ...] | type


@dataclass(frozen=True)
class Number:
    """A number written in the formula, or with its name, a constant of the formula's module."""

    value: int | float
    name: str | None = None


@dataclass(frozen=True)
class Truth:
    value: bool


@dataclass(frozen=True)
class Name:
    """A parameter, a local or the variable of a sum."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Negative:
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """Arithmetic on two numbers: + - * / // % **."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Comparison:
    """A chain such as 0 < x <= y: one operator fewer than operands. == != < <= > >=."""

    operators: tuple[str, ...]
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Logic:
    """Truth values joined by "and" or "or", or one under "not"."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice:
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Call:
    """A function of Python's own, by its key in `emit.source.FUNCTIONS`: "min", "ceil", "log2"."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Apply:
    """Another formula, with an argument for each of its parameters in order."""

    formula: Formula
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Sum:
    """sum(term for variable in range(start, stop, step) if condition)."""

    variable: str
    start: Expression
    stop: Expression
    step: Expression
    term: Expression
    condition: Expression | None


@dataclass(frozen=True)
class Group:
    """Several values as one: a tuple, or where `record` is a class, a record with those fields."""

    items: tuple[Expression, ...]
    record: type | None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """One of several values: `field` of a record, or without a field, the value at `index` of a tuple."""

    of: Expression
    index: int
    field: str | None
    kind: Kind


Expression = (
    Number
    | Truth
    | Name
    | Negative
    | Binary
    | Comparison
    | Logic
    | Choice
    | Call
    | Apply
    | Sum
    | Group
    | Item
)


@dataclass(frozen=True)
class Assign:
    name: str
    value: Expression


@dataclass(frozen=True)
class Unpack:
    """Gives each name one of several values: those of a tuple, or of a record with these `fields`."""

    names: tuple[str, ...]
    fields: tuple[str, ...]
    value: Expression


@dataclass(frozen=True)
class Branch:
    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Return:
    value: Expression


Statement = Assign | Unpack | Branch | Return


@dataclass(frozen=True)
class Formula:
    """A whole formula. Every path through `body` ends in a Return of `returns`."""

    function: Callable[..., Any]
    name: str
    file: str
    line: int
    summary: str
    parameters: tuple[Name, ...]
    defaults: dict[str, Number | Truth]
    returns: Kind
    body: tuple[Statement, ...]

    def __hash__(self) -> int:
        return hash(self.function)


def kind_of(value: Expression) -> Kind:
    """What kind of value an expression gives."""
    match value:
        case Number() | Negative() | Binary() | Call() | Sum():
            return "number"
        case Truth() | Comparison() | Logic():
            return "truth"
        case Name(kind=kind) | Item(kind=kind):
            return kind
        case Choice(then=then):
            return kind_of(then)
        case Apply(formula=formula):
            return formula.returns
        case Group(items=items, record=record):
            return record or tuple(kind_of(item) for item in items)


def children(value: Expression) -> tuple[Expression, ...]:
    """The expressions that an expression is directly made of, in the order of evaluation."""
    match value:
        case Number() | Truth() | Name():
            return ()
        case Negative(operand=one) | Item(of=one):
            return (one,)
        case Binary(left=left, right=right):
            return (left, right)
        case Comparison(operands=several) | Logic(operands=several):
            return several
        case Choice(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case Call(arguments=several) | Apply(arguments=several) | Group(items=several):
            return several
        case Sum(start=start, stop=stop, step=step, term=term, condition=condition):
            return (start, stop, step, term) if condition is None else (start, stop, step, term, condition)


def walk(value: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    yield value
    for part in children(value):
        yield from walk(part)


def names(value: Expression) -> set[str]:
    """The names that an expression needs a value for."""
    if isinstance(value, Name):
        return {value.name}
    found = {name for part in children(value) for name in names(part)}
    return found - {value.variable} if isinstance(value, Sum) else found


def rebuild(value: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """`value` with each of its direct parts changed."""
    match value:
        case Number() | Truth() | Name():
            return value
        case Negative(operand=operand):
            return Negative(change(operand))
        case Item(of=of):
            return replace(value, of=change(of))
        case Binary(left=left, right=right):
            return replace(value, left=change(left), right=change(right))
        case Comparison(operands=operands) | Logic(operands=operands):
            return replace(value, operands=tuple(map(change, operands)))
        case Choice(condition=condition, then=then, otherwise=otherwise):
            return Choice(change(condition), change(then), change(otherwise))
        case Call(arguments=arguments) | Apply(arguments=arguments):
            return replace(value, arguments=tuple(map(change, arguments)))
        case Group(items=items):
            return replace(value, items=tuple(map(change, items)))
        case Sum():
            return replace(
                value,
                start=change(value.start),
                stop=change(value.stop),
                step=change(value.step),
                term=change(value.term),
                condition=None if value.condition is None else change(value.condition),
            )


def assigned(body: tuple[Statement, ...]) -> set[str]:
    """The names that statements give a value, on any path."""
    found: set[str] = set()
    for statement in body:
        match statement:
            case Assign(name=name):
                found.add(name)
            case Unpack(names=several):
                found.update(several)
            case Branch(then=then, otherwise=otherwise):
                found |= assigned(then) | assigned(otherwise)
    return found


def expressions(body: tuple[Statement, ...]) -> list[Expression]:
    """The expressions that stand in statements, those of both branches included."""
    found: list[Expression] = []
    for statement in body:
        match statement:
            case Assign(value=value) | Unpack(value=value) | Return(value=value):
                found.append(value)
            case Branch(condition=condition, then=then, otherwise=otherwise):
                found += [condition, *expressions(then), *expressions(otherwise)]
    return found
