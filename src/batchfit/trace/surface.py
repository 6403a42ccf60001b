"""Live bytes at every point of a step, as lines over the micro-batch whose coefficients are curves over the length.

A step traced at two micro-batches (and, for a range of sequence lengths, at three lengths) has the same events each
time, in other sizes. So each event's size is a line over the micro-batch, at each length another one, and so is
what is alive after it: a surface. A phase's envelope is the points that are the highest somewhere on it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from batchfit.palette import KINDS, PARTS
from batchfit.profile import PHASES, Line, Polynomial
from batchfit.trace.fold import Fold
from batchfit.trace.kinds import Kinds
from batchfit.trace.lengths import Lengths
from batchfit.trace.phases import Where, alike, last_update, phase_of, through_peaks, upper
from batchfit.trace.places import Places
from batchfit.trace.timeline import ALLOC, BLOCK_BYTES, FREE, MARK, Timeline

_PART_NUMBER = {part: number for number, part in enumerate(PARTS)} | {"input": PARTS.index("activations")}
_ACTIVATIONS = PARTS.index("activations")


@dataclass(frozen=True, slots=True)
class Pair:
    """The same step at two micro-batches, told apart by nothing but sizes."""

    small: Timeline
    large: Timeline


#: Events that are larger in the whole model than in the traced one, by so many bytes at each of two micro-batches.
Stretched = Mapping[int, tuple[int, int]]


@dataclass(slots=True)
class Sizes:
    """Bytes of every event at one length: requested at the smaller micro-batch, and what each sample more adds;
    and as the caching allocator would count them, `constant + b * slope`.

    A size that does not grow is rounded to whole blocks. One that does grows by what is asked for, and carries what
    rounding added at the traced micro-batches, so that small tensors are not told wrong at large batches.
    """

    requested: torch.Tensor
    growth: torch.Tensor
    constant: torch.Tensor
    slope: torch.Tensor

    @classmethod
    def of(cls, pair: Pair, batches: tuple[int, int], stretched: Stretched) -> Sizes:
        """The sizes in the whole model's timeline, where some events are larger than in the traced one."""
        small, large = (torch.tensor([e.nbytes for e in t.events]) for t in (pair.small, pair.large))
        for index, (more_small, more_large) in stretched.items():
            small[index] += more_small
            large[index] += more_large
        apart = batches[1] - batches[0]
        difference = large - small
        slope = torch.div(difference, apart, rounding_mode="floor")
        rounding = torch.maximum(_rounded(small) - small, _rounded(large) - large)
        grows = small - slope * batches[0] + rounding + BLOCK_BYTES * (difference % apart != 0)
        flat = difference == 0
        return cls(
            small, difference / apart, torch.where(flat, _rounded(small), grows), torch.where(flat, 0, slope)
        )


def _rounded(nbytes: torch.Tensor) -> torch.Tensor:
    return -torch.div(-nbytes, BLOCK_BYTES, rounding_mode="floor") * BLOCK_BYTES


