"""Depth folds: a timeline of a few blocks, told as the timeline of all of them.

A block that repeats does the same again and again, so two traces say all: one of few copies and one of a copy more.
What the second has and the first has not is what each copy adds, wherever in the step it adds it: in forward, in
backward, in the optimizer's walk over the parameters. The first, with these stretches of events repeated as often as
there are blocks, is the timeline of the whole model. Where the second cannot be laid over the first in this way, with
each addition a repetition of what came right before it, the model is not folded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from batchfit.trace.phases import folded
from batchfit.trace.timeline import ALLOC, FREE, MARK, Event, Frame, Timeline

#: An event as it is compared: what it is (interned), and its bytes.
_Sign = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The events `start` to `stop` (exclusive) of a timeline happen `extra` more times, right after themselves."""

    start: int
    stop: int
    extra: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What one copy more adds to a timeline: stretches of events that happen so many times more, and more bytes to some
    events, such as the norms of all gradients, one number a parameter: `stretched` says which event of the deeper
    timeline each of them is."""

    repeats: tuple[Repeat, ...]
    stretched: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Fold:
    """What turns the timeline of few blocks into that of all: repeats in order, which do not overlap, and of which
    growths, so many times each, they are the sum."""

    repeats: tuple[Repeat, ...] = ()
    growths: tuple[tuple[Growth, int], ...] = ()

    def order(self, events: int) -> list[range]:
        """The events of the whole timeline as stretches of those of the short one, which has so many."""
        result: list[range] = []
        at = 0
        for repeat in self.repeats:
            result.append(range(at, repeat.stop))
            result.extend([range(repeat.start, repeat.stop)] * repeat.extra)
            at = repeat.stop
        result.append(range(at, events))
        return result

    def at_most(self, extra: int) -> Fold:
        """The same of a model that is less deep, if need be: no stretch happens more than `extra` times more, and
        of each growth there are fewer in proportion, so that what one stretch makes another still ends."""
        most = max((repeat.extra for repeat in self.repeats), default=0)
        if most <= extra:
            return self
        fewer = [(growth, times * extra // most) for growth, times in self.growths]
        return Fold(_summed(fewer), tuple(fewer))


def growth(shallow: Timeline, deep: Timeline) -> Growth | None:
    """What `deep`, of one copy more, has beyond `shallow`; None where it is not only repetitions."""
    signs = _Signs()
    return _grown(signs.of(shallow), signs.of(deep))


def fold(growths: Iterable[tuple[Growth, int]]) -> Fold | None:
    """The fold for so many copies more of each growth; None where they get into each other's way."""
    growths = tuple(growths)
    repeats = _summed(growths)
    if any(after.start < before.stop for before, after in pairwise(repeats)):
        return None
    return Fold(repeats, growths)


def _summed(growths: Iterable[tuple[Growth, int]]) -> tuple[Repeat, ...]:
    """The repeats of so many of each growth, in order."""
    extras: defaultdict[tuple[int, int], int] = defaultdict(int)
    for growth, times in growths:
        for repeat in growth.repeats:
            extras[repeat.start, repeat.stop] += repeat.extra * times
    return tuple(sorted((Repeat(*stretch, extra) for stretch, extra in extras.items()), key=lambda r: r.stop))


class _Signs:
    """Tells events apart by what they are, in numbers that hold across timelines."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._stacks: dict[tuple[Frame, ...], int] = {}

    def of(self, timeline: Timeline) -> list[_Sign]:
        """Every event's sign. A death is told apart like its birth."""
        stacks = [self._stacks.setdefault(stack, len(self._stacks)) for stack in timeline.stacks]
        born: dict[int, tuple[object, ...]] = {}
        signs: list[_Sign] = []
        for kind, storage, nbytes, stack in timeline.events:
            key: tuple[object, ...]
            if kind == MARK:
                key = (MARK, *timeline.marks[stack])
            elif kind == ALLOC:
                module = timeline.modules.get(storage, "")
                key = born[storage] = (
                    ALLOC,
                    timeline.categories[storage],
                    folded(module),
                    stacks[stack],
                )
            else:
                key = (FREE, *born[storage])
            signs.append((self._numbers.setdefault(key, len(self._numbers)), nbytes))
        return signs


@dataclass(slots=True)
class _State:
    """How far the two are laid over one another, and what was found so far."""

    shallow: int
    deep: int
    repeats: list[tuple[int, int]]
    stretched: dict[int, int]


def _grown(shallow: Sequence[_Sign], deep: Sequence[_Sign]) -> Growth | None:
    """Lays the two over one another; where there is a choice, the shortest addition is tried first."""
    budget = 20_000
    open_: list[_State] = [_State(0, 0, [], {})]
    while open_ and budget:
        budget -= 1
        state = open_.pop()
        i, j = state.shallow, state.deep
        while i < len(shallow) and j < len(deep) and shallow[i] == deep[j]:
            i, j = i + 1, j + 1
        if i == len(shallow) and j == len(deep):
            return Growth(tuple(_shortest(shallow, *stretch) for stretch in state.repeats), state.stretched)
        choices = list(_choices(shallow, deep, i, j, state))
        open_.extend(reversed(choices))
    return None


