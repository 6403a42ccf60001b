"""From the study of a step to its memory profile."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from batchfit.profile import Affinity, Line, MemoryProfile, Polynomial, Provenance, SeqRange, States
from batchfit.trace.allocator_config import AllocatorConfig
from batchfit.trace.compute import compute_of
from batchfit.trace.ledger import ledger_of
from batchfit.trace.lengths import Lengths
from batchfit.trace.model_units import deepened, describe
from batchfit.trace.phases import last_update, peaks, through_peaks
from batchfit.trace.reserved import replayed
from batchfit.trace.study import CHECKED_AT, TRACED, Study
from batchfit.trace.surface import Surface
from batchfit.trace.timeline import Timeline

#: Memory is called affine in the micro-batch where the check is off by less than this (relative).
AFFINE_WITHIN = 0.005

_STATES = ("weights", "gradients", "optimizer", "buffers")

_PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "timm", "batchfit")


def profile_of(
    study: Study,
    name: str,
    settings: Mapping[str, Any],
    *,
    seq_len: int | None,
    assumptions: tuple[str, ...],
    micro_batches: Iterable[int] = (),
    allocator: AllocatorConfig | None = None,
    begun: float,
) -> MemoryProfile:
    """The profile of the step that was studied.

    `seq_len` are the tokens of a sample where there is one length, `micro_batches` some to replay the allocator at
    beside the usual ones, `allocator` how it is set up, `begun` when the study began, on the clock of
    `time.perf_counter`.
    """
    model = deepened(describe(study.model, name), ((describe(d.model, name), d.extra) for d in study.deeper))
    if study.is_regular:
        surface = study.surface()
        phases, states = surface.envelopes(), _states(surface)
        ledger = ledger_of(surface, study.model)
        reserved = replayed(surface, phases, micro_batches, seq_len, allocator)
    else:
        phases, states = _through_peaks(study), States(*_in_steady_state(study.pairs[0].small))
        ledger, reserved = (), ()
    deviation = _deviation(study, phases, seq_len)
    affine = study.is_regular and deviation < AFFINE_WITHIN
    return MemoryProfile(
        model=model,
        settings=dict(settings) | ({} if seq_len is None else {"seq_len": seq_len}),
        states=states,
        phases=phases,
        reserved=reserved,
        compute=compute_of(study, model.trainable_parameters),
        ledger=ledger,
        seq_len=_range(study, phases, seq_len),
        affinity=Affinity(TRACED, CHECKED_AT, round(deviation, 6), affine),
        assumptions=(
            *assumptions,
            *study.assumptions,
            *(() if affine else (_not_affine(*TRACED, CHECKED_AT, deviation),)),
        ),
        provenance=Provenance(
            "traced",
            versions(),
            round(time.perf_counter() - begun, 3),
            datetime.now(UTC).isoformat(timespec="seconds"),
        ),
    )


def _not_affine(small: int, large: int, checked: int, deviation: float) -> str:
    return (
        f"memory is no straight line in the micro-batch: what micro-batches {small} and {large} foretell is off by "
        f"{deviation:.1%} at {checked}"
    )


def _deviation(study: Study, phases: Mapping[str, tuple[Line, ...]], seq_len: int | None) -> float:
    """How far the lines are off at the micro-batch that checks them (relative), at as many blocks as were traced."""
    if study.check is None:
        return 0.0
    if study.is_regular:
        phases = study.check_surface().envelopes()
    elif study.lengths.is_range:
        seq_len = study.lengths.traced[0]
    return _off(phases, peaks(study.check), CHECKED_AT, seq_len)


def _off(
    phases: Mapping[str, tuple[Line, ...]],
    found: Mapping[str, float],
    micro_batch: int,
    seq_len: int | None,
) -> float:
    return max(
        (
            abs(max(line.at(micro_batch, seq_len) for line in phases[phase]) - peak) / peak
            for phase, peak in found.items()
            if phases[phase]
        ),
        default=0.0,
    )


def _range(study: Study, phases: Mapping[str, tuple[Line, ...]], seq_len: int | None) -> SeqRange | None:
    lengths = study.lengths
    if not lengths.is_range:
        return None if seq_len is None else SeqRange(seq_len, seq_len, (seq_len,), None, None)
    deviation = None
    if study.length_check is not None:
        if study.is_regular:
            phases = study.length_check_surface().envelopes()
        deviation = round(_off(phases, peaks(study.length_check), TRACED[0], lengths.checked_at), 6)
    return SeqRange(lengths.traced[0], lengths.traced[-1], lengths.traced, lengths.checked_at, deviation)


def _through_peaks(study: Study) -> dict[str, tuple[Line, ...]]:
    """Of a step whose events differ from one size to the next: each phase as one line through its peaks."""
    at_lengths = [through_peaks(pair.small, pair.large, *TRACED) for pair in study.pairs]
    phases = {}
    for phase, lines in at_lengths[0].items():
        several = [one[phase] for one in at_lengths]
        phases[phase] = (_curved([one[0] for one in several], study.lengths),) if all(several) else lines
    return phases


def _curved(lines: Sequence[Line], lengths: Lengths) -> Line:
    """One line from one at each length."""

    def curve(amounts: Iterable[tuple[Polynomial, Polynomial]]) -> tuple[Polynomial, Polynomial]:
        constants, slopes = zip(*amounts, strict=True)
        return lengths.curve([c[0] for c in constants]), lengths.curve([s[0] for s in slopes])

    nothing: tuple[Polynomial, Polynomial] = ((0,), (0,))
    parts = {part: curve(line.parts.get(part, nothing) for line in lines) for part in lines[-1].parts}
    constant, slope = curve((line.constant, line.per_sample) for line in lines)
    return Line(constant, slope, parts, lines[-1].where)


def _states(surface: Surface) -> States:
    """What is alive when the last optimizer step begins: weights, gradients, optimizer state and buffers."""
    return States(*(surface.requested_before_update(category) for category in _STATES))


def _in_steady_state(timeline: Timeline) -> list[int]:
    alive = timeline.alive_at(last_update(timeline))
    return [
        sum(nbytes for storage, nbytes in alive.items() if timeline.categories[storage] == category)
        for category in _STATES
    ]


def versions() -> dict[str, str]:
    """Of Python and of the packages that a trace depends on, as installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