class Surface:
    """The surface of the whole model's step, from pairs at each of `lengths` and the fold that makes them whole.

    `stretched` are the events that the whole model makes larger, at each length; `layers` tell the lines' activations
    apart. A point is a place in the whole
    timeline: its event is `order[point]` of the traced one.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        batches: tuple[int, int],
        fold: Fold | None = None,
        lengths: Lengths | None = None,
        stretched: Sequence[Stretched] = (),
        layers: Kinds | None = None,
    ) -> None:
        self.timeline = timeline = pairs[0].small
        self.batches = batches
        self.lengths = lengths or Lengths()
        self.fold = fold or Fold()
        self.sizes = [
            Sizes.of(pair, batches, stretched[number] if stretched else {})
            for number, pair in enumerate(pairs)
        ]
        stretches = self.fold.order(len(timeline.events))
        self.order = torch.cat([torch.arange(r.start, r.stop) for r in stretches])
        kinds = torch.tensor([e.kind for e in timeline.events])
        self._sign = (kinds == ALLOC).long() - (kinds == FREE).long()
        categories = timeline.categories
        self._parts = torch.tensor(
            [_PART_NUMBER.get(categories.get(e.storage, ""), 0) for e in timeline.events]
        )
        self._layers = None if layers is None else self._numbered(layers)
        self._marks = [index for index, event in enumerate(timeline.events) if event.kind == MARK]
        self._can_peak = (kinds != FREE)[self.order]
        self._phase = torch.tensor(_phases(timeline))[self.order]
        # (points, lengths, 2): bytes after each point, as constant and slope.
        amounts = torch.stack([torch.stack((s.constant, s.slope), 1) for s in self.sizes], 1)
        self._amounts = self._sign[:, None, None] * amounts
        self._heights = self._amounts[self.order].cumsum(0)

    def _numbered(self, layers: Kinds) -> torch.Tensor:
        """The number of the kind of each event's storage; behind them all where it is no activation."""
        numbers = {kind: number for number, kind in enumerate(KINDS)}
        return torch.tensor(
            [
                numbers[layers.of(event.storage)]
                if part == _ACTIVATIONS and event.kind != MARK
                else len(KINDS)
                for event, part in zip(self.timeline.events, self._parts.tolist(), strict=True)
            ]
        )

    def envelopes(self) -> dict[str, tuple[Line, ...]]:
        """Each phase's lines: those that are the highest in their place only (`batchfit.trace.places`), then the
        envelope, by falling height at a micro-batch of 1 and the shortest length."""
        places = Places(self.timeline, self.order)
        kept: dict[str, list[int]] = {}
        for phase in PHASES:
            points = self._points(phase)
            envelope = self._highest(points)
            ends = (point for place in places.ends(points) for point in self._highest(place))
            lower = [point for point in dict.fromkeys(ends) if point not in envelope]
            kept[phase] = [*lower, *envelope]
        lines = self._lines({point for points in kept.values() for point in points})
        return {phase: tuple(lines[point] for point in points) for phase, points in kept.items()}

    def steepest(self) -> int | None:
        """The point in a micro-batch where most is alive per sample, at the longest length: where activations bind."""
        candidates = [p for phase in PHASES[:2] for p in self._highest(self._points(phase))]
        return max(candidates, key=lambda p: tuple(self._heights[p, -1].flip(0).tolist()), default=None)

    def _points(self, phase: str) -> torch.Tensor:
        """A phase begins with what is alive at its mark, and from there only births can make a peak."""
        return ((self._phase == PHASES.index(phase)) & self._can_peak).nonzero().flatten()

    def _highest(self, points: torch.Tensor) -> list[int]:
        heights = self._heights[points].double()
        kept: dict[int, None] = {}
        for weights in self.lengths.grid():
            constant, slope = torch.einsum("plc,l->cp", heights, torch.tensor(weights, dtype=torch.double))
            for index in _hull(constant, slope):
                kept[int(points[index])] = None
        return list(kept)

    def _lines(self, points: Iterable[int]) -> dict[int, Line]:
        """The line of each point, with what is alive there, in one walk over the timeline."""
        lines = {}
        counts = torch.zeros(len(self._sign), dtype=torch.long)
        before = 0
        for point in sorted(points):
            counts += self._happened(before, point + 1)
            before = point + 1
            lines[point] = self._line(point, counts)
        return lines

    def _line(self, point: int, counts: torch.Tensor) -> Line:
        held = counts[:, None, None] * self._amounts
        parts = self._told_apart(held, self._parts, PARTS)
        activations = {} if self._layers is None else self._told_apart(held, self._layers, KINDS)
        curve, height = self.lengths.curve, self._heights[point]
        return Line(
            curve(height[:, 0].tolist()), curve(height[:, 1].tolist()), parts, self.where(point), activations
        )

    def _told_apart(
        self, held: torch.Tensor, numbers: torch.Tensor, names: Sequence[str]
    ) -> dict[str, tuple[Polynomial, Polynomial]]:
        """What is held, added up by what each event's number says it is for, without what there is nothing of."""
        alive = torch.zeros(len(names) + 1, *held.shape[1:], dtype=torch.long).index_add_(0, numbers, held)
        curve = self.lengths.curve
        return {
            name: (curve(alive[n, :, 0].tolist()), curve(alive[n, :, 1].tolist()))
            for n, name in enumerate(names)
            if alive[n].any()
        }

    def _happened(self, start: int, stop: int) -> torch.Tensor:
        """How often every traced event happens from one point to before another."""
        return torch.bincount(self.order[start:stop], minlength=len(self._sign))

    def where(self, point: int) -> str:
        """What runs at a point, in words."""
        event = int(self.order[point])
        last = self._marks[bisect_right(self._marks, event) - 1]
        where = Where(self.timeline)
        where.enter(self.timeline.marks[self.timeline.events[last].stack])
        return where.of(self.timeline.events[event])

    def counts(self, point: int) -> list[int]:
        """For every event of the traced timeline, how often it has happened at a point: births count up, deaths down.
        Of storages that are alike, the counts together say how many are alive."""
        return (self._happened(0, point + 1) * self._sign).tolist()

    def size_of(self, event: int) -> tuple[int, int]:
        """Bytes of a traced event at the longest length: per sample, and beside that."""
        sizes = self.sizes[-1]
        return int(sizes.slope[event]), int(sizes.constant[event])

    def requested(self, micro_batch: int, length: int = 0) -> list[int]:
        """Bytes that every traced event asks for at this micro-batch, at one of the traced lengths."""
        sizes = self.sizes[length]
        asked = sizes.requested + (micro_batch - self.batches[0]) * sizes.growth
        return asked.clamp(min=0).round().long().tolist()

    def requested_before_update(self, category: str) -> int:
        """Bytes of `category` alive when the last optimizer step's update begins, as requested."""
        point = int((self.order == last_update(self.timeline)).nonzero()[-1])
        of = self.timeline.categories
        wanted = torch.tensor([of.get(e.storage) == category for e in self.timeline.events])
        before = self.order[: point + 1]
        return int((self._sign * self.sizes[0].requested * wanted)[before].sum())


