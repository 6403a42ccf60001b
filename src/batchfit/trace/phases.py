"""From timelines at two micro-batches to a profile's phases: the highest of the lines that live bytes follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batchfit.palette import PARTS
from batchfit.profile import PHASES, Line
from batchfit.trace.places import highest_by_place
from batchfit.trace.timeline import ALLOC, BLOCK_BYTES, FREE, MARK, Event, Mark, Timeline, rounded

_PART_NUMBER = {part: number for number, part in enumerate(PARTS)} | {"input": PARTS.index("activations")}


@dataclass(slots=True)
class _Highest:
    """A point of a phase: bytes are `constant + b * slope`; `index` is the event after which it holds."""

    constant: int
    slope: int
    index: int


def phase_of(mark: Mark) -> str | None:
    """The profile's phase that a mark begins, None where nothing of a step runs."""
    if mark.phase in ("forward", "backward", "between"):
        return "later_micro" if mark.micro > 0 else "first_micro"
    return "optimizer_step" if mark.phase in ("optimizer", "zero_grad") else None


def alike(first: Timeline, second: Timeline) -> bool:
    """Whether two timelines are the same but for sizes, so that their events can be laid over one another."""
    return len(first.events) == len(second.events) and all(
        a.kind == b.kind and a.storage == b.storage for a, b in zip(first.events, second.events, strict=True)
    )


def envelopes(
    small: Timeline, large: Timeline, small_batch: int, large_batch: int
) -> dict[str, tuple[Line, ...]]:
    """Each phase's upper envelope over micro-batches of 1 and more, from timelines at two micro-batches.

    Where the timelines are not alike, a phase is the one line through its two peaks.
    """
    if not alike(small, large):
        return _through_peaks(small, large, small_batch, large_batch)
    sizes = _Sizes(small, large, small_batch, large_batch)
    points: dict[str, list[_Highest]] = {phase: [] for phase in PHASES}
    constant = slope = 0
    phase: str | None = None
    for index, event in enumerate(small.events):
        if event.kind == MARK:
            phase = phase_of(small.marks[event.stack])
        else:
            sign = 1 if event.kind == ALLOC else -1
            c, s = sizes.of(index)
            constant, slope = constant + sign * c, slope + sign * s
        # A phase begins with what is alive at its mark, and from there only births can make a peak.
        if phase is not None and event.kind != FREE:
            points[phase].append(_Highest(constant, slope, index))
    kept = {phase: highest_by_place(small, points[phase], _upper) for phase in PHASES}
    return _lines(small, sizes, kept)


class _Sizes:
    """Every event's size as a line over the micro-batch, as the caching allocator would count it.

    A size that does not grow is rounded to whole blocks. One that does grows by what is asked for, and carries
    what rounding added at the traced micro-batches, so that small tensors are not told wrong at large batches.
    """

    def __init__(self, small: Timeline, large: Timeline, small_batch: int, large_batch: int) -> None:
        self._pairs = [(a.nbytes, b.nbytes) for a, b in zip(small.events, large.events, strict=True)]
        self._small_batch = small_batch
        self._apart = large_batch - small_batch
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}

    def of(self, index: int) -> tuple[int, int]:
        """Bytes of event `index`: (constant, per sample)."""
        pair = self._pairs[index]
        found = self._seen.get(pair)
        if found is None:
            small, large = pair
            slope, uneven = divmod(large - small, self._apart)
            if large == small:
                found = rounded(small), 0
            else:
                rounding = max(rounded(small) - small, rounded(large) - large)
                found = small - slope * self._small_batch + rounding + (BLOCK_BYTES if uneven else 0), slope
            self._seen[pair] = found
        return found


