"""What a trace says of a configuration, and how far off it is from what a GPU took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchfit.units import format_bytes
from bench.gpu.configurations import MODELS, Configuration


def predicted(configuration: Configuration) -> dict[str, int]:
    """Allocated and reserved bytes at the peak, traced in this environment."""
    import torch

    from batchfit.trace import trace

    with torch.device("meta"):
        training = MODELS[configuration.model]()
    settings = configuration.settings()
    profile = trace(training.model, training.make_batch, **settings)
    peak = profile.peak(configuration.micro_batch, configuration.accumulation_steps)
    return {"allocated_bytes": peak.allocated_bytes, "reserved_bytes": peak.reserved_bytes or 0}


def compared(said: Mapping[str, int], took: Mapping[str, int | None]) -> dict[str, float]:
    """Relative errors: of what is allocated, of what is reserved, and of the process, which holds at least what is
    reserved; a missing figure has none."""
    errors = {
        name.removesuffix("_bytes"): said[name] / took[name] - 1  # type: ignore[operator]
        for name in ("allocated_bytes", "reserved_bytes")
        if took.get(name)
    }
    process = took.get("process_bytes")
    if process and took.get("reserved_bytes"):
        errors["beside_reserved"] = process / took["reserved_bytes"] - 1  # type: ignore[operator]
    return errors


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The runs, a line each: what was said, what was measured, and the difference."""
    lines = [f"{'configuration':36} {'allocated':>24} {'off':>8} {'reserved':>24} {'off':>8}"]
    for run in runs:
        if "measured" not in run:
            lines.append(f"{run['name']:36} {run['failed']}")
            continue
        cells = []
        for name in ("allocated", "reserved"):
            both = [format_bytes(run[side][f"{name}_bytes"]) for side in ("predicted", "measured")]
            cells.append(f"{both[0] + ' of ' + both[1]:>24} {100 * run['errors'][name]:+7.2f}%")
        lines.append(f"{run['name']:36} {' '.join(cells)}")
    return "\n".join(lines)