def _shortest(signs: Sequence[_Sign], start: int, stop: int) -> Repeat:
    """A stretch that consists of repetitions itself as those of a shorter one."""
    length = stop - start
    for part in range(1, length // 2 + 1):
        if length % part == 0 and signs[start : stop - part] == signs[start + part : stop]:
            return Repeat(stop - part, stop, length // part)
    return Repeat(start, stop, 1)


def _choices(
    shallow: Sequence[_Sign], deep: Sequence[_Sign], i: int, j: int, state: _State
) -> Iterator[_State]:
    """How to go on where the two differ: an addition of the events right before once more, or a larger event.

    First the additions after which the two are alike again, shortest first; last those after which an event differs
    in size.
    """
    if i == len(shallow) or j == len(deep):
        return
    missing = (len(deep) - j) - (len(shallow) - i)
    free = i - max((stop for _, stop in state.repeats), default=0)
    by_size: list[_State] = []
    for length in range(1, min(missing, free) + 1):
        if deep[j] != deep[j - length] or deep[j + length][0] != shallow[i][0]:
            continue
        if deep[j - length : j] == deep[j : j + length] == shallow[i - length : i]:
            found = _State(i, j + length, [*state.repeats, (i - length, i)], state.stretched)
            if deep[j + length] == shallow[i]:
                yield found
            else:
                by_size.append(found)
    if missing >= 0 and shallow[i][0] == deep[j][0] and shallow[i][1] < deep[j][1]:
        yield _State(i + 1, j + 1, state.repeats, {**state.stretched, i: j})
    yield from by_size


@dataclass(frozen=True, slots=True)
class Unfolded:
    """The events of the whole timeline: the number of the event of the short one that each repeats, and its storage.

    Every copy's storages have numbers of their own; a mark's is -1.
    """

    source: Timeline
    indices: list[int]
    storages: list[int]

    def events(self, sizes: Sequence[int]) -> list[Event]:
        """The events where those of the short timeline are of `sizes` bytes."""
        kinds = [(event.kind, event.stack) for event in self.source.events]
        return [
            Event(kinds[i][0], storage, sizes[i], kinds[i][1])
            for i, storage in zip(self.indices, self.storages, strict=True)
        ]

    def timeline(self, sizes: Sequence[int]) -> Timeline:
        """The whole timeline, with categories and modules of every copy's storages."""
        source = self.source
        made = Timeline(self.events(sizes), source.stacks, source.marks, work=source.work)
        for index, storage in zip(self.indices, self.storages, strict=True):
            event = source.events[index]
            if event.kind == ALLOC:
                made.categories[storage] = source.categories[event.storage]
                if module := source.modules.get(event.storage):
                    made.modules[storage] = module
        return made


def unfolded(timeline: Timeline, fold: Fold) -> Unfolded:
    """The whole model's timeline, with a storage of its own for everything that each copy makes.

    What a death ends is found by what it was: among storages that are alike, the deaths follow the order that they
    have in `timeline`, the last born first or the first born first.
    """
    kinds, last_first = _kinds(timeline)
    alive: defaultdict[int, deque[int]] = defaultdict(deque)
    indices: list[int] = []
    storages: list[int] = []
    number = 0
    for stretch in fold.order(len(timeline.events)):
        indices.extend(stretch)
        for index in stretch:
            kind = kinds[index]
            if kind > 0:
                alive[kind].append(number)
                storages.append(number)
                number += 1
            elif kind < 0:
                waiting = alive[-kind]
                storages.append(waiting.pop() if last_first[-kind] else waiting.popleft())
            else:
                storages.append(-1)
    return Unfolded(timeline, indices, storages)


def _kinds(timeline: Timeline) -> tuple[list[int], list[bool]]:
    """Every event's kind of storage, a number above 0, below for a death, and 0 for a mark; and of each kind whether
    the last born dies first."""
    numbers: dict[tuple[object, ...], int] = {}
    born: dict[int, int] = {}
    kinds: list[int] = []
    alive: defaultdict[int, list[int]] = defaultdict(list)
    last: defaultdict[int, int] = defaultdict(int)
    for kind, storage, nbytes, stack in timeline.events:
        if kind == ALLOC:
            module = folded(timeline.modules.get(storage, ""))
            key = nbytes, stack, timeline.categories[storage], module
            born[storage] = number = numbers.setdefault(key, len(numbers) + 1)
            alive[number].append(storage)
            kinds.append(number)
        elif kind == FREE:
            number = born[storage]
            waiting = alive[number]
            if len(waiting) > 1:
                last[number] += 1 if waiting[-1] == storage else -1
            waiting.remove(storage)
            kinds.append(-number)
        else:
            kinds.append(0)
    return kinds, [last[number] >= 0 for number in range(len(numbers) + 1)]
