"""Results kept by the object they were made from: comparing all that a profile holds would cost more than is saved."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])


class _Same:
    """An object as a key: the same one, and no other that is equal."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def kept(most: int) -> Callable[[Function], Function]:
    """Keeps up to `most` results of a function whose first argument is told by being the same object; the others are
    given by position, and compared."""

    def decorated(function: Function) -> Function:
        @lru_cache(maxsize=most, typed=True)
        def made(first: _Same, *rest: Hashable) -> object:
            return function(first.value, *rest)

        @wraps(function)
        def called(first: object, *rest: Hashable) -> object:
            return made(_Same(first), *rest)

        return cast(Function, called)

    return decorated
