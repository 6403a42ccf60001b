"""The caching allocator written the slow and obvious way: lists of blocks, every search a scan over all.

It follows the structure of PyTorch's source (blocks in the order of their segment) rather than of the model
under test, so that the two can only agree where both have the rules right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from batchfit.trace.allocator_config import AllocatorConfig

KIB, MIB = 2**10, 2**20


@dataclass(eq=False)
class Block:
    start: int
    size: int
    small: bool
    segment: list[Block]
    name: int | None = None
    mapped: bool = True
    expandable: bool = False


@dataclass
class ReferenceAllocator:
    config: AllocatorConfig
    capacity: int | None = None
    segments: list[list[Block]] = field(default_factory=list)
    address: int = 2 * MIB

    def blocks(self) -> list[Block]:
        return [block for segment in self.segments for block in segment]

    @property
    def reserved(self) -> int:
        return sum(b.size for b in self.blocks() if b.mapped)

    @property
    def allocated(self) -> int:
        return sum(b.size for b in self.blocks() if b.name is not None)

    def malloc(self, name: int, nbytes: int) -> int | None:
        """The address, or None when out of memory."""
        size = self.config.round_size(nbytes)
        small = size <= MIB
        block = self.find(size, small) or self.grow(size, small)
        if block is None and self.release_oversize(size, small):
            block = self.grow(size, small)
        if block is None:
            self.release()
            block = self.grow(size, small)
        if block is None:
            return None
        rest = block.size - size
        fine = small or self.config.expandable_segments
        if (fine and rest >= 512) or (not fine and rest > MIB and not self.oversize(size)):
            after = Block(block.start + size, rest, small, block.segment, None, True, block.expandable)
            block.segment.insert(block.segment.index(block) + 1, after)
            block.size = size
        block.name = name
        return block.start

    def oversize(self, size: int) -> bool:
        return self.config.max_split_size is not None and size >= self.config.max_split_size

    def find(self, size: int, small: bool) -> Block | None:
        candidates = sorted(
            (b for b in self.blocks() if b.mapped and b.name is None and b.small == small and b.size >= size),
            key=lambda b: (b.size, b.start),
        )
        if not candidates:
            return None
        if self.config.expandable_segments:
            while len(candidates) > 1 and self.reach(candidates[1]) < self.reach(candidates[0]):
                candidates.pop(0)
        best = candidates[0]
        if self.oversize(best.size) and (
            not self.oversize(size) or best.size >= size + self.config.max_non_split_rounding
        ):
            return None
        return best

    def reach(self, block: Block) -> int:
        index = block.segment.index(block) + 1
        after = block.segment[index] if index < len(block.segment) else None
        return block.size + (after.size if after and not after.mapped else 0)

    def grow(self, size: int, small: bool) -> Block | None:
        if self.config.expandable_segments:
            return self.expand(size, small)
        if small:
            segment_size = 2 * MIB
        elif size < 10 * MIB:
            segment_size = self.config.large_segment_size
        else:
            segment_size = -(-size // (2 * MIB)) * 2 * MIB
        if self.capacity is not None and self.reserved + segment_size > self.capacity:
            return None
        segment: list[Block] = []
        segment.append(Block(self.address, segment_size, small, segment))
        self.segments.append(segment)
        self.address += segment_size + 2 * MIB
        return segment[0]

    def expand(self, size: int, small: bool) -> Block | None:
        page = 2 * MIB if small else self.config.large_segment_size
        start = self.room(size, small) or self.reserve_addresses(size, small)
        while True:
            block = next(b for b in self.blocks() if b.start == start)
            if block.mapped and block.size >= size:
                return block
            segment = block.segment
            target = segment[segment.index(block) + 1] if block.mapped else block
            missing = size - (block.size if block.mapped else 0)
            pages = -(-min(missing, target.size) // page) * page
            if self.capacity is not None and self.reserved + pages > self.capacity:
                return None
            if pages < target.size:
                rest = Block(target.start + pages, target.size - pages, small, segment, None, False, True)
                segment.insert(segment.index(target) + 1, rest)
                target.size = pages
            target.mapped = True
            self.merge(segment)

    def room(self, size: int, small: bool) -> int | None:
        """The lowest run of free and unmapped blocks, from an unmapped one or the free one before it."""
        for unmapped in sorted((b for b in self.blocks() if not b.mapped), key=lambda b: b.start):
            if unmapped.small != small:
                continue
            segment = unmapped.segment
            index = segment.index(unmapped)
            if index and segment[index - 1].name is None:
                index -= 1
            run: list[Block] = []
            while index < len(segment) and segment[index].name is None and sum(b.size for b in run) < size:
                run.append(segment[index])
                index += 1
            if sum(b.size for b in run) >= size:
                return run[0].start
        return None

    def reserve_addresses(self, size: int, small: bool) -> int:
        page = 2 * MIB if small else self.config.large_segment_size
        span = -(-max((self.capacity or 1 << 44) // 8 * 9, size) // page) * page
        start = -(-self.address // page) * page
        segment: list[Block] = []
        segment.append(Block(start, span, small, segment, None, False, True))
        self.segments.append(segment)
        self.address = start + span + 2 * MIB
        return start

    def free(self, name: int) -> None:
        block = next(b for b in self.blocks() if b.name == name)
        block.name = None
        self.merge(block.segment)

    def merge(self, segment: list[Block]) -> None:
        index = 0
        while index + 1 < len(segment):
            left, right = segment[index], segment[index + 1]
            if left.name is None and right.name is None and left.mapped == right.mapped:
                left.size += right.size
                segment.remove(right)
            else:
                index += 1

    def release_oversize(self, size: int, small: bool) -> bool:
        if self.config.max_split_size is None:
            return False
        wanted = max(size, self.config.max_split_size)
        free = sorted(
            (
                s[0]
                for s in self.segments
                if len(s) == 1 and s[0].name is None and s[0].small == small and not s[0].expandable
            ),
            key=lambda b: (b.size, b.start),
        )
        for block in free:
            if block.size >= wanted:
                self.segments.remove(block.segment)
                return True
        released = 0
        while free and released < wanted and self.oversize(free[-1].size):
            block = free.pop()
            self.segments.remove(block.segment)
            released += block.size
        return released >= wanted

    def release(self) -> None:
        for segment in list(self.segments):
            if not segment[0].expandable:
                if len(segment) == 1 and segment[0].name is None:
                    self.segments.remove(segment)
                continue
            for block in list(segment):
                if block.mapped and block.name is None:
                    self.unmap(block)
            self.merge(segment)

    def unmap(self, block: Block) -> None:
        page = 2 * MIB if block.small else self.config.large_segment_size
        first = -(-block.start // page) * page
        last = (block.start + block.size) // page * page
        if first >= last:
            return
        index = block.segment.index(block)
        pieces = [(block.start, first, True), (first, last, False), (last, block.start + block.size, True)]
        block.segment[index : index + 1] = [
            Block(a, b - a, block.small, block.segment, None, mapped, True)
            for a, b, mapped in pieces
            if b > a
        ]
