"""The timeline of a training step: every storage's birth and death in order, with who asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

ALLOC, FREE, MARK = 1, 0, 2

#: What a storage is for. All but "input" are parts of a profile; inputs are counted among the activations.
CATEGORIES = ("weights", "gradients", "optimizer", "activations", "buffers", "overhead", "input")

#: The caching allocator of PyTorch gives out multiples of this many bytes (kMinBlockSize in CUDACachingAllocator).
BLOCK_BYTES = 512


def rounded(nbytes: int) -> int:
    """`nbytes` as the caching allocator counts them: rounded up to whole blocks of 512 bytes."""
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES


class Event(NamedTuple):
    """A birth (ALLOC), a death (FREE) or a mark.

    `nbytes` are as requested, unrounded; a FREE repeats those of its ALLOC. `stack` is an index into
    `Timeline.stacks`, for a MARK into `Timeline.marks`.
    """

    kind: int
    storage: int
    nbytes: int
    stack: int


class Frame(NamedTuple):
    """One frame of Python: the file, the line in it, the function's name."""

    file: str
    line: int
    function: str


class Mark(NamedTuple):
    """Where the step is from here on.

    `phase` is one of "begin", "forward", "backward", "between" (after a person's own backward), "optimizer",
    "zero_grad", "end"; `step` counts optimizer
    steps and `micro` the micro-batches of a step, both from 0 (`micro` is -1 outside a micro-batch).
    """

    phase: str
    step: int
    micro: int


@dataclass(slots=True)
class Work:
    """What one micro-batch and one update of an optimizer step compute.

    FLOPs; kernels launched; bytes that kernels read and write, every operand and every result once. `products` are
    matrix products, convolutions and attention. `backward_flops` include what checkpointing computes again.
    """

    forward_flops: int = 0
    backward_flops: int = 0
    attention_flops: int = 0
    products_bytes: int = 0
    other_bytes: int = 0
    kernels: int = 0
    optimizer_bytes: int = 0
    optimizer_kernels: int = 0


@dataclass(slots=True)
class Timeline:
    """The events of a trace.

    Storage ids are never reused. `stacks` hold the frames of the person's code, innermost first; in backward
    they are those of the forward operation being differentiated. `modules` says in which module a storage was
    made (a path such as "model.layers.0.mlp"; absent outside any), `categories` what it is for. `attention` are the
    modules that attention ran in, `sums` the storages that are the sum of two tensors alike. `work` is what the last
    step computed.
    """

    events: list[Event] = field(default_factory=list)
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    attention: set[str] = field(default_factory=set)
    sums: set[int] = field(default_factory=set)
    work: Work = field(default_factory=Work)

    def live(self) -> Iterator[tuple[Event, int]]:
        """Each event with the bytes alive after it, as the caching allocator counts them (rounded to 512)."""
        alive = 0
        for event in self.events:
            if event.kind == ALLOC:
                alive += rounded(event.nbytes)
            elif event.kind == FREE:
                alive -= rounded(event.nbytes)
            yield event, alive

    def peak(self) -> int:
        """The most bytes alive at once (`torch.cuda.max_memory_allocated`, but for unsplit remainders)."""
        return max((alive for _, alive in self.live()), default=0)

    def alive_at(self, index: int) -> dict[int, int]:
        """The storages alive after event `index`, with their requested bytes."""
        alive: dict[int, int] = {}
        for event in self.events[: index + 1]:
            if event.kind == ALLOC:
                alive[event.storage] = event.nbytes
            elif event.kind == FREE:
                del alive[event.storage]
        return alive
