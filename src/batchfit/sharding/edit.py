"""Editing a profile's lines by their parts: the arithmetic that every way of sharding shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import add

from batchfit.errors import BadInput
from batchfit.kept import kept
from batchfit.profile import Line, MemoryProfile, Polynomial, evaluate

#: A part of a line: (constant, per sample of the micro-batch), each a polynomial over the sequence length.
Amount = tuple[Polynomial, Polynomial]

NOTHING: Amount = ((0,), (0,))

#: Bytes per element.
ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def constant(nbytes: float) -> Amount:
    """`nbytes`, whatever the micro-batch."""
    return (nbytes,), (0,)


def plus(a: Amount, b: Amount) -> Amount:
    """The sum of two parts."""
    return _sum(a[0], b[0]), _sum(a[1], b[1])


def raised(amount: Amount, nbytes: float) -> Amount:
    """A part with so many more bytes, whatever the micro-batch."""
    (first, *rest), slope = amount
    return (first + nbytes, *rest), slope


def times(amount: Amount, factor: float) -> Amount:
    """`factor` of a part."""
    return tuple([c * factor for c in amount[0]]), tuple([c * factor for c in amount[1]])


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    if len(a) == len(b):
        return tuple(map(add, a, b))
    return tuple([x + y for x, y in zip_longest(a, b, fillvalue=0)])


def _higher(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The sum of several without their first coefficients."""
    return tuple(map(sum, zip_longest(*(each[1:] for each in polynomials), fillvalue=0)))


def part(line: Line, name: str) -> Amount:
    """What `line` holds of a part."""
    return line.parts.get(name, NOTHING)


def fixed(line: Line, name: str, seq_len: int | None) -> float:
    """The bytes of a part that do not grow with the micro-batch."""
    return evaluate(part(line, name)[0], seq_len)


@dataclass(frozen=True, slots=True)
class Activations:
    """A line's activations, and what of them each kind of layer has; without kinds where the profile does not tell."""

    amount: Amount = NOTHING
    kinds: Mapping[str, Amount] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Line) -> Activations:
        """Those of a line."""
        return cls(part(line, "activations"), line.activations)

    def plus(self, other: Activations, factor: float = 1) -> Activations:
        """These and so many times the others."""
        amount = plus(self.amount, times(other.amount, factor))
        if not (self._told and other._told):
            return Activations(amount)
        kinds = dict(self.kinds)
        for kind, held in other.kinds.items():
            kinds[kind] = plus(kinds.get(kind, NOTHING), times(held, factor))
        return Activations(amount, kinds)

    def times(self, factor: float) -> Activations:
        """So many times these."""
        return Activations(
            times(self.amount, factor), {kind: times(held, factor) for kind, held in self.kinds.items()}
        )

    @property
    def _told(self) -> bool:
        """Whether kinds make up the whole, as they do of nothing."""
        return bool(self.kinds) or not any(map(any, self.amount))


def edited(
    line: Line,
    changes: Mapping[str, Amount],
    where: str | None = None,
    activations: Activations | None = None,
) -> Line:
    """`line` with these parts and activations instead of its own, and a new sum.

    The sum is made in one go, since an answer edits a thousand lines: most parts are plain numbers, and only what those
    of `longer` have beyond is summed as polynomials.
    """
    parts = {**line.parts, **changes}
    if activations is not None:
        parts["activations"] = activations.amount
    constant: float = 0
    slope: float = 0
    kept: dict[str, Amount] = {}
    longer: list[Amount] = []
    for name, amount in parts.items():
        constants, slopes = amount
        constant += constants[0]
        slope += slopes[0]
        if len(constants) > 1 or len(slopes) > 1:
            longer.append(amount)
        if any(constants) or any(slopes):
            kept[name] = amount
    return Line(
        (constant, *_higher(constants for constants, _ in longer)),
        (slope, *_higher(slopes for _, slopes in longer)),
        kept,
        line.where if where is None else where,
        line.activations if activations is None else dict(activations.kinds),
    )


def longest(profile: MemoryProfile) -> int | None:
    """The sequence length at which lines are compared: the longest the profile holds for."""
    return profile.seq_len.maximum if profile.seq_len else None


@kept(256)
def check_parts(profile: MemoryProfile) -> None:
    """Raises BadInput where lines do not say what they are made of, as after a calibration by measured peaks."""
    seq_len = longest(profile)
    for phase, lines in profile.phases.items():
        for line in lines:
            told = sum(evaluate(amount[0], seq_len) for amount in line.parts.values())
            whole = evaluate(line.constant, seq_len)
            if abs(told - whole) > 1e-6 * abs(whole) + 1:
                raise BadInput(
                    "sharding",
                    "needs a profile that says what its peaks are made of; in this one, {phase} does not",
                    phase=phase,
                )
