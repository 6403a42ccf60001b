"""Tracing: a person's real training step on tensors without data, and the memory profile that comes of it.

The only package that imports torch. It is callable, since `batchfit.trace(model, make_batch, ...)` and the package
`batchfit.trace` go by one name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from batchfit.extras import need

need("torch", extra="trace", wanted_for="tracing a model")

from batchfit.trace.adapters import Lora  # noqa: E402
from batchfit.trace.job import trace_timeline  # noqa: E402
from batchfit.trace.protocol import Training, WholeStep  # noqa: E402
from batchfit.trace.run import trace  # noqa: E402
from batchfit.trace.settings import Settings  # noqa: E402

__all__ = ["Lora", "Settings", "Training", "WholeStep", "trace", "trace_timeline"]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return trace(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
