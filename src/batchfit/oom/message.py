"""What an out-of-memory message says, in bytes, and what follows from its numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from batchfit.gpus import Gpu, gpus_reporting, load_gpus

#: Who refused: PyTorch's allocator, the driver or a library below it, another framework, or the host.
Origin = Literal["pytorch", "cuda", "cublas", "cudnn", "nccl", "bitsandbytes", "jax", "tensorflow", "host"]

#: PyTorch's MPS allocator lets a process take this multiple of Metal's recommended working set
#: (PYTORCH_MPS_HIGH_WATERMARK_RATIO, its default in MPSAllocator.h).
MPS_HIGH_WATERMARK_RATIO = 1.7

#: Half of the last printed digit of a size in GiB, which is as exact as the larger numbers are.
ROUNDING = int(0.005 * 2**30) + 1


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """One message. Sizes are in bytes; `None` where the message does not say.

    origin, backend     who refused, and on what: "CUDA", "HIP", "XPU", "NPU", "MPS" or "CPU"
    device, rank        the GPU's index as the process sees it; the rank that the log line names
    requested           the allocation that failed; `overflow` when its size is not even a possible one
    capacity, free      of the whole GPU, as the driver says
    limit               the most this process may take, where less than the GPU: a memory fraction, MPS's maximum
    allocated           alive tensors
    unallocated         held by PyTorch's allocator and not used by any tensor; allocated + unallocated = reserved
    private_pools       the part of `allocated` that CUDA graphs hold
    process             everything this process holds: reserved, the driver's context, libraries
    others              (pid, bytes) of other processes on the GPU
    outside             MPS: what the process holds outside PyTorch's allocator
    activity, tensor    what the traceback shows: "forward", "backward", "optimizer step", ...; what was being made
    where               the innermost line of the person's own code: "train.py:67"
    micro_batch, accumulation_steps   as the log states them
    setting             the environment variable that the message recommends
    """

    origin: Origin
    backend: str
    text: str
    device: int | None = None
    rank: int | None = None
    requested: int | None = None
    overflow: bool = False
    capacity: int | None = None
    free: int | None = None
    limit: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    private_pools: int | None = None
    process: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    outside: int | None = None
    activity: str | None = None
    tensor: str | None = None
    where: str | None = None
    micro_batch: int | None = None
    accumulation_steps: int | None = None
    setting: str | None = None

    @property
    def reserved(self) -> int | None:
        """What PyTorch's allocator holds, used or not."""
        if self.allocated is None or self.unallocated is None:
            return None
        return self.allocated + self.unallocated

    @property
    def context(self) -> int | None:
        """What this process holds beside PyTorch's allocator: the driver's context, kernels, NCCL's buffers."""
        if self.process is None or self.reserved is None:
            return None
        return max(0, self.process - self.reserved)

    @property
    def elsewhere(self) -> int | None:
        """What other processes hold: as listed, else what is left of the GPU when free memory and this process
        are taken off. Where the message does not state this process's total, its own context is in it."""
        if self.others:
            return sum(size for _, size in self.others)
        mine = self.process if self.process is not None else self.reserved
        if self.capacity is None or self.free is None or mine is None:
            return None
        rest = self.capacity - self.free - mine
        return rest if rest > 2 * ROUNDING else 0

    @property
    def short_by(self) -> int | None:
        """How much more than was free the request needed; 0 or less when the driver had enough."""
        if self.requested is None:
            return None
        if self.limit is not None and self.used_of_limit is not None:
            return self.requested - (self.limit - self.used_of_limit)
        return None if self.free is None else self.requested - self.free

    @property
    def used_of_limit(self) -> int | None:
        """What counts against `limit`."""
        if self.outside is not None and self.allocated is not None:
            return self.allocated + self.outside
        return self.reserved

    @property
    def spilled(self) -> bool:
        """More is allocated than the GPU has: Windows lets CUDA overflow into the computer's own memory."""
        return (
            self.allocated is not None
            and self.capacity is not None
            and self.allocated > self.capacity + ROUNDING
        )

    @property
    def fragmented(self) -> bool:
        """PyTorch held enough unused memory for the request, in pieces that were too small for it, and more than
        rounding always leaves unused."""
        if self.requested is None or self.unallocated is None or self.reserved is None or self.limited:
            return False
        return self.unallocated >= max(self.requested, self.reserved // 20)

    @property
    def refused_with_room(self) -> bool:
        """The driver reports clearly more free memory than was asked for: over 1 % of the GPU more."""
        if self.free is None or self.requested is None or self.capacity is None or self.limited:
            return False
        return self.free - self.requested > self.capacity // 100

    @property
    def limited(self) -> bool:
        """A limit below the GPU's capacity refused, not the GPU."""
        if self.limit is None:
            return False
        return self.capacity is None or self.limit < self.capacity

    @property
    def impossible(self) -> bool:
        """The request alone is larger than the whole GPU."""
        room = self.limit if self.limited else self.capacity
        return self.overflow or (self.requested is not None and room is not None and self.requested > room)

    def gpus(self) -> tuple[Gpu, ...]:
        """The cards of the catalogue that report this capacity; those the log names, where it names any."""
        if self.backend == "MPS":
            if self.limit is None:
                return ()
            limit = self.limit
            return tuple(
                gpu
                for gpu in load_gpus()
                if gpu.vendor == "Apple"
                and abs(gpu.memory_bytes * MPS_HIGH_WATERMARK_RATIO - limit) <= 2 * ROUNDING
            )
        makers = {"CUDA": "NVIDIA", "HIP": "AMD", "XPU": "Intel"}
        if self.capacity is None or self.backend not in makers:
            return ()
        found = tuple(gpu for gpu in gpus_reporting(self.capacity) if gpu.vendor == makers[self.backend])
        text = self.text.lower()
        named = tuple(gpu for gpu in found if gpu.id.replace("-", " ") in text or gpu.name.lower() in text)
        return named or found

    def as_json(self) -> dict[str, object]:
        """Everything the message says, with sizes as integers in fields that end in `_bytes`."""
        sizes = {
            "requested",
            "capacity",
            "free",
            "limit",
            "allocated",
            "unallocated",
            "private_pools",
            "process",
        }
        sizes |= {"outside"}
        said: dict[str, object] = {
            f"{f.name}_bytes" if f.name in sizes else f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("others", "text")
        }
        said["others"] = [{"pid": pid, "bytes": size} for pid, size in self.others]
        derived = ("reserved", "context", "elsewhere", "short_by")
        return said | {f"{name}_bytes": getattr(self, name) for name in derived}
