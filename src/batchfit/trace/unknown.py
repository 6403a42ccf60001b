"""A number that was read from a tensor without data: it can be added up and printed, and decides nothing."""

from __future__ import annotations

from typing import Any, NoReturn

from batchfit.trace.errors import DataNeeded


class UnknownNumber(float):
    """Not a number, as a training loop's `loss.item()` gives it. Whatever is computed from it is unknown too."""

    def _arithmetic(self, *_: object) -> UnknownNumber:
        return UnknownNumber("nan")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __neg__ = __abs__ = __pos__ = __pow__ = __rpow__ = _arithmetic

    def _decision(self, *_: object) -> NoReturn:
        raise DataNeeded("item")

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __index__ = __round__ = _decision
    __eq__ = __ne__ = _decision
    __hash__ = float.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return UnknownNumber, ("nan",)
