"""From the timelines of a step to its memory profile."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch import nn

from batchfit.profile import Affinity, Compute, MemoryProfile, Provenance, SeqRange, States
from batchfit.trace.model_units import describe
from batchfit.trace.phases import alike, envelopes, peaks
from batchfit.trace.timeline import MARK, Timeline

#: Memory is called affine in the micro-batch where the check is off by less than this (relative).
AFFINE_WITHIN = 0.005

_PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "timm", "batchfit")


def profile_of(
    model: nn.Module,
    name: str,
    timelines: Mapping[int, Timeline],
    settings: Mapping[str, Any],
    *,
    seq_len: int | None,
    assumptions: tuple[str, ...],
    seconds: float,
) -> MemoryProfile:
    """The profile of `model`'s step from its timelines at three micro-batches: two make the lines, the third checks."""
    small, large, checked = timelines
    phases = envelopes(timelines[small], timelines[large], small, large)
    deviation = max(
        (
            abs(max(line.at(checked) for line in phases[phase]) - peak) / peak
            for phase, peak in peaks(timelines[checked]).items()
            if phases[phase]
        ),
        default=0.0,
    )
    affine = alike(timelines[small], timelines[large]) and deviation < AFFINE_WITHIN
    return MemoryProfile(
        model=describe(model, name),
        settings=dict(settings) | ({} if seq_len is None else {"seq_len": seq_len}),
        states=_states(timelines[small]),
        phases=phases,
        reserved=(),
        compute=_compute(model, timelines[small], timelines[large], small, large - small),
        ledger=(),
        seq_len=None if seq_len is None else SeqRange(seq_len, seq_len, (seq_len,), None, None),
        affinity=Affinity((small, large), checked, round(deviation, 6), affine),
        assumptions=assumptions if affine else (*assumptions, _not_affine(small, large, checked, deviation)),
        provenance=Provenance(
            "traced", versions(), round(seconds, 3), datetime.now(UTC).isoformat(timespec="seconds")
        ),
    )


def _not_affine(small: int, large: int, checked: int, deviation: float) -> str:
    return (
        f"memory is no straight line in the micro-batch: what micro-batches {small} and {large} foretell is off by "
        f"{deviation:.1%} at {checked}"
    )


def _states(timeline: Timeline) -> States:
    """What is alive when the last optimizer step begins: weights, gradients, optimizer state and buffers."""
    last = max(
        index
        for index, event in enumerate(timeline.events)
        if event.kind == MARK and timeline.marks[event.stack].phase == "optimizer"
    )
    sizes = dict.fromkeys(("weights", "gradients", "optimizer", "buffers"), 0)
    for storage, nbytes in timeline.alive_at(last).items():
        category = timeline.categories[storage]
        if category in sizes:
            sizes[category] += nbytes
    return States(sizes["weights"], sizes["gradients"], sizes["optimizer"], sizes["buffers"])


def _compute(model: nn.Module, small: Timeline, large: Timeline, small_batch: int, apart: int) -> Compute:
    """What is computed: each count is a line through those at the two micro-batches."""

    def line(name: str) -> tuple[int, int]:
        at_small, at_large = getattr(small.work, name), getattr(large.work, name)
        slope = (at_large - at_small) // apart
        return at_small - slope * small_batch, slope

    forward, backward = line("forward_flops")[1], line("backward_flops")[1]
    products, others = line("products_bytes"), line("other_bytes")
    return Compute(
        forward_flops=(forward,),
        step_flops=(forward + backward,),
        attention_flops=(line("attention_flops")[1],),
        matmul_bytes=((products[0],), (products[1],)),
        other_bytes=((others[0],), (others[1],)),
        optimizer_bytes=small.work.optimizer_bytes,
        kernels_per_micro_batch=small.work.kernels,
        kernels_per_optimizer_step=small.work.optimizer_kernels,
        gradient_elements=sum(p.numel() for p in model.parameters() if p.requires_grad),
    )


def versions() -> dict[str, str]:
    """Of Python and of the packages that a trace depends on, as installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
