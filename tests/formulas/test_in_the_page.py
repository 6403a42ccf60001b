"""The formulas of the shelf in JavaScript: the same numbers as in Python, to a float's last digits."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from batchfit.formulas import (
    data_parallel,
    learning_rate,
    noise_scale,
    scaling_laws,
    token_counts,
    training_budget,
)
from tests.emit.compare import differences

#: The numbers that each parameter is drawn from, where it is not any from 1 to 100: whole where the bounds are.
RANGES: dict[str, tuple[float, float]] = {
    "overlap": (0.0, 1.0),
    "bandwidth_share": (0.1, 1.0),
    "target_efficiency": (0.5, 0.99),
    "final_share": (0.0, 1.0),
    "decay_share": (0.0, 1.0),
    "decay_progress": (0.0, 1.0),
    "warmed_up": (0.0, 1.0),
    "decayed": (0.0, 1.0),
    "warmup_share": (0.0, 1.0),
    "utilisation": (0.1, 1.0),
    "exponent": (0.4, 0.6),
    "coefficient": (0.05, 0.2),
    "budget": (1e18, 1e24),
    "flops": (1e18, 1e26),
    "parameters": (1e6, 1e12),
    "optimal_parameters": (10**6, 10**12),
    "training_tokens": (10**6, 10**13),
    "tokens": (10**6, 10**13),
    "dataset_tokens": (10**6, 10**13),
    "optimal_tokens": (10**6, 10**13),
    "loss": (1.9, 4.0),
    "by_runs": (0, 1),
    "by_hours": (0, 1),
    "by_money": (0, 1),
    "measure": (0, 2),
    "measured_bandwidth": (0, 1),
    "bytes_per_token": (0, 1),
    "tokens_per_word": (0, 1),
    "token_budget": (0, 10),
    "warmup_steps": (-1, 100),
    "gradients": (1, 10**12),
    "exchanged_bytes": (0, 10**12),
    "schedule": (0, 4),
    "step": (0, 100),
    "large_batch": (101, 10_000),
    "second_batch": (101, 10_000),
    "micro_batch_seconds": (0.01, 10.0),
    "exchange_seconds": (0.0, 10.0),
}
MODULES = (data_parallel, learning_rate, noise_scale, scaling_laws, token_counts, training_budget)


def formulas(module: ModuleType) -> list[Callable[..., Any]]:
    return [
        function
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
    ]


def drawn(function: Callable[..., Any], chance: random.Random) -> list[float]:
    bounds = [RANGES.get(name, (1, 100)) for name in inspect.signature(function).parameters]
    return [
        chance.randint(low, high)
        if isinstance(low, int) and isinstance(high, int)
        else chance.uniform(low, high)
        for low, high in bounds
    ]


@pytest.mark.parametrize("function", [f for m in MODULES for f in formulas(m)], ids=lambda f: f.__name__)
def test_python_and_javascript_agree(function: Callable[..., Any]) -> None:
    chance = random.Random(function.__name__)
    calls = [drawn(function, chance) for _ in range(200)]
    assert differences(function, calls, tolerance=1e-12) == []