def envelopes(
    small: Timeline, large: Timeline, small_batch: int, large_batch: int
) -> dict[str, tuple[Line, ...]]:
    """Each phase's upper envelope over micro-batches of 1 and more, from timelines at two micro-batches.

    Where the timelines are not alike, a phase is the one line through its two peaks.
    """
    if not alike(small, large):
        return through_peaks(small, large, small_batch, large_batch)
    return Surface([Pair(small, large)], (small_batch, large_batch)).envelopes()


def _phases(timeline: Timeline) -> list[int]:
    """The number of the phase that each event is in, -1 where it is in none."""
    now = -1
    result: list[int] = []
    for event in timeline.events:
        if event.kind == MARK:
            phase = phase_of(timeline.marks[event.stack])
            now = -1 if phase is None else PHASES.index(phase)
        result.append(now)
    return result


def _hull(constant: torch.Tensor, slope: torch.Tensor) -> list[int]:
    """The points that are highest at some micro-batch of 1 or more."""
    if not len(constant):
        return []
    order = torch.argsort(constant, descending=True, stable=True)
    order = order[torch.argsort(slope[order], descending=True, stable=True)]
    falling = constant[order]
    # A point that a steeper one is not below of is nowhere the highest.
    above = torch.cat((torch.tensor([-torch.inf], dtype=torch.double), falling.cummax(0).values[:-1]))
    kept = order[falling > above]
    return upper(constant[kept].tolist(), slope[kept].tolist(), kept.tolist())