def _upper(points: list[_Highest]) -> list[_Highest]:
    """The points that are highest at some micro-batch of 1 or more, by falling height at 1."""
    best: dict[int, _Highest] = {}
    for point in points:
        known = best.get(point.slope)
        if known is None or point.constant > known.constant:
            best[point.slope] = point
    hull: list[_Highest] = []
    for point in sorted(best.values(), key=lambda p: p.slope):
        while hull and point.constant + point.slope >= hull[-1].constant + hull[-1].slope:
            hull.pop()
        while len(hull) > 1 and _crossing(hull[-2], point) <= _crossing(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    return hull


def _crossing(flat: _Highest, steep: _Highest) -> float:
    """The micro-batch from which on `steep` is higher than `flat`."""
    return (flat.constant - steep.constant) / (steep.slope - flat.slope)


def _lines(timeline: Timeline, sizes: _Sizes, kept: dict[str, list[_Highest]]) -> dict[str, tuple[Line, ...]]:
    """The kept points as lines, with what is alive at each: one walk over the events."""
    wanted = {point.index for points in kept.values() for point in points}
    made: dict[int, Line] = {}
    alive = [[0, 0] for _ in PARTS]
    where = _Where(timeline)
    for index, event in enumerate(timeline.events):
        if event.kind == MARK:
            where.enter(timeline.marks[event.stack])
        else:
            part = alive[_PART_NUMBER[timeline.categories[event.storage]]]
            sign = 1 if event.kind == ALLOC else -1
            c, s = sizes.of(index)
            part[0] += sign * c
            part[1] += sign * s
        if index in wanted:
            made[index] = _line(alive, where.of(event))
    return {phase: tuple(made[point.index] for point in points) for phase, points in kept.items()}


def _line(alive: list[list[int]], where: str) -> Line:
    return Line(
        constant=(sum(c for c, _ in alive),),
        per_sample=(sum(s for _, s in alive),),
        parts={part: ((c,), (s,)) for part, (c, s) in zip(PARTS, alive, strict=True) if c or s},
        where=where,
    )


class _Where:
    """Says in words what runs at an event: "forward: lm_head", "backward: model.layers.*.mlp", "optimizer step"."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._doing = ""

    def enter(self, mark: Mark) -> None:
        self._doing = {"optimizer": "optimizer step", "zero_grad": "zero_grad"}.get(mark.phase, mark.phase)

    def of(self, event: Event) -> str:
        module = self._timeline.modules.get(event.storage, "")
        return (
            f"{self._doing}: {folded(module)}"
            if module and self._doing in ("forward", "backward")
            else self._doing
        )


def folded(module: str) -> str:
    """A module's path with its numbers as `*`: "model.layers.11.mlp" gives "model.layers.*.mlp"."""
    return ".".join("*" if piece.isdigit() else piece for piece in module.split("."))


def peaks(timeline: Timeline) -> dict[str, int]:
    """The most bytes alive in each phase."""
    return {phase: point.height for phase, point in _peak_points(timeline).items()}


@dataclass(slots=True)
class _PeakPoint:
    height: int
    index: int


def _peak_points(timeline: Timeline) -> dict[str, _PeakPoint]:
    found: dict[str, _PeakPoint] = {}
    phase: str | None = None
    for index, (event, alive) in enumerate(timeline.live()):
        if event.kind == MARK:
            phase = phase_of(timeline.marks[event.stack])
        if phase is not None and (phase not in found or alive > found[phase].height):
            found[phase] = _PeakPoint(alive, index)
    return found


def _through_peaks(
    small: Timeline, large: Timeline, small_batch: int, large_batch: int
) -> dict[str, tuple[Line, ...]]:
    lines: dict[str, tuple[Line, ...]] = {}
    apart = large_batch - small_batch
    low, high = _peak_points(small), _peak_points(large)
    for phase in PHASES:
        if phase not in low or phase not in high:
            lines[phase] = ()
            continue
        at_small = _alive_parts(small, low[phase].index)
        at_large = _alive_parts(large, high[phase].index)
        alive = []
        for small_bytes, large_bytes in zip(at_small, at_large, strict=True):
            slope = (large_bytes - small_bytes) // apart
            alive.append([small_bytes - slope * small_batch, slope])
        lines[phase] = (_line(alive, _where_at(large, high[phase].index)),)
    return lines


def _alive_parts(timeline: Timeline, index: int) -> list[int]:
    alive = [0] * len(PARTS)
    for storage, nbytes in timeline.alive_at(index).items():
        alive[_PART_NUMBER[timeline.categories[storage]]] += rounded(nbytes)
    return alive


def _where_at(timeline: Timeline, index: int) -> str:
    where = _Where(timeline)
    for event in _marks_before(timeline, index):
        where.enter(timeline.marks[event.stack])
    return where.of(timeline.events[index])


def _marks_before(timeline: Timeline, index: int) -> Iterator[Event]:
    return (event for event in timeline.events[: index + 1] if event.kind == MARK)
