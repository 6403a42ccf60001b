"""A profile from measured points: memory over the micro-batch by least squares, where a model cannot be traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from batchfit import __version__
from batchfit.errors import BadInput
from batchfit.profile import (
    Affinity,
    Compute,
    Line,
    MemoryProfile,
    Model,
    Polynomial,
    Provenance,
    ReservedPoint,
    States,
)


@dataclass(frozen=True, slots=True)
class Point:
    """A measured peak: allocated bytes at a micro-batch."""

    micro_batch: int
    nbytes: int

    def __post_init__(self) -> None:
        if self.micro_batch < 1:
            raise BadInput(
                "point", "must have a micro-batch of 1 or more; you gave {given}", given=self.micro_batch
            )
        if self.nbytes < 1:
            raise BadInput("point", "must have a peak above 0 bytes; you gave {given}", given=self.nbytes)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a set of points gave: the profile, and how far each point is from it in bytes (measured less fitted)."""

    profile: MemoryProfile
    constant_bytes: int
    per_sample_bytes: int
    residuals: tuple[int, ...]

    @property
    def worst(self) -> int:
        """The largest residual in size."""
        return max((abs(residual) for residual in self.residuals), default=0)


def fit_line(points: Sequence[Point]) -> tuple[float, float]:
    """Bytes at no samples and bytes per sample, by least squares; exact for two micro-batches.

    Raises BadInput where fewer than two different micro-batches were measured, or memory falls as they grow.
    """
    batches = [point.micro_batch for point in points]
    if len(set(batches)) < 2:
        raise BadInput(
            "point",
            "is needed at two different micro-batches or more; you gave {given}",
            given=sorted(set(batches)),
        )
    mean_batch = sum(batches) / len(points)
    mean_bytes = sum(point.nbytes for point in points) / len(points)
    spread = sum((batch - mean_batch) ** 2 for batch in batches)
    slope = sum((p.micro_batch - mean_batch) * (p.nbytes - mean_bytes) for p in points) / spread
    if slope < 0:
        raise BadInput(
            "point",
            "must be memory that grows with the micro-batch; these points fall by {per} bytes per sample",
            per=round(-slope),
        )
    return mean_bytes - slope * mean_batch, slope


def calibrate(points: Sequence[Point], name: str = "measured") -> Calibration:
    """A profile of the line through `points`, which were measured as allocated peaks.

    What weights, gradients and states are in it is not known, so nothing can be said about sharding or other
    settings, and nothing about speed. With points of one micro-batch below zero bytes at none, raises BadInput.
    """
    constant, slope = fit_line(points)
    if constant < 0:
        raise BadInput(
            "point",
            "must not give a negative size for the model itself; this line has {given} bytes at micro-batch 0",
            given=round(constant),
        )
    kinds = sorted({point.micro_batch for point in points})
    fixed, per_sample = (float(round(constant)),), (round(slope, 3),)
    zero: Polynomial = (0.0,)
    parts = {"buffers": (fixed, zero), "activations": (zero, per_sample)}
    line = Line(fixed, per_sample, parts, "measured peak")
    residuals = tuple(point.nbytes - line.at(point.micro_batch) for point in points)
    deviation = max(abs(r) / p.nbytes for r, p in zip(residuals, points, strict=True))
    profile = MemoryProfile(
        model=Model(name, 0, 0, ()),
        settings={},
        states=States(0, 0, 0, 0),
        phases={"first_micro": (line,), "later_micro": (line,), "optimizer_step": ()},
        reserved=(),
        compute=Compute(zero, zero, zero, (zero, zero), (zero, zero), 0, 0, 0, 0),
        ledger=(),
        seq_len=None,
        affinity=Affinity(tuple(kinds), None, round(deviation, 6) if len(kinds) > 2 else None, True),
        assumptions=(
            "Measured points: one line for the whole step, with accumulation or without.",
            "What is constant is drawn as buffers: weights, gradients and states cannot be told apart.",
        ),
        provenance=_provenance(),
    )
    return Calibration(profile, round(constant), round(slope), residuals)


def correct(profile: MemoryProfile, points: Sequence[Point], seq_len: int | None = None) -> Calibration:
    """A traced profile whose overhead is corrected by measured points: the mean of what they lie above it.

    Only overhead, which no trace sees in full (libraries' workspaces and the like), is changed, and by the same
    constant everywhere; the lines keep their slopes. Raises BadInput where there is no point, or where the points lie
    so far below the profile that its overhead would be negative, which means that something else is wrong.
    """
    if not points:
        raise BadInput("point", "is needed: there is none to correct the profile by")
    gaps = [point.nbytes - profile.peak(point.micro_batch, 1, seq_len).allocated_bytes for point in points]
    missing = round(sum(gaps) / len(gaps))
    least = min((_overhead(line) for lines in profile.phases.values() for line in lines), default=0.0)
    if least + missing < 0:
        raise BadInput(
            "point",
            "lie {below} bytes below the profile on average, more than its overhead of {overhead}: the run has other "
            "settings than the profile",
            below=-missing,
            overhead=round(least),
        )
    phases = {
        phase: tuple(_with_overhead(line, missing) for line in lines)
        for phase, lines in profile.phases.items()
    }
    said = f"Overhead is {missing:+,} bytes from {len(points)} measured points; nothing else was changed by them."
    corrected = replace(
        profile,
        phases=phases,
        reserved=tuple(_shifted(point, missing) for point in profile.reserved),
        assumptions=(*profile.assumptions, said),
    )
    peaks = [corrected.peak(point.micro_batch, 1, seq_len).allocated_bytes for point in points]
    residuals = tuple(point.nbytes - peak for point, peak in zip(points, peaks, strict=True))
    return Calibration(corrected, missing, corrected.activation_per_sample, residuals)


def _overhead(line: Line) -> float:
    return line.parts["overhead"][0][0] if "overhead" in line.parts else 0.0


def _with_overhead(line: Line, more: int) -> Line:
    constant, slope = line.parts.get("overhead", ((0.0,), (0.0,)))
    return replace(
        line,
        constant=(line.constant[0] + more, *line.constant[1:]),
        parts={**line.parts, "overhead": ((constant[0] + more, *constant[1:]), slope)},
    )


def _shifted(point: ReservedPoint, more: int) -> ReservedPoint:
    """Overhead is a few large blocks: it is reserved as it is allocated."""
    return replace(
        point, allocated_bytes=point.allocated_bytes + more, reserved_bytes=point.reserved_bytes + more
    )


def _provenance() -> Provenance:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Provenance("measured", {"batchfit": __version__}, 0.0, created)
