"""The phases of a step: where they are in a timeline, what runs there, and which of their lines are the highest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batchfit.palette import PARTS
from batchfit.profile import PHASES, Line
from batchfit.trace.timeline import MARK, Event, Mark, Timeline, rounded

_PART_NUMBER = {part: number for number, part in enumerate(PARTS)} | {"input": PARTS.index("activations")}


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


def upper(constants: Sequence[float], slopes: Sequence[float], points: Sequence[int]) -> list[int]:
    """The points whose lines are the highest at some micro-batch of 1 or more, by falling height at 1."""
    best: dict[float, tuple[float, int]] = {}
    for constant, slope, point in zip(constants, slopes, points, strict=True):
        if slope not in best or constant > best[slope][0]:
            best[slope] = constant, point
    hull: list[tuple[float, float, int]] = []
    for slope, (constant, point) in sorted(best.items()):
        while hull and constant + slope >= hull[-1][0] + hull[-1][1]:
            hull.pop()
        while len(hull) > 1 and _crossing(hull[-2], slope, constant) <= _crossing(hull[-2], *hull[-1][1::-1]):
            hull.pop()
        hull.append((constant, slope, point))
    return [point for _, _, point in hull]


def _crossing(flat: tuple[float, float, int], slope: float, constant: float) -> float:
    """The micro-batch from which on a steeper line is higher than `flat`."""
    return (flat[0] - constant) / (slope - flat[1])


def _line(alive: list[list[int]], where: str) -> Line:
    return Line(
        constant=(sum(c for c, _ in alive),),
        per_sample=(sum(s for _, s in alive),),
        parts={part: ((c,), (s,)) for part, (c, s) in zip(PARTS, alive, strict=True) if c or s},
        where=where,
    )


class Where:
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


def last_update(timeline: Timeline) -> int:
    """The event with which the last optimizer step's update begins."""
    return max(
        index
        for index, event in enumerate(timeline.events)
        if event.kind == MARK and timeline.marks[event.stack].phase == "optimizer"
    )


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


def through_peaks(
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
    where = Where(timeline)
    for event in _marks_before(timeline, index):
        where.enter(timeline.marks[event.stack])
    return where.of(timeline.events[index])


def _marks_before(timeline: Timeline, index: int) -> Iterator[Event]:
    return (event for event in timeline.events[: index + 1] if event.kind == MARK)
