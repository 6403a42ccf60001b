"""batchfit: which batch fits, and what it costs. The public names, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from batchfit.batch import Batch as Batch
    from batchfit.errors import BadInput as BadInput
    from batchfit.planning import elastic as elastic
    from batchfit.planning import plan as plan
    from batchfit.profile import MemoryProfile as MemoryProfile
    from batchfit.trace.protocol import Training as Training
    from batchfit.trace.protocol import WholeStep as WholeStep
    from batchfit.trace.run import trace as trace
    from batchfit.tracing import tracing as tracing

#: Where each public name lives. Looked up lazily so that `import batchfit` costs next to nothing.
_HOMES = {
    "BadInput": "batchfit.errors",
    "Batch": "batchfit.batch",
    "MemoryProfile": "batchfit.profile",
    "Training": "batchfit.trace",
    "WholeStep": "batchfit.trace",
    "elastic": "batchfit.planning",
    "plan": "batchfit.planning",
    "trace": "batchfit.trace",
    "tracing": "batchfit.tracing",
}

__all__ = [
    "BadInput",
    "Batch",
    "MemoryProfile",
    "Training",
    "WholeStep",
    "__version__",
    "elastic",
    "plan",
    "trace",
    "tracing",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'batchfit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
