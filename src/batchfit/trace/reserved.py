"""What the caching allocator reserves for a step of the whole model, from replays of its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from batchfit.profile import Line, ReservedPoint
from batchfit.trace.allocator import replay
from batchfit.trace.allocator_config import AllocatorConfig
from batchfit.trace.fold import unfolded
from batchfit.trace.surface import Surface
from batchfit.trace.timeline import ALLOC, MARK, Event, Mark

#: The micro-batches that are replayed.
MICRO_BATCHES = (1, 8)

#: Stretches of events repeat so many times at most in a replay, so that the deepest models cost no more than others.
#: Beyond that what is reserved for each byte allocated changes by less than 1 % (see the tests).
DEEPEST = 32


def replayed(
    surface: Surface,
    phases: Mapping[str, Sequence[Line]],
    micro_batches: Iterable[int] = (),
    seq_len: int | None = None,
    config: AllocatorConfig | None = None,
) -> tuple[ReservedPoint, ...]:
    """The points of a profile: at a few micro-batches and those asked for, with accumulation and without, and at the
    ends of a range of sequence lengths. `phases` are the profile's, which say what is allocated; `config` is how the
    allocator is set up."""
    plan = unfolded(surface.timeline, surface.fold.at_most(DEEPEST))
    alone = _without_second(surface)
    points = []
    ends = (0, len(surface.lengths.traced) - 1) if surface.lengths.is_range else (0,)
    for length in ends:
        tokens = surface.lengths.traced[length] if surface.lengths.is_range else seq_len
        for micro_batch in sorted({*MICRO_BATCHES, *micro_batches}):
            peaks = {
                phase: max((line.at(micro_batch, tokens) for line in lines), default=0)
                for phase, lines in phases.items()
            }
            events = plan.events(surface.requested(micro_batch, length))
            for accumulates in (False, True):
                happens = events if accumulates else _only(events, plan.indices, alone)
                found = replay(happens, config)
                allocated = max(
                    peak for phase, peak in peaks.items() if accumulates or phase != "later_micro"
                )
                reserved = round(allocated * found.reserved_peak_bytes / found.allocated_peak_bytes)
                points.append(ReservedPoint(micro_batch, 1 + accumulates, tokens, allocated, reserved))
    return tuple(points)


def _only(events: Sequence[Event], indices: Sequence[int], wanted: Sequence[bool]) -> Iterable[Event]:
    return (event for event, index in zip(events, indices, strict=True) if wanted[index])


def _without_second(surface: Surface) -> list[bool]:
    """Whether each traced event also happens without micro-batches that are not a step's first: all but those of
    storages born in one. What lived on into one ends where it did."""
    timeline = surface.timeline
    mark: Mark | None = None
    born: set[int] = set()
    happens = []
    for event in timeline.events:
        if event.kind == MARK:
            mark = timeline.marks[event.stack]
        elif event.kind == ALLOC and mark is not None and mark.micro > 0:
            born.add(event.storage)
        happens.append(event.kind == MARK or event.storage not in born)
    return happens
