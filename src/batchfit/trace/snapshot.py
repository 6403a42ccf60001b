"""A timeline as a memory snapshot: the file that PyTorch's memory viewer (pytorch.org/memory_viz) opens.

The format is that of `torch.cuda.memory._dump_snapshot`: a pickle of plain dictionaries, described in
torch/cuda/memory.py (`_snapshot`) and written by torch/csrc/cuda/memory_snapshot.cpp. The viewer reads
pickles of protocol 2 to 4 with its own small interpreter, so nothing but dictionaries, lists, text, numbers
and truth values may be in there.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

from batchfit.trace.allocator import CachingAllocator, DeviceFullError, Pool
from batchfit.trace.allocator_config import AllocatorConfig
from batchfit.trace.timeline import ALLOC, FREE, MARK, Frame, Timeline

#: The newest the viewer reads.
PICKLE_PROTOCOL = 4

# What the viewer calls a block whose category it is not told. It must be among the categories it sees: where
# some events have one and none has this, several versions of the viewer stop with an error.
_NO_CATEGORY = "unknown"


def write_snapshot(
    path: str | Path,
    timeline: Timeline,
    config: AllocatorConfig | None = None,
    *,
    capacity_bytes: int | None = None,
) -> None:
    """Writes the snapshot of a timeline to `path`, whole or not at all. Raises OSError where it cannot."""
    path = Path(path)
    data = snapshot(timeline, config, capacity_bytes=capacity_bytes)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            pickle.dump(data, file, protocol=PICKLE_PROTOCOL)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def snapshot(
    timeline: Timeline, config: AllocatorConfig | None = None, *, capacity_bytes: int | None = None
) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` would return after the timeline has run on device 0.

    Every allocation carries the stack of the person's code, its category and its module; the marks of the
    timeline are annotations. There is no clock in a trace: the times are the events' numbers. Where the
    timeline does not fit `capacity_bytes`, the snapshot ends with the event "oom".
    """
    return _Recorder(timeline, CachingAllocator(config, capacity_bytes)).record()


class _Recorder:
    def __init__(self, timeline: Timeline, allocator: CachingAllocator) -> None:
        self.timeline = timeline
        self.allocator = allocator
        self.trace: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        # Each stack once: the pickle then holds it once too, and refers to it.
        self.frames = [_frames(stack) for stack in timeline.stacks]
        self.no_frames: list[dict[str, Any]] = []
        self.segment_frames: dict[int, list[dict[str, Any]]] = {}
        self.stack_of: dict[int, int] = {}

    def record(self) -> dict[str, Any]:
        log = self.allocator.log = []
        for index, (kind, storage, nbytes, stack) in enumerate(self.timeline.events):
            if kind == MARK:
                self._annotate(index, stack)
            elif kind == FREE:
                if storage in self.allocator.live:
                    self.allocator.free(storage)
                    self._note(log, index, storage)
            elif kind == ALLOC:
                self.stack_of[storage] = stack
                try:
                    self.allocator.malloc(storage, nbytes)
                except DeviceFullError:
                    self._note(log, index, storage)
                    self._out_of_memory(index, storage, nbytes)
                    break
                self._note(log, index, storage)
        return {
            "segments": self._segments(),
            "device_traces": [self.trace],
            "allocator_settings": _settings(self.allocator.config),
            "external_annotations": self.annotations,
        }

    def _frames_of(self, storage: int) -> list[dict[str, Any]]:
        stack = self.stack_of.get(storage, -1)
        return self.frames[stack] if 0 <= stack < len(self.frames) else self.no_frames

    def _note(self, log: list[tuple[str, int, int]], index: int, storage: int) -> None:
        """What the allocator did for one event, as the viewer's entries."""
        for action, address, nbytes in log:
            actions = ("free_requested", "free_completed") if action == "free" else (action,)
            if action in ("segment_alloc", "segment_map"):
                self.segment_frames[address] = self._frames_of(storage)
            for name in actions:
                self.trace.append(
                    {
                        "action": name,
                        "addr": address,
                        "size": nbytes,
                        "stream": 0,
                        "time_us": index,
                        "frames": self._frames_of(storage),
                        **self._meaning(action, storage),
                    }
                )
        log.clear()

    def _meaning(self, action: str, storage: int) -> dict[str, str]:
        if action.startswith("segment"):
            return {"category": _NO_CATEGORY}
        category = self.timeline.categories.get(storage, _NO_CATEGORY)
        module = self.timeline.modules.get(storage)
        return {"category": category, "user_metadata": f"{category} of {module}" if module else category}

    def _out_of_memory(self, index: int, storage: int, nbytes: int) -> None:
        limit = self.allocator.limit
        assert limit is not None
        self.trace.append(
            {
                "action": "oom",
                "device_free": limit - self.allocator.reserved,
                "size": nbytes,
                "stream": 0,
                "time_us": index,
                "frames": self._frames_of(storage),
            }
        )

    def _annotate(self, index: int, mark: int) -> None:
        phase, step, micro = self.timeline.marks[mark]
        name = f"step {step} {phase}" if micro < 0 else f"step {step} micro-batch {micro} {phase}"
        self.annotations.append({"name": name, "stage": "START", "device": 0, "time_us": index})

    def _segments(self) -> list[dict[str, Any]]:
        """The segments at the end, each with its blocks, in order of address.

        As PyTorch does, an expandable segment is told as one segment for each stretch without a gap.
        """
        result: list[dict[str, Any]] = []
        for pool in self.allocator.pools():
            stretch: list[dict[str, Any]] = []
            for block in self._blocks(pool):
                if stretch and stretch[-1]["address"] + stretch[-1]["size"] != block["address"]:
                    result.append(self._segment(pool, stretch))
                    stretch = []
                stretch.append(block)
            if stretch:
                result.append(self._segment(pool, stretch))
        return sorted(result, key=lambda segment: segment["address"])

    def _blocks(self, pool: Pool) -> list[dict[str, Any]]:
        blocks = [
            _block(address, size, nbytes, "active_allocated", self._frames_of(storage))
            for storage, (owner, address, size, nbytes) in self.allocator.live.items()
            if owner is pool
        ]
        blocks += [_block(start, size, 0, "inactive", self.no_frames) for start, size in pool.size_at.items()]
        return sorted(blocks, key=lambda block: block["address"])

    def _segment(self, pool: Pool, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        start = blocks[0]["address"]
        active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        return {
            "device": 0,
            "address": start,
            "total_size": sum(block["size"] for block in blocks),
            "allocated_size": active,
            "active_size": active,
            "requested_size": sum(block["requested_size"] for block in blocks),
            "stream": 0,
            "segment_type": "small" if pool.small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": self.allocator.config.expandable_segments,
            "frames": self.segment_frames.get(start, self.no_frames),
            "blocks": blocks,
        }


def _block(
    address: int, size: int, requested: int, state: str, frames: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _frames(stack: tuple[Frame, ...]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": function} for file, line, function in stack]


def _settings(config: AllocatorConfig) -> dict[str, Any]:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1 if config.max_split_size is None else config.max_split_size,
        "garbage_collection_threshold": config.garbage_collection_threshold,
        "expandable_segments": config.expandable_segments,
        "roundup_power2_divisions": {
            str(2**interval): divisions for interval, divisions in enumerate(config.roundup_power2_divisions)
        },
    }
