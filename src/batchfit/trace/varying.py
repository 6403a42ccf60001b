"""What the caching allocator reserves over steps whose samples differ in length.

A segment that was made for one length serves shorter samples, and none that are longer: each sample that is longer than
all before it asks the device for new segments, while the old ones stay cached. So what is reserved depends on the order
of the samples, and grows far beyond what a step at the longest length needs, until the device is full; then the cache
is given back. Nothing of this is seen where every sample has one length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from batchfit.errors import BadInput
from batchfit.trace.allocator import CachingAllocator
from batchfit.trace.allocator_config import AllocatorConfig
from batchfit.trace.fold import unfolded
from batchfit.trace.surface import Surface
from batchfit.trace.timeline import ALLOC, FREE, MARK, Event, Timeline

#: What an optimizer step does, by the mark that it begins with: (phase, step, micro-batch), as `batchfit.trace.step`
#: runs the two steps of a trace.
_FIRST_STEP = ("begin", 0, -1)
_FIRST, _LATER, _UPDATE = ("forward", 1, 0), ("forward", 1, 1), ("optimizer", 1, -1)


def telling(lengths: Iterable[int], first: int) -> Iterator[int]:
    """The lengths that decide what is reserved: the first ones, and of those after them each that is longer than all
    before it. What serves the longest so far serves the others, with few exceptions."""
    longest = 0
    for number, length in enumerate(lengths):
        if number < first or length > longest:
            yield length
        longest = max(longest, length)


class VaryingLengths:
    """A model's training step at any length of a range, for replays of samples in an order.

    `surface` is the whole model's step over a range of lengths, `config` how the allocator is set up if a replay does
    not say otherwise.
    """

    def __init__(self, surface: Surface, config: AllocatorConfig | None = None) -> None:
        self.config = config or AllocatorConfig()
        plan = unfolded(surface.timeline, surface.fold)
        self._surface = surface
        self._indices, self._storages = plan.indices, plan.storages
        self._kinds = [event.kind for event in surface.timeline.events]
        at = dict(_marks(surface.timeline, plan.indices))
        end = len(plan.indices)
        self._before = range(at[_FIRST_STEP])
        self._first_step = range(at[_FIRST_STEP], at["begin", 1, -1])
        self._first = range(at[_FIRST], at[_LATER])
        self._later = range(at[_LATER], at[_UPDATE])
        self._update = range(at[_UPDATE], end)

    def reserved(
        self,
        lengths: Iterable[int],
        micro_batch: int,
        accumulation_steps: int = 1,
        config: AllocatorConfig | None = None,
        *,
        capacity_bytes: int | None = None,
    ) -> Iterator[int]:
        """The bytes reserved after each micro-batch, the most so far; `lengths` are the tokens to which its samples are
        padded, in the order of training.

        `capacity_bytes` is what the device has for this process's tensors (None: no end). Raises BadInput for a length
        outside of the range that was traced, and DeviceFullError where the device has no room.
        """
        run = _Run(CachingAllocator(config or self.config, capacity_bytes))
        ends = range(len(self._surface.lengths.traced))
        traced = torch.tensor([self._surface.requested(micro_batch, number) for number in ends]).double()
        for number, length in enumerate(lengths):
            sizes = (self._weights(length) @ traced).clamp(min=0).round().long().tolist()
            if number == 0:
                self._happen(run, self._before, sizes)
                self._happen(run, self._first_step, sizes)
            micro = number % accumulation_steps
            self._happen(run, self._later if micro else self._first, sizes)
            if micro == accumulation_steps - 1:
                self._happen(run, self._update, sizes)
            yield run.allocator.reserved_peak

    def _weights(self, length: int) -> torch.Tensor:
        """How much each traced length counts for this one. Raises BadInput."""
        lengths = self._surface.lengths
        shortest, longest = lengths.traced[0], lengths.traced[-1]
        if not shortest <= length <= longest:
            raise BadInput(
                "seq_len",
                "must be in the range that was traced, {shortest} to {longest} tokens; you gave {given}",
                shortest=shortest,
                longest=longest,
                given=length,
            )
        return torch.tensor(lengths.weights(length)).double()

    def _happen(self, run: _Run, stretch: range, sizes: Sequence[int]) -> None:
        kinds, indices, storages = self._kinds, self._indices, self._storages
        for place in stretch:
            index = indices[place]
            kind = kinds[index]
            if kind == ALLOC:
                run.born(storages[place], sizes[index])
            elif kind == FREE:
                run.died(storages[place])


class _Run:
    """An allocator to which stretches of one timeline happen again and again. A storage that is born once more takes
    the place of its predecessor, as a variable that is assigned anew: the old one goes when the new one is there."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator
        self._names: dict[int, int] = {}
        self._next = 0

    def born(self, storage: int, nbytes: int) -> None:
        name = self._next
        self._next += 1
        self.allocator.malloc(name, nbytes)
        self.died(storage)
        if nbytes > 0:
            self._names[storage] = name

    def died(self, storage: int) -> None:
        name = self._names.pop(storage, None)
        if name is not None:
            self.allocator.free(name)


def _marks(timeline: Timeline, indices: Sequence[int]) -> Iterator[tuple[tuple[str, int, int], int]]:
    """Each mark with the place in the whole timeline where it stands."""
    events: Sequence[Event] = timeline.events
    for place, index in enumerate(indices):
        if events[index].kind == MARK:
            yield tuple(timeline.marks[events[index].stack]), place  # type: ignore[misc]
