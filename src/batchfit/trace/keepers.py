"""Which variables of a person's training step hold more and more from one micro-batch to the next, and on what line."""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Keeper:
    """A variable that keeps results of every micro-batch alive, and the line that adds to it."""

    name: str
    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"`{self.name}` keeps it: {self.file}:{self.line} `{self.code}`"


class Variables:
    """Looks at the local variables of `function` each time it is asked to, while the function runs."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._code: CodeType | None = getattr(function, "__code__", None)
        self._seen: list[dict[str, int]] = []

    def look(self) -> None:
        """Notes how much each variable holds now."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        if frame is not None:
            self._seen.append({name: _held(value) for name, value in frame.f_locals.items()})

    def keepers(self) -> tuple[Keeper, ...]:
        """The variables that held more at every look than at the one before."""
        looks = self._seen
        if self._code is None or len(looks) < 2:
            return ()
        growing = [
            name
            for name in looks[-1]
            if all(a.get(name, 0) < b[name] for a, b in pairwise(looks) if name in b)
        ]
        found = (_line_of(name, self._code) for name in growing)
        return tuple(keeper for keeper in found if keeper is not None)


def _held(value: Any, depth: int = 2) -> int:
    """How many tensors a value holds, in lists and the like too; a tensor counts for all that its graph was made by."""
    if isinstance(value, torch.Tensor):
        return 1 + _nodes(value)
    if depth and isinstance(value, Mapping):
        return sum(_held(item, depth - 1) for item in value.values())
    if depth and isinstance(value, (list, tuple, set, deque)):
        return sum(_held(item, depth - 1) for item in value)
    return 0


def _nodes(tensor: torch.Tensor) -> int:
    """Operations in the graph behind a tensor."""
    waiting = [] if tensor.grad_fn is None else [tensor.grad_fn]
    seen = set(waiting)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen)


def _line_of(name: str, code: CodeType) -> Keeper | None:
    """The last line within a loop of the function that adds to the variable or sets it; None where there is none."""
    try:
        source = Path(code.co_filename).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    lines = source.splitlines()
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node.lineno == code.co_firstlineno
    )
    function = next(functions, None)
    if function is None:
        return None
    added = [line for line, changed in _changes(function) if changed == name]
    if not added:
        return None
    return Keeper(name, code.co_filename, added[-1], lines[added[-1] - 1].strip())


def _changes(function: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines in the function's loops, and the variable that each sets or calls a method of, in their order."""
    for loop in ast.walk(function):
        if not isinstance(loop, (ast.For, ast.While)):
            continue
        for node in ast.walk(loop):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = node.value.func
                if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                    yield node.lineno, called.value.id
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    base = target.value if isinstance(target, ast.Subscript) else target
                    if isinstance(base, ast.Name):
                        yield node.lineno, base.id
