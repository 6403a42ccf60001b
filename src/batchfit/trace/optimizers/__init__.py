"""Optimizers by name: each a `torch.optim.Optimizer` whose step allocates what it would on a GPU."""

from __future__ import annotations

from batchfit.trace.optimizers.blockwise import BlockwiseOptimizer
from batchfit.trace.optimizers.registry import (
    OPTIMIZERS,
    OptimizerFactory,
    OptimizerRecipe,
    create_optimizer,
    documented_state_bytes,
    find_optimizer,
)

__all__ = [
    "OPTIMIZERS",
    "BlockwiseOptimizer",
    "OptimizerFactory",
    "OptimizerRecipe",
    "create_optimizer",
    "documented_state_bytes",
    "find_optimizer",
]
