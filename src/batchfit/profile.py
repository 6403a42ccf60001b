"""The memory profile: what a training step holds, phase by phase, as lines over the micro-batch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

from batchfit.errors import BadInput
from batchfit.palette import KINDS, PARTS
from batchfit.records import from_json, to_json
from batchfit.units import format_bytes

VERSION = 1

#: The phases of an optimizer step, in the order they run. `later_micro` is every micro-batch but the first.
PHASES = ("first_micro", "later_micro", "optimizer_step")

#: What `largest_micro_batch` answers where nothing in the profile grows with the micro-batch.
NO_LIMIT = 2**31 - 1

#: A polynomial over the sequence length in tokens, lowest power first; `(c0,)` does not depend on it.
Polynomial = tuple[float, ...]


def evaluate(polynomial: Polynomial, seq_len: float | None) -> float:
    """The polynomial's value at `seq_len` tokens; a polynomial of one coefficient needs no length."""
    if len(polynomial) == 1:
        return polynomial[0]
    if seq_len is None:
        raise BadInput("seq_len", "is needed: this profile holds for a range of sequence lengths")
    value = 0.0
    for coefficient in reversed(polynomial):
        value = value * seq_len + coefficient
    return value


@dataclass(frozen=True, slots=True)
class Unit:
    """Blocks of a model that are alike (`model.layers.*`, 32 times), or `(root)`, the rest: what FSDP gathers."""

    name: str
    count: int
    parameters: int
    trainable_parameters: int
    weights_bytes: int
    trainable_weights_bytes: int


@dataclass(frozen=True, slots=True)
class Model:
    """The model's name and size. A unit's parameters and bytes are of one block; times `count` they make the model."""

    name: str
    parameters: int
    trainable_parameters: int
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class States:
    """Bytes that one replica holds in the steady state, whatever the micro-batch."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    buffers_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of them together."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.buffers_bytes


@dataclass(frozen=True, slots=True)
class Line:
    """Live bytes at one point of a phase: `constant(s) + b * per_sample(s)` for micro-batch b, sequence length s.

    `parts` says what is alive there (a constant and a per-sample polynomial for each, summing to the line);
    `where` says what runs there, for people. `activations` are the part of that name by kind of layer, summing to it;
    empty where the profile does not tell.
    """

    constant: Polynomial
    per_sample: Polynomial
    parts: dict[str, tuple[Polynomial, Polynomial]]
    where: str
    activations: dict[str, tuple[Polynomial, Polynomial]] = field(default_factory=dict)

    def at(self, micro_batch: float, seq_len: float | None = None) -> int:
        """Bytes at this micro-batch, rounded to a whole one."""
        return round(evaluate(self.constant, seq_len) + micro_batch * evaluate(self.per_sample, seq_len))

    def parts_at(self, micro_batch: float, seq_len: float | None = None) -> dict[str, int]:
        """Bytes of each part at this micro-batch, in the order memory is always drawn."""
        return {
            part: round(evaluate(constant, seq_len) + micro_batch * evaluate(slope, seq_len))
            for part in PARTS
            if part in self.parts
            for constant, slope in (self.parts[part],)
        }

    def activations_at(self, micro_batch: float, seq_len: int | None = None) -> dict[str, int]:
        """Bytes of activations by kind of layer at this micro-batch, in the order they are always drawn; they sum to
        what `parts_at` has. Empty where the profile does not tell."""
        total = self.parts_at(micro_batch, seq_len).get("activations", 0)
        exact = {
            kind: max(0.0, evaluate(constant, seq_len) + micro_batch * evaluate(slope, seq_len))
            for kind in KINDS
            if kind in self.activations
            for constant, slope in (self.activations[kind],)
        }
        # Each rounded by itself would miss the sum by some bytes; the ends of stretches, rounded, do not. What is
        # interpolated between blocks of a replica may be less than nothing of one kind: others have the less of it.
        whole = sum(exact.values())
        found, end, so_far = {}, 0, 0.0
        for kind, nbytes in exact.items():
            so_far += nbytes
            begun, end = end, round(so_far / whole * total) if so_far else 0
            if end > begun:
                found[kind] = end - begun
        return found


@dataclass(frozen=True, slots=True)
class ReservedPoint:
    """One replay of the timeline through the caching allocator: allocated and reserved peak, in bytes."""

    micro_batch: int
    accumulation_steps: int
    seq_len: int | None
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Compute:
    """What a step computes, for a model of its time. FLOPs are per sample, over the sequence length.

    `step_flops` are those of one micro-batch per sample: forward, recomputation and backward; `attention_flops` the
    part of them in fused attention kernels, which run slower than plain matrix products.

    `matmul_bytes` and `other_bytes` are what the kernels of one micro-batch read and write in device memory (every
    operand once, every result once): those of matrix products, attention and convolution, and all the others. Each is
    a constant, such as weights, and an amount per sample. `optimizer_bytes` is the same for one optimizer step.
    Where nothing was counted all are zero, and no time can be told.
    """

    forward_flops: Polynomial
    step_flops: Polynomial
    attention_flops: Polynomial
    matmul_bytes: tuple[Polynomial, Polynomial]
    other_bytes: tuple[Polynomial, Polynomial]
    optimizer_bytes: int
    kernels_per_micro_batch: int
    kernels_per_optimizer_step: int
    gradient_elements: int


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the person's model and the activation memory it holds for backward.

    `where` is file and line, `code` the line's text, `module` the path of the module (repeated blocks as `*`),
    `count` how many places of the model run it; the bytes are of all of them together.
    """

    where: str
    code: str
    module: str
    kind: str
    bytes_per_sample: int
    fixed_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class SeqRange:
    """The sequence lengths the profile holds for, in tokens, and how far off it was at one in between (relative)."""

    minimum: int
    maximum: int
    traced: tuple[int, ...]
    checked_at: int | None
    deviation: float | None


