"""Optimizers by name: each as a `torch.optim.Optimizer` whose step allocates on fake CPU tensors what it would on CUDA."""

from __future__ import annotations

from batchfit.trace.optimizers.cuda_step import as_on_cuda
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
    "OptimizerFactory",
    "OptimizerRecipe",
    "as_on_cuda",
    "create_optimizer",
    "documented_state_bytes",
    "find_optimizer",
]
