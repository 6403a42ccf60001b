"""The frames of the person's own code behind an operation, taken cheaply: no source is read, nothing is formatted."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from types import CodeType, FrameType

import torch

from batchfit.trace.timeline import Frame

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = (os.path.dirname(torch.__file__) + os.sep, _PACKAGE, "<")

#: What runs a person's code: nothing further out says anything about it.
_OUTERMOST = {os.path.join(_PACKAGE, "trace", name) for name in ("step.py", "own_step.py", "trainers.py")}
_MACHINERY_FILES = {contextlib.__file__, functools.__file__}


class Stacks:
    """Distinct stacks by number. A stack is told by its frames' code and position, so most look-ups make no objects."""

    def __init__(self) -> None:
        self.stacks: list[tuple[Frame, ...]] = [()]
        self._by_place: dict[tuple[object, ...], int] = {(): 0}
        self._personal: dict[CodeType, bool | None] = {}

    def here(self, depth: int) -> int:
        """The number of the stack as the `depth`-th caller sees it: the person's frames only, innermost first, without
        those of who asked for the trace."""
        personal = self._personal
        place: list[object] = []
        frame: FrameType | None = sys._getframe(depth)
        while frame is not None:
            code = frame.f_code
            try:
                known = personal[code]
            except KeyError:
                known = personal[code] = None if code.co_filename in _OUTERMOST else is_personal(code)
            if known:
                place.append(code)
                place.append(frame.f_lasti)
            elif known is None:
                break
            frame = frame.f_back
        key = tuple(place)
        number = self._by_place.get(key)
        if number is None:
            number = self._by_place[key] = len(self.stacks)
            self.stacks.append(tuple(_frame(code, at) for code, at in zip(key[::2], key[1::2], strict=True)))
        return number


def is_personal(code: CodeType) -> bool:
    """Code of PyTorch, of batchfit and of the standard library's wrappers says nothing about the person's model."""
    name = code.co_filename
    return not name.startswith(_MACHINERY) and name not in _MACHINERY_FILES


@functools.lru_cache(maxsize=4096)
def _frame(code: object, instruction: object) -> Frame:
    assert isinstance(code, CodeType)
    assert isinstance(instruction, int)
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return Frame(code.co_filename, line, code.co_name)
