"""Envelopes from timelines written by hand."""

from __future__ import annotations

from batchfit.trace.phases import alike, folded, peaks
from batchfit.trace.surface import envelopes
from batchfit.trace.timeline import ALLOC, FREE, MARK, Event, Mark, Timeline

MARKS = [
    Mark("begin", 0, -1),
    Mark("forward", 0, 0),
    Mark("backward", 0, 0),
    Mark("forward", 0, 1),
    Mark("optimizer", 0, -1),
    Mark("end", 0, -1),
]


def timeline(*sizes: int) -> Timeline:
    """Weights, then three activations and a gradient, of these sizes in bytes; the first activation is kept."""
    weights, kept, passing, last, gradient = sizes
    events = [
        Event(MARK, -1, 0, 0),
        Event(ALLOC, 0, weights, 0),
        Event(MARK, -1, 0, 1),
        Event(ALLOC, 1, kept, 0),
        Event(ALLOC, 2, passing, 0),
        Event(FREE, 2, passing, 0),
        Event(MARK, -1, 0, 2),
        Event(ALLOC, 3, last, 0),
        Event(FREE, 1, kept, 0),
        Event(FREE, 3, last, 0),
        Event(ALLOC, 4, gradient, 0),
        Event(MARK, -1, 0, 3),
        Event(MARK, -1, 0, 4),
        Event(MARK, -1, 0, 5),
    ]
    categories = {0: "weights", 1: "activations", 2: "activations", 3: "activations", 4: "gradients"}
    return Timeline(events, [()], MARKS, categories, {2: "blocks.3.mlp", 3: "blocks.3"})


def test_lines_of_each_phase() -> None:
    # At b samples: kept 1024 b, passing 4096 whatever b is, last 512 b.
    small, large = timeline(5120, 2048, 4096, 1024, 512), timeline(5120, 3072, 4096, 1536, 512)
    phases = envelopes(small, large, 2, 3)
    # Before the envelope over everything come the lines that are highest in their place only.
    assert [(line.constant, line.per_sample, line.where) for line in phases["first_micro"]][-2:] == [
        ((9216,), (1024,), "forward: blocks.*.mlp"),
        ((5120,), (1536,), "backward: blocks.*"),
    ]
    assert phases["first_micro"][-2].parts == {
        "weights": ((5120,), (0,)),
        "activations": ((4096,), (1024,)),
    }
    assert [(line.constant, line.per_sample) for line in phases["later_micro"]][:1] == [((5632,), (0,))]
    assert phases["optimizer_step"][0].where == "optimizer step"


def test_a_small_tensor_grows_by_what_it_asks_for() -> None:
    # 100 bytes a sample: the allocator rounds both to 512, and a slope of nothing would be wrong at 1000 samples.
    small, large = timeline(512, 200, 512, 0, 512), timeline(512, 300, 512, 0, 512)
    steepest = envelopes(small, large, 2, 3)["first_micro"][-1]
    assert steepest.per_sample == (100,)
    assert 0 <= steepest.at(1000) - (1024 + 100_000) <= 512


def test_timelines_that_differ_give_the_line_through_their_peaks() -> None:
    small, large = timeline(5120, 2048, 4096, 1024, 512), timeline(5120, 3072, 4096, 1536, 512)
    large.events.insert(4, Event(ALLOC, 9, 512, 0))
    large.categories[9] = "activations"
    assert not alike(small, large)
    (line,) = envelopes(small, large, 2, 3)["first_micro"]
    assert line.at(2) == peaks(small)["first_micro"]
    assert line.at(3) == peaks(large)["first_micro"]


def test_folded_paths() -> None:
    assert folded("model.layers.11.mlp.0") == "model.layers.*.mlp.*"
    assert folded("lm_head") == "lm_head"
