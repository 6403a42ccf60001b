"""A model of PyTorch's CUDA caching allocator: what a timeline of tensors reserves on the card.

The rules are those of c10/cuda/CUDACachingAllocator.cpp (read at PyTorch 2.5 to 2.13, which agree on all that
is used here):

- A request is rounded up to 512 bytes (or to a division of a power of two, if set so).
- Up to 1 MiB it is served by the *small* pool, above by the *large* one. Each pool keeps its free blocks by
  size, then address, and gives the first that is large enough.
- A block is split when what is left over is useful: at least 512 bytes in the small pool and in expandable
  segments, more than 1 MiB in the large pool. Otherwise the request keeps the whole block, and
  `torch.cuda.memory_allocated` counts all of it.
- Where no free block serves, the device is asked for a segment: 2 MiB for the small pool; 20 MiB for requests
  below 10 MiB, else the request rounded up to 2 MiB, for the large pool.
- A freed block merges with free neighbours of its segment. Segments go back to the device only when it has
  no more memory to give, and only those that are free as a whole.

What the device itself does is simplified: `cudaMalloc` hands out addresses in ascending order and never fails
before the capacity is reached. Streams have pools of their own; a block that `record_stream` keeps for
another stream's sake is freed, in the timeline given here, when that stream is done with it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from batchfit.trace.allocator_config import SMALL_REQUEST, SMALL_SEGMENT, AllocatorConfig
from batchfit.trace.timeline import ALLOC, BLOCK_BYTES, FREE, Event

# A free block is one integer, its size above its address, so that sorted lists of them are ordered as the
# allocator's are (by size, then address) and compare at the speed of integers.
_ADDRESS_BITS = 60
_ADDRESS = (1 << _ADDRESS_BITS) - 1
# Segments never touch, so that neighbouring blocks are always of one segment.
_GAP = SMALL_SEGMENT
# A size no request reaches.
_NEVER = 1 << _ADDRESS_BITS


class DeviceFullError(Exception):
    """The device has no room for a segment, and no cached block that could make it."""


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Where a replay ran out of the capacity it was given."""

    #: Index of the event that could not be served.
    event: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What a timeline takes on the device. Bytes; `..._at` are indices into the timeline's events.

    `allocated` counts whole blocks, as `torch.cuda.max_memory_allocated` does, so it is a little more than
    the tensors' own bytes (`requested`); `reserved` is `torch.cuda.max_memory_reserved`.
    """

    requested_peak_bytes: int
    allocated_peak_bytes: int
    allocated_peak_at: int
    reserved_peak_bytes: int
    reserved_peak_at: int
    #: Allocated when reserved was at its peak.
    allocated_at_reserved_peak_bytes: int
    #: How often a full device made the allocator give back cached segments.
    retries: int
    out_of_memory: OutOfMemory | None

    @property
    def fragmentation(self) -> float:
        """The share of the reserved peak that no tensor was using at that moment."""
        if not self.reserved_peak_bytes:
            return 0.0
        return 1 - self.allocated_at_reserved_peak_bytes / self.reserved_peak_bytes


@dataclass(slots=True)
class Pool:
    """The free blocks of one kind (small or large) on one stream, and the segments they are cut from.

    Blocks in use are not known here: a neighbour is found by where it ends or starts.
    """

    small: bool
    #: A block is split if at least this is left over...
    least_remainder: int
    #: ...and the request is smaller than this.
    split_below: int
    #: What an expandable segment grows by.
    page: int
    #: (size, address) of each free block in one integer, sorted.
    free: list[int] = field(default_factory=list)
    #: Size of the free block that starts here.
    size_at: dict[int, int] = field(default_factory=dict)
    #: Start of the free block that ends here.
    start_of: dict[int, int] = field(default_factory=dict)
    #: Size of each segment from `cudaMalloc`, by address.
    segments: dict[int, int] = field(default_factory=dict)
    #: Reserved address ranges of expandable segments that are not mapped: start -> end.
    unmapped: dict[int, int] = field(default_factory=dict)
    #: For garbage collection: how often the pool was searched, and that count when each block was freed.
    searches: int = 0
    freed_at: dict[int, int] | None = None

    def take(self, start: int, size: int) -> None:
        """Takes the free block at `start` out of the lists."""
        del self.free[bisect_left(self.free, size << _ADDRESS_BITS | start)]
        del self.size_at[start]
        del self.start_of[start + size]

    def put(self, start: int, size: int) -> None:
        """Adds a free block, without looking at its neighbours."""
        insort(self.free, size << _ADDRESS_BITS | start)
        self.size_at[start] = size
        self.start_of[start + size] = start
        if self.freed_at is not None:
            self.freed_at[start] = self.searches

    def give_back(self, start: int, size: int) -> tuple[int, int]:
        """Frees a block, merged with the free blocks on either side; returns the merged block."""
        end = start + size
        before = self.start_of.get(start)
        after = self.size_at.get(end)
        if before is not None:
            self.take(before, start - before)
            start = before
        if after is not None:
            self.take(end, after)
            end += after
        self.put(start, end - start)
        return start, end - start

    def whole_segments(self) -> list[tuple[int, int]]:
        """(start, size) of the free blocks that are a segment as a whole, smallest first."""
        return [
            (start, size)
            for start, size in ((key & _ADDRESS, key >> _ADDRESS_BITS) for key in self.free)
            if self.segments.get(start) == size
        ]


class CachingAllocator:
    """The allocator of one device. The caller names allocations, with any integer that is not in use."""

    def __init__(self, config: AllocatorConfig | None = None, capacity_bytes: int | None = None) -> None:
        """`capacity_bytes`: what the device has for this process's tensors; None: no end."""
        self.config = config or AllocatorConfig()
        self.capacity = capacity_bytes
        #: What `per_process_memory_fraction` leaves of it. Garbage collection works towards a share of this,
        #: and, as in PyTorch, only where a fraction is set.
        self.allowed: int | None = None
        if capacity_bytes is not None and self.config.per_process_memory_fraction < 1:
            self.allowed = int(capacity_bytes * self.config.per_process_memory_fraction)
        #: Bytes asked for, in blocks handed out, and held from the device.
        self.requested = 0
        self.allocated = 0
        self.reserved = 0
        self.reserved_peak = 0
        self.retries = 0
        #: What happened to blocks and segments, (action, address, bytes), if somebody wants to know.
        self.log: list[tuple[str, int, int]] | None = None
        #: name -> (pool, address, block size, bytes asked for) of what is in use.
        self.live: dict[int, tuple[Pool, int, int, int]] = {}
        self._pools: dict[int, tuple[Pool, Pool]] = {}
        self._next_address = _GAP
        self._collects_garbage = self.allowed is not None and self.config.garbage_collection_threshold > 0
        self._rounds_to_power2 = self.config.rounds_to_power2
        self._max_split = self.config.max_split_size or _NEVER

    @property
    def limit(self) -> int | None:
        """The most that may be reserved; None: no end."""
        return self.capacity if self.allowed is None else self.allowed

    def pools(self, stream: int = 0) -> tuple[Pool, Pool]:
        """The small and the large pool of a stream."""
        if stream not in self._pools:
            small = Pool(True, BLOCK_BYTES, _NEVER, SMALL_SEGMENT)
            large = Pool(False, BLOCK_BYTES, _NEVER, self.config.large_segment_size)
            if not self.config.expandable_segments:
                # "More than 1 MiB", of sizes that are multiples of 512 bytes.
                large.least_remainder = SMALL_REQUEST + BLOCK_BYTES
                large.split_below = self._max_split
            if self._collects_garbage:
                small.freed_at, large.freed_at = {}, {}
            self._pools[stream] = small, large
        return self._pools[stream]

    def malloc(self, name: int, nbytes: int, stream: int = 0) -> int:
        """Allocates; returns the address. Raises DeviceFullError. Nothing is allocated for 0 bytes."""
        if nbytes <= 0:
            return 0
        size = (
            self.config.round_size(nbytes)
            if self._rounds_to_power2
            else (nbytes + BLOCK_BYTES - 1) & -BLOCK_BYTES
        )
        pools = self._pools.get(stream) or self.pools(stream)
        pool = pools[size > SMALL_REQUEST]
        start, found = self._cached_block(pool, size) or self._new_block(pool, size)
        if found - size >= pool.least_remainder and size < pool.split_below:
            pool.put(start + size, found - size)
            found = size
        self.live[name] = pool, start, found, nbytes
        self.requested += nbytes
        self.allocated += found
        if self.log is not None:
            self.log.append(("alloc", start, nbytes))
        return start

    def free(self, name: int) -> None:
        """Frees what `malloc` gave under this name."""
        pool, start, size, nbytes = self.live.pop(name)
        self.requested -= nbytes
        self.allocated -= size
        pool.give_back(start, size)
        if self.log is not None:
            self.log.append(("free", start, nbytes))

    def release_cached(self) -> None:
        """Gives every segment (or page of an expandable one) that is free as a whole back to the device."""
        for pools in self._pools.values():
            for pool in pools:
                for start, size in pool.whole_segments():
                    self._release(pool, start, size)
                self._unmap(pool)

    # -- finding a block

    def _cached_block(self, pool: Pool, size: int) -> tuple[int, int] | None:
        """Takes the best fitting free block out of the pool: its start and size."""
        free = pool.free
        if self._collects_garbage:
            pool.searches += 1
        index = bisect_left(free, size << _ADDRESS_BITS)
        if index == len(free):
            return None
        if pool.unmapped:
            index = self._skip_growing(pool, index)
        key = free[index]
        start, found = key & _ADDRESS, key >> _ADDRESS_BITS
        if found >= self._max_split and (
            size < self._max_split or found >= size + self.config.max_non_split_rounding
        ):
            return None
        del free[index]
        del pool.size_at[start]
        del pool.start_of[start + found]
        return start, found

    def _skip_growing(self, pool: Pool, index: int) -> int:
        """The best fit in an expandable segment, where a block counts with the unmapped range behind it."""

        def can_grow_to(key: int) -> int:
            start, size = key & _ADDRESS, key >> _ADDRESS_BITS
            end = start + size
            return size + pool.unmapped.get(end, end) - end

        free = pool.free
        while index + 1 < len(free) and can_grow_to(free[index + 1]) < can_grow_to(free[index]):
            index += 1
        return index

    def _new_block(self, pool: Pool, size: int) -> tuple[int, int]:
        """A block from the device, after making room for it if need be."""
        if self._collects_garbage:
            self._collect_garbage()
        block = self._ask_device(pool, size)
        if block is None and self._release_oversize(pool, size):
            block = self._ask_device(pool, size)
        if block is None:
            self.retries += 1
            self.release_cached()
            block = self._ask_device(pool, size)
        if block is None:
            raise DeviceFullError
        return block

    def _ask_device(self, pool: Pool, size: int) -> tuple[int, int] | None:
        segment = self.config.segment_size(size)
        if self.allowed is not None and self.reserved + segment > self.allowed:
            return None
        if self.config.expandable_segments:
            return self._expand(pool, size)
        if not self._reserve(segment):
            return None
        start = self._next_address
        self._next_address += segment + _GAP
        pool.segments[start] = segment
        if self.log is not None:
            self.log.append(("segment_alloc", start, segment))
        return start, segment

    def _reserve(self, nbytes: int) -> bool:
        if self.capacity is not None and self.reserved + nbytes > self.capacity:
            return False
        self.reserved += nbytes
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return True

    # -- giving memory back to the device

    def _release(self, pool: Pool, start: int, size: int) -> None:
        pool.take(start, size)
        del pool.segments[start]
        self.reserved -= size
        if self.log is not None:
            self.log.append(("segment_free", start, size))

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Frees cached blocks too large to split, as few as make room for `size`; says whether they do."""
        if self.config.max_split_size is None:
            return False
        wanted = max(size, self._max_split)
        oversize = [(start, found) for start, found in pool.whole_segments() if found >= self._max_split]
        enough = next((block for block in oversize if block[1] >= wanted), None)
        if enough:
            self._release(pool, *enough)
            return True
        released = 0
        while oversize and released < wanted:
            start, found = oversize.pop()
            self._release(pool, start, found)
            released += found
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Frees large cached segments that have not been reused for longest, down to the threshold."""
        assert self.allowed is not None
        excess = self.reserved - int(self.config.garbage_collection_threshold * self.allowed)
        large = [pools[1] for pools in self._pools.values()]
        while excess > 0:
            ages = {
                (index, start, size): pool.searches - (pool.freed_at or {})[start]
                for index, pool in enumerate(large)
                for start, size in pool.whole_segments()
            }
            if not ages:
                return
            # The average is taken once a round, as PyTorch does; all at or above it go.
            average = sum(ages.values()) / len(ages)
            for (index, start, size), age in ages.items():
                if age >= average:
                    self._release(large[index], start, size)
                    excess -= size

    # -- expandable segments

    def _expand(self, pool: Pool, size: int) -> tuple[int, int] | None:
        """Maps pages at the lowest address where free and unmapped memory together hold `size`."""
        page = pool.page
        start = self._room_to_expand(pool, size)
        while True:
            mapped = pool.size_at.get(start, 0)
            if mapped >= size:
                pool.take(start, mapped)
                return start, mapped
            begin = start + mapped
            end = pool.unmapped[begin]
            pages = -(-min(size - mapped, end - begin) // page) * page
            if not self._reserve(pages):
                return None
            del pool.unmapped[begin]
            if begin + pages < end:
                pool.unmapped[begin + pages] = end
            if self.log is not None:
                self.log.append(("segment_map", begin, pages))
            start, _ = pool.give_back(begin, pages)

    def _room_to_expand(self, pool: Pool, size: int) -> int:
        for begin in sorted(pool.unmapped):
            start = end = pool.start_of.get(begin, begin)
            while end - start < size and (end in pool.unmapped or end in pool.size_at):
                end = pool.unmapped[end] if end in pool.unmapped else end + pool.size_at[end]
            if end - start >= size:
                return start
        # PyTorch reserves 9/8 of the device's memory in addresses; without a capacity, more than any has.
        span = max((self.capacity or 1 << 44) // 8 * 9, size)
        begin = _up(self._next_address, pool.page)
        end = begin + _up(span, pool.page)
        self._next_address = end + _GAP
        pool.unmapped[begin] = end
        return begin

    def _unmap(self, pool: Pool) -> None:
        """Takes the whole free pages out of expandable segments."""
        if not self.config.expandable_segments:
            return
        for start, size in sorted(pool.size_at.items()):
            first, last = _up(start, pool.page), (start + size) // pool.page * pool.page
            if first >= last:
                continue
            pool.take(start, size)
            if first > start:
                pool.put(start, first - start)
            if start + size > last:
                pool.put(last, start + size - last)
            begin = next((b for b, e in pool.unmapped.items() if e == first), first)
            pool.unmapped[begin] = pool.unmapped.pop(last, last)
            self.reserved -= last - first
            if self.log is not None:
                self.log.append(("segment_unmap", first, last - first))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def replay(
    events: Iterable[Event],
    config: AllocatorConfig | None = None,
    *,
    capacity_bytes: int | None = None,
    streams: Mapping[int, int] | None = None,
) -> Replay:
    """Runs a timeline through the allocator and says what it took on the device.

    `capacity_bytes` is what the device has for this process's tensors; where it does not suffice, cached
    segments are given back as PyTorch does, and if that does not help either, the replay ends there and
    `out_of_memory` tells it. `streams` maps a storage to the stream it is allocated on, where that is not
    the default one.
    """
    allocator = CachingAllocator(config, capacity_bytes)
    malloc, free, live = allocator.malloc, allocator.free, allocator.live
    stream_of = (streams or {}).get
    requested_peak = allocated_peak = reserved_peak = allocated_then = 0
    allocated_at = reserved_at = -1
    out_of_memory = None
    for index, (kind, storage, nbytes, _) in enumerate(events):
        if kind == FREE:
            if storage in live:
                free(storage)
            continue
        if kind != ALLOC:
            continue
        try:
            malloc(storage, nbytes, stream_of(storage, 0))
        except DeviceFullError:
            assert allocator.limit is not None
            out_of_memory = OutOfMemory(
                index, nbytes, allocator.allocated, allocator.reserved, allocator.limit
            )
            break
        if allocator.requested > requested_peak:
            requested_peak = allocator.requested
        if allocator.allocated > allocated_peak:
            allocated_peak, allocated_at = allocator.allocated, index
        if allocator.reserved_peak > reserved_peak:
            reserved_peak, reserved_at = allocator.reserved_peak, index
            allocated_then = allocator.allocated
    return Replay(
        requested_peak_bytes=requested_peak,
        allocated_peak_bytes=allocated_peak,
        allocated_peak_at=allocated_at,
        reserved_peak_bytes=reserved_peak,
        reserved_peak_at=reserved_at,
        allocated_at_reserved_peak_bytes=allocated_then,
        retries=allocator.retries,
        out_of_memory=out_of_memory,
    )
