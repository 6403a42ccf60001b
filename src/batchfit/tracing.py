"""Whether the code that asks is being traced: `if not batchfit.tracing(): print(loss.item())`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_tracing: ContextVar[bool] = ContextVar("batchfit_tracing", default=False)


def tracing() -> bool:
    """Whether this runs under a trace, where tensors have shapes and no data."""
    return _tracing.get()


@contextmanager
def being_traced() -> Iterator[None]:
    """What runs in here is being traced."""
    token = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(token)