@dataclass(frozen=True, slots=True)
class Affinity:
    """Whether memory is a line in the micro-batch: traced at some, checked at another, relative deviation there."""

    traced: tuple[int, ...]
    checked_at: int | None
    deviation: float | None
    affine: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """How the profile was obtained ("traced", "measured" or "catalogue"), with what, when, in how many seconds."""

    how: str
    versions: dict[str, str]
    seconds: float
    created: str


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes a step holds at once, the phase that binds, its highest line and what that is made of."""

    allocated_bytes: int
    reserved_bytes: int | None
    binding_phase: str
    line: Line
    parts: dict[str, int]
    #: Activations by kind of layer, where the profile tells.
    activations: dict[str, int]


@dataclass(frozen=True, slots=True, repr=False)
class MemoryProfile:
    """What a training step holds on one replica, in bytes and bytes per sample of the micro-batch."""

    model: Model
    settings: dict[str, Any]
    states: States
    phases: dict[str, tuple[Line, ...]]
    reserved: tuple[ReservedPoint, ...]
    compute: Compute
    ledger: tuple[LedgerEntry, ...]
    seq_len: SeqRange | None
    affinity: Affinity
    assumptions: tuple[str, ...]
    provenance: Provenance

    def peak(self, micro_batch: int, accumulation_steps: int = 1, seq_len: int | None = None) -> Peak:
        """The peak of an optimizer step of `accumulation_steps` micro-batches of `micro_batch` samples.

        Later micro-batches count only where there are any. Raises BadInput for a batch below 1, or where the
        profile holds for a range of sequence lengths and none, or one outside it, is given.
        """
        self._check(micro_batch, accumulation_steps, seq_len)
        highest: tuple[int, str, Line] | None = None
        for phase in PHASES:
            if phase == "later_micro" and accumulation_steps == 1:
                continue
            for line in self.phases.get(phase, ()):
                nbytes = line.at(micro_batch, seq_len)
                if highest is None or nbytes > highest[0]:
                    highest = nbytes, phase, line
        if highest is None:
            raise BadInput("phases", "must hold at least one line; this profile has none")
        allocated, phase, line = highest
        ratio = self.reserved_ratio(micro_batch, accumulation_steps, seq_len)
        reserved = None if ratio is None else round(allocated * ratio)
        return Peak(
            allocated,
            reserved,
            phase,
            line,
            line.parts_at(micro_batch, seq_len),
            line.activations_at(micro_batch, seq_len),
        )

    @property
    def activation_per_sample(self) -> int:
        """A: bytes that one more sample in the micro-batch adds to the peak, where activations bind. For a range of
        sequence lengths, at the longest."""
        return self.activation_at(self.seq_len.maximum if self.seq_len else None)

    def activation_at(self, seq_len: int | None) -> int:
        """A at a sequence length: the slope of the steepest line of the micro-batches' phases, in bytes per sample.

        It is what the peak grows by once the micro-batch is large enough that no constant (such as the optimizer's
        temporaries) hides it.
        """
        lines = [line for phase in ("first_micro", "later_micro") for line in self.phases.get(phase, ())]
        return max((round(evaluate(line.per_sample, seq_len)) for line in lines), default=0)

    def largest_micro_batch(
        self,
        capacity_bytes: int,
        accumulation_steps: int = 1,
        seq_len: int | None = None,
        reserved: bool = False,
    ) -> int:
        """The largest micro-batch whose peak is at most `capacity_bytes`; 0 where not even one sample fits.

        `reserved` compares the reserved peak where the profile knows it. NO_LIMIT where nothing grows.
        """

        def fits(micro_batch: int) -> bool:
            peak = self.peak(micro_batch, accumulation_steps, seq_len)
            known = peak.reserved_bytes if reserved else None
            return (peak.allocated_bytes if known is None else known) <= capacity_bytes

        if not fits(1):
            return 0
        low, high = 1, 2
        while fits(high):
            low, high = high, high * 2
            if low > NO_LIMIT:
                return NO_LIMIT
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def reserved_peak(
        self, micro_batch: int, accumulation_steps: int = 1, seq_len: int | None = None
    ) -> int | None:
        """Reserved peak in bytes: the allocated one times reserved/allocated as replayed nearby, if ever."""
        return self.peak(micro_batch, accumulation_steps, seq_len).reserved_bytes

    def reserved_ratio(
        self, micro_batch: int, accumulation_steps: int = 1, seq_len: int | None = None
    ) -> float | None:
        """Reserved over allocated peak, None where it was never replayed. Between two replayed micro-batches it is
        interpolated, beyond them the nearest one's holds."""
        if not self.reserved:
            return None
        return reserved_over_allocated(self.reserved, micro_batch, accumulation_steps > 1, seq_len)

    def _check(self, micro_batch: int, accumulation_steps: int, seq_len: int | None) -> None:
        for name, value in (("micro_batch", micro_batch), ("accumulation_steps", accumulation_steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(
                    name, "must be a whole number of 1 or more; you gave {given}", given=repr(value)
                )
        span = self.seq_len
        if span and seq_len is not None and not span.minimum <= seq_len <= span.maximum:
            raise BadInput(
                "seq_len",
                "must be between {minimum} and {maximum} tokens, which is what was traced; you gave {given}",
                minimum=span.minimum,
                maximum=span.maximum,
                given=seq_len,
            )

    def to_json(self) -> str:
        """The profile as JSON text; `from_json` gives back an equal one."""
        return json.dumps({"batchfit_profile": VERSION, **to_json(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, name: str = "profile") -> MemoryProfile:
        """The profile in `text`. Raises BadInput naming the path (below `name`) of whatever is wrong in it."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise BadInput(name, "is not JSON: {error}", error=str(error)) from None
        if not isinstance(data, dict) or "batchfit_profile" not in data:
            raise BadInput(name, 'is not a batchfit profile: it has no key "batchfit_profile"')
        version = data.pop("batchfit_profile")
        if type(version) is not int or version != VERSION:
            raise BadInput(
                f"{name}.batchfit_profile",
                "must be {wanted}, the version this batchfit reads; it is {found}",
                wanted=VERSION,
                found=repr(version),
            )
        profile = from_json(cls, data, name)
        _check_phases(profile.phases, f"{name}.phases")
        return profile

    def save(self, path: str | Path) -> None:
        """Writes the profile to `path`, whole or not at all."""
        path = Path(path)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.to_json())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: str | Path) -> MemoryProfile:
        """The profile in the file `path`. Raises BadInput where it cannot be read or is not one."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(str(path), "cannot be read: {error}", error=str(error)) from None
        return cls.from_json(text, str(path))

    def __repr__(self) -> str:
        return (
            f"MemoryProfile({self.model.name}, {self.model.parameters:,} parameters, "
            f"states {format_bytes(self.states.total_bytes)}, "
            f"{format_bytes(self.activation_per_sample)} per sample{self._shown_length})"
        )

    @property
    def _shown_length(self) -> str:
        if self.seq_len and self.seq_len.minimum != self.seq_len.maximum:
            return f" at {self.seq_len.maximum:,} tokens"
        return ""

    def _repr_html_(self) -> str:
        """For notebooks: the peak at the smallest traced micro-batch as one stacked bar, drawn to scale."""
        from batchfit import charts

        micro_batch = self.affinity.traced[0] if self.affinity.traced else 1
        peak = self.peak(micro_batch, 2, self.seq_len.maximum if self.seq_len else None)
        return (
            f'<div style="font:14px system-ui,sans-serif;max-width:60em"><p><b>{escape(self.model.name)}</b>: '
            f"{escape(format_bytes(peak.allocated_bytes))} at micro-batch {micro_batch}{escape(self._shown_length)} "
            f"({escape(peak.binding_phase)}: {escape(peak.line.where)}); "
            f"{escape(format_bytes(self.activation_per_sample))} per further sample</p>"
            f"{charts.standalone(charts.peak_bar(peak))}</div>"
        )


def reserved_over_allocated(
    points: Sequence[ReservedPoint], micro_batch: int, accumulates: bool, seq_len: int | None
) -> float:
    """Reserved over allocated peak at a micro-batch, from replays, of which there is at least one."""
    alike = [p for p in points if (p.accumulation_steps > 1) == accumulates] or list(points)
    if seq_len is not None:
        nearest = min({p.seq_len for p in alike if p.seq_len}, key=lambda s: abs(s - seq_len), default=None)
        alike = [p for p in alike if p.seq_len == nearest] or alike
    ratios = sorted({p.micro_batch: p.reserved_bytes / p.allocated_bytes for p in alike}.items())
    below = [(b, ratio) for b, ratio in ratios if b <= micro_batch]
    above = [(b, ratio) for b, ratio in ratios if b >= micro_batch]
    if not below or not above:
        return (above or below)[0 if above else -1][1]
    (b0, r0), (b1, r1) = below[-1], above[0]
    share = 0.0 if b0 == b1 else (micro_batch - b0) / (b1 - b0)
    return r0 + share * (r1 - r0)


def _check_phases(phases: Mapping[str, tuple[Line, ...]], path: str) -> None:
    for phase, lines in phases.items():
        if phase not in PHASES:
            raise BadInput(
                f"{path}.{phase}", "is not a phase we know; known are {known}", known=", ".join(PHASES)
            )
        for index, line in enumerate(lines):
            here = f"{path}.{phase}[{index}]"
            _check_names(line.parts, PARTS, f"{here}.parts")
            _check_names(line.activations, KINDS, f"{here}.activations")
            if line.activations and not _add_up(line):
                raise BadInput(f"{here}.activations", "must add up to the activations among the parts")
            for which in (line.constant, line.per_sample):
                if not which:
                    raise BadInput(here, "must have at least one coefficient")


def _check_names(found: Mapping[str, object], known: Sequence[str], path: str) -> None:
    for name in found:
        if name not in known:
            raise BadInput(
                f"{path}.{name}", "is not a part we know; known are {known}", known=", ".join(known)
            )


def _add_up(line: Line) -> bool:
    """Whether a line's activations by kind are its part of activations, but for what rounding their coefficients to
    bytes at the longest samples leaves."""
    for which, whole in enumerate(line.parts.get("activations", ((0,), (0,)))):
        told = [amount[which] for amount in line.activations.values()]
        for power, coefficients in enumerate(zip_longest(whole, *told, fillvalue=0)):
            apart = coefficients[0] - sum(coefficients[1:])
            if abs(apart) > 1e-6 * abs(coefficients[0]) + len(told) * 1e-4**power:
                return False
    return True
