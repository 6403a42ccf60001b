from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from batchfit.trace.allocator import replay
from batchfit.trace.allocator_config import AllocatorConfig
from batchfit.trace.snapshot import snapshot, write_snapshot
from batchfit.trace.timeline import ALLOC, FREE, MARK, Event, Frame, Mark, Timeline

MIB = 2**20

#: The opcodes that the viewer's own reader of pickles knows (torch/utils/viz/MemoryViz.js, `unpickle`).
VIEWER_READS = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT"),
    *("BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINUNICODE", "BINUNICODE"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINGET", "BINPUT", "LONG_BINGET", "LONG_BINPUT"),
}

CONFIGS = ["", "expandable_segments:True", "max_split_size_mb:32"]


@pytest.fixture
def timeline() -> Timeline:
    model = (Frame("model.py", 12, "forward"), Frame("train.py", 3, "step"))
    return Timeline(
        events=[
            Event(ALLOC, 0, 30 * MIB, 0),
            Event(MARK, 0, 0, 0),
            Event(ALLOC, 1, 3 * MIB + 5, 0),
            Event(ALLOC, 2, 700, 0),
            Event(FREE, 1, 3 * MIB + 5, 0),
            Event(MARK, 0, 0, 1),
            Event(ALLOC, 3, 2 * MIB, -1),
            Event(ALLOC, 4, 64 * MIB, 0),
            Event(FREE, 4, 64 * MIB, 0),
        ],
        stacks=[model],
        marks=[Mark("forward", 0, 1), Mark("optimizer", 0, -1)],
        categories={0: "weights", 1: "activations", 2: "activations", 4: "optimizer"},
        modules={1: "layers.0.mlp"},
    )


def actions(data: dict[str, Any]) -> list[str]:
    return [entry["action"] for entry in data["device_traces"][0]]


def test_the_trace_tells_the_timeline(timeline: Timeline) -> None:
    data = snapshot(timeline)
    assert actions(data) == [
        *("segment_alloc", "alloc"),
        *("segment_alloc", "alloc"),
        *("segment_alloc", "alloc"),
        *("free_requested", "free_completed"),
        "alloc",
        *("segment_alloc", "alloc"),
        *("free_requested", "free_completed"),
    ]
    second = data["device_traces"][0][3]
    assert second["size"] == 3 * MIB + 5
    assert second["category"] == "activations"
    assert second["user_metadata"] == "activations of layers.0.mlp"
    assert second["time_us"] == 2
    assert second["frames"][0] == {"filename": "model.py", "line": 12, "name": "forward"}
    # A stack of -1 is none, and a storage without a category is "unknown", a word the viewer needs to see.
    assert data["device_traces"][0][8]["frames"] == []
    assert data["device_traces"][0][8]["category"] == "unknown"
    assert [note["name"] for note in data["external_annotations"]] == [
        "step 0 micro-batch 1 forward",
        "step 0 optimizer",
    ]


@pytest.mark.parametrize("text", CONFIGS)
def test_the_segments_are_what_is_left_at_the_end(timeline: Timeline, text: str) -> None:
    config = AllocatorConfig.parse(text)
    data = snapshot(timeline, config)
    blocks = [block for segment in data["segments"] for block in segment["blocks"]]
    assert sum(b["requested_size"] for b in blocks) == 30 * MIB + 700 + 2 * MIB
    assert sum(s["requested_size"] for s in data["segments"]) == 30 * MIB + 700 + 2 * MIB
    assert (
        sum(s["total_size"] for s in data["segments"]) == replay(timeline.events, config).reserved_peak_bytes
    )
    for segment in data["segments"]:
        assert segment["total_size"] == sum(b["size"] for b in segment["blocks"])
        ends = [b["address"] + b["size"] for b in segment["blocks"]]
        assert ends[:-1] == [b["address"] for b in segment["blocks"][1:]]
    active = [b for b in blocks if b["state"] == "active_allocated"]
    assert sorted(b["requested_size"] for b in active) == [700, 2 * MIB, 30 * MIB]


