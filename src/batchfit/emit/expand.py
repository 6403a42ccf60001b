"""A formula written out as one expression: locals and the formulas it calls put in where they are used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from batchfit.emit import tree
from batchfit.emit.errors import EmitError
from batchfit.emit.evaluate import Values, evaluate
from batchfit.emit.tree import Expression, Formula, Statement

# What the variable of a sum is called where its own name already means something else.
_VARIABLES = "ijklmnpqrstuvwxyz"


@dataclass(frozen=True)
class Expanded:
    """`result`, in terms of parameters and of those locals that are explained in `where`, in their order."""

    where: tuple[tuple[str, Expression], ...]
    result: Expression


def expand(formula: Formula, shown: Collection[str], values: Values | None = None) -> Expanded:
    """`formula` as one expression. Locals that are to be `shown` under their own names become `where` lines.

    With `values` for the parameters, every choice is replaced by the branch that is taken. Raises EmitError
    where a shown local is given more than one value.
    """
    locals_ = tree.assigned(formula.body) - {p.name for p in formula.parameters}
    return _Expander(formula, frozenset(locals_.intersection(shown)), values).expanded()


class _Expander:
    def __init__(self, formula: Formula, shown: frozenset[str], values: Values | None) -> None:
        self.formula = formula
        self.shown = shown
        self.values = None if values is None else dict(values)
        self.where: dict[str, Expression] = {}
        self.taken = {p.name for p in formula.parameters} | shown

    def expanded(self) -> Expanded:
        known: dict[str, Expression] = {p.name: p for p in self.formula.parameters}
        result = self.block(self.formula.body, known, self.shown)
        return Expanded(tuple(self.where.items()), result)

    def block(
        self, body: tuple[Statement, ...], known: dict[str, Expression], shown: frozenset[str]
    ) -> Expression:
        """What statements return, given what is `known` of each name."""
        for position, statement in enumerate(body):
            match statement:
                case tree.Return(value=value):
                    return self.put_in(value, known)
                case tree.Branch() if _returns(statement):
                    return self.ways(statement, body[position + 1 :], known)
                case _:
                    self.run(statement, known, shown)
        raise AssertionError("a formula that ends without a return")

    def ways(
        self, branch: tree.Branch, rest: tuple[Statement, ...], known: dict[str, Expression]
    ) -> Expression:
        """What a branch returns of which at least one path does; the other goes on with the `rest`."""
        condition = self.put_in(branch.condition, known)
        then, otherwise = (path + rest for path in (branch.then, branch.otherwise))
        decided = self.decide(condition)
        if decided is not None:
            return self.block(then if decided else otherwise, known, frozenset())
        paths = [self.block(path, dict(known), frozenset()) for path in (then, otherwise)]
        return _choice(condition, *paths)

    def run(self, statement: Statement, known: dict[str, Expression], shown: frozenset[str]) -> None:
        """A statement that does not return."""
        match statement:
            case tree.Assign(name=name, value=value):
                self.learn(name, self.put_in(value, known), known, shown)
            case tree.Unpack(names=names, value=value):
                of = self.put_in(value, known)
                for index, name in enumerate(names):
                    self.learn(name, item(of, index), known, shown)
            case tree.Branch():
                self.run_branch(statement, known, shown)

    def run_branch(self, branch: tree.Branch, known: dict[str, Expression], shown: frozenset[str]) -> None:
        condition = self.put_in(branch.condition, known)
        decided = self.decide(condition)
        if decided is not None:
            for statement in branch.then if decided else branch.otherwise:
                self.run(statement, known, shown)
            return
        paths = [dict(known), dict(known)]
        for path, statements in zip(paths, (branch.then, branch.otherwise), strict=True):
            for statement in statements:
                self.run(statement, path, frozenset())
        for name in [name for name in paths[0] if name in paths[1]]:
            ends = [path[name] for path in paths]
            if any(end is not known.get(name) for end in ends):
                self.learn(name, _choice(condition, *ends), known, shown)

    def learn(
        self, name: str, value: Expression, known: dict[str, Expression], shown: frozenset[str]
    ) -> None:
        if name not in shown:
            known[name] = value
            return
        if name in self.where:
            formula = self.formula
            raise EmitError(formula.file, formula.line, f"{name} has a symbol and more than one value")
        self.where[name] = value
        if self.values is not None:
            self.values[name] = evaluate(value, self.values)
        known[name] = tree.Name(name, tree.kind_of(value))

    def put_in(self, value: Expression, known: Mapping[str, Expression]) -> Expression:
        """`value` with what is known put in for names, and other formulas written out."""
        match value:
            case tree.Name(name=name):
                return known.get(name, value)
            case tree.Choice(condition=condition, then=then, otherwise=otherwise):
                condition = self.put_in(condition, known)
                decided = self.decide(condition)
                if decided is not None:
                    return self.put_in(then if decided else otherwise, known)
                return _choice(condition, self.put_in(then, known), self.put_in(otherwise, known))
            case tree.Apply(formula=formula, arguments=arguments):
                given = [self.put_in(argument, known) for argument in arguments]
                named = {p.name: argument for p, argument in zip(formula.parameters, given, strict=True)}
                return self.block(formula.body, named, frozenset())
            case tree.Item(of=of, index=index):
                return item(self.put_in(of, known), index)
            case tree.Sum():
                value, renamed = self.with_own_variable(value, known)
                return tree.rebuild(value, lambda part: self.put_in(part, {**known, **renamed}))
        return tree.rebuild(value, lambda part: self.put_in(part, known))

    def with_own_variable(
        self, value: tree.Sum, known: Mapping[str, Expression]
    ) -> tuple[tree.Sum, dict[str, Expression]]:
        """The sum with a variable that nothing put into it is called, and what the old one is to become."""
        taken = self.taken.union(*(tree.names(put) for put in known.values()))
        if value.variable not in taken:
            return value, {}
        free = next(letter for letter in _VARIABLES if letter not in taken)
        return replace(value, variable=free), {value.variable: tree.Name(free, "number")}

    def decide(self, condition: Expression) -> bool | None:
        """Whether a condition holds for the values, None where that is not known."""
        if self.values is None or not tree.names(condition) <= self.values.keys():
            return None
        return bool(evaluate(condition, self.values))


def item(of: Expression, index: int) -> Expression:
    """One of the several values that an expression gives which has been written out."""
    match of:
        case tree.Group(items=items):
            return items[index]
        case tree.Choice(condition=condition, then=then, otherwise=otherwise):
            return _choice(condition, item(then, index), item(otherwise, index))
    raise AssertionError(of)


def _choice(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    return then if then == otherwise else tree.Choice(condition, then, otherwise)


def _returns(branch: tree.Branch) -> bool:
    """Whether any path through a branch ends in a return."""
    return any(
        isinstance(statement, tree.Return) or (isinstance(statement, tree.Branch) and _returns(statement))
        for statement in branch.then + branch.otherwise
    )