@pytest.mark.parametrize("text", CONFIGS)
def test_every_event_lies_in_a_segment_of_its_time(timeline: Timeline, text: str) -> None:
    """What the viewer does when an event is clicked: segments and blocks, followed from the start."""
    segments: list[tuple[int, int]] = []
    alive: dict[int, int] = {}
    for entry in snapshot(timeline, AllocatorConfig.parse(text))["device_traces"][0]:
        span = entry["addr"], entry["addr"] + entry["size"]
        if entry["action"] in ("segment_alloc", "segment_map"):
            # Pages mapped one after the other are one stretch of memory.
            start = next((start for start, end in segments if end == span[0]), span[0])
            segments = [s for s in segments if s[1] != span[0]] + [(start, span[1])]
        elif entry["action"] == "alloc":
            assert any(start <= span[0] and span[1] <= end for start, end in segments)
            assert entry["addr"] not in alive
            alive[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert alive.pop(entry["addr"]) == entry["size"]
    assert sorted(alive.values()) == [700, 2 * MIB, 30 * MIB]


def test_running_out_of_memory_is_the_last_event(timeline: Timeline) -> None:
    data = snapshot(timeline, capacity_bytes=60 * MIB)
    last = data["device_traces"][0][-1]
    assert last["action"] == "oom"
    assert last["size"] == 64 * MIB
    # 30 MiB, 20 MiB and 2 MiB are reserved.
    assert last["device_free"] == 8 * MIB


@pytest.mark.parametrize("text", CONFIGS)
def test_the_viewer_knows_every_opcode(timeline: Timeline, tmp_path: Path, text: str) -> None:
    write_snapshot(tmp_path / "s.pickle", timeline, AllocatorConfig.parse(text))
    content = (tmp_path / "s.pickle").read_bytes()
    used = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert used <= VIEWER_READS
    assert pickle.loads(content) == snapshot(timeline, AllocatorConfig.parse(text))
    # Beyond eight bytes the viewer makes a BigInt of an integer, which it cannot add to others.
    integers = [value for _, value, _ in pickletools.genops(content) if isinstance(value, int)]
    assert all(abs(value) < 2**53 for value in integers)


def test_a_stack_is_written_once(timeline: Timeline, tmp_path: Path) -> None:
    timeline.events += [Event(ALLOC, 100 + i, 4096, 0) for i in range(500)]
    write_snapshot(tmp_path / "s.pickle", timeline)
    assert (tmp_path / "s.pickle").read_bytes().count(b"model.py") == 1


def test_nothing_is_left_half_written(timeline: Timeline, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_snapshot(tmp_path / "missing" / "s.pickle", timeline)
    (tmp_path / "s.pickle").write_text("before")
    # A frame that no pickle can hold stops the writing halfway.
    timeline.stacks[0] = (Frame((lambda: 0), 1, "f"),)  # type: ignore[arg-type]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        write_snapshot(tmp_path / "s.pickle", timeline)
    assert [p.name for p in tmp_path.iterdir()] == ["s.pickle"]
    assert (tmp_path / "s.pickle").read_text() == "before"


@pytest.mark.torch
@pytest.mark.parametrize("text", CONFIGS)
def test_pytorchs_own_tools_read_it(timeline: Timeline, text: str) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    data = snapshot(timeline, AllocatorConfig.parse(text))
    summary = viz.segsum(data)
    assert f"total_reserved: {viz.Bytes(sum(s['total_size'] for s in data['segments']))}" in summary
    assert "free completed for" in viz.trace(data)
    assert "model.py:12:forward" in viz.memory(data, format_flamegraph=str)
    for page in (viz.trace_plot(data), viz.trace_plot(data, plot_segments=True)):
        assert "MemoryViz.js" in page
    assert "Allocator State History" in viz.segment_plot(data)
