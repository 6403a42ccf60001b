"""The memory profile: envelopes, peaks, the largest micro-batch, strict JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit import charts
from batchfit.errors import BadInput
from batchfit.palette import COLOURS, PARTS
from batchfit.profile import (
    NO_LIMIT,
    Affinity,
    Compute,
    LedgerEntry,
    Line,
    MemoryProfile,
    Model,
    Polynomial,
    Provenance,
    ReservedPoint,
    SeqRange,
    States,
    Unit,
    evaluate,
)


def line(constant: float, per_sample: float, part: str = "activations", where: str = "forward") -> Line:
    return Line((constant,), (per_sample,), {part: ((constant,), (per_sample,))}, where)


def profile(**changes: Any) -> MemoryProfile:
    made = MemoryProfile(
        model=Model("toy", 12, 12, (Unit("layers.*", 2, 5, 5, 20, 20), Unit("(root)", 1, 2, 2, 8, 8))),
        settings={"precision": "fp32", "lora": None},
        states=States(1000, 1000, 2000, 0),
        phases={
            "first_micro": (line(3000, 10), line(2000, 100)),
            "later_micro": (line(3000, 100),),
            "optimizer_step": (line(5000, 0, "optimizer", "optimizer step"),),
        },
        reserved=(),
        compute=Compute((6,), (18,), (0,), ((0,), (0,)), ((0,), (0,)), 0, 7, 3, 12),
        ledger=(LedgerEntry("toy.py:3", "x = x.relu()", "layers.*", "relu", 40, 0, 2),),
        seq_len=None,
        affinity=Affinity((2, 3), 5, 0.0, True),
        assumptions=("nothing",),
        provenance=Provenance("traced", {"torch": "2.13"}, 0.5, "2026-01-01T00:00:00+00:00"),
    )
    return dataclasses.replace(made, **changes)


def test_the_peak_is_the_highest_line_of_the_phases_that_occur() -> None:
    p = profile()
    assert p.peak(1).binding_phase == "optimizer_step"
    assert p.peak(1).allocated_bytes == 5000
    assert (p.peak(40).binding_phase, p.peak(40).allocated_bytes) == ("first_micro", 6000)
    # With more than one micro-batch, the later ones count: they find gradients.
    assert (p.peak(40, 2).binding_phase, p.peak(40, 2).allocated_bytes) == ("later_micro", 7000)
    assert p.peak(40, 2) == p.peak(40, 400)


def test_activation_per_sample_is_what_one_more_sample_adds() -> None:
    p = profile()
    assert p.activation_per_sample == 100
    assert p.peak(101).allocated_bytes - p.peak(100).allocated_bytes == 100


@given(st.integers(0, 200_000), st.integers(1, 3))
def test_the_largest_micro_batch_fits_and_the_next_does_not(capacity: int, steps: int) -> None:
    p = profile()
    largest = p.largest_micro_batch(capacity, steps)
    if largest:
        assert p.peak(largest, steps).allocated_bytes <= capacity
    assert p.peak(largest + 1, steps).allocated_bytes > capacity


def test_nothing_grows() -> None:
    p = profile(phases={"first_micro": (line(10, 0),), "later_micro": (), "optimizer_step": ()})
    assert p.largest_micro_batch(10) == NO_LIMIT
    assert p.largest_micro_batch(9) == 0


def test_reserved_is_interpolated_between_replays() -> None:
    points = (ReservedPoint(10, 1, None, 1000, 1100), ReservedPoint(20, 1, None, 1000, 1300))
    p = profile(reserved=points)
    allocated = p.peak(15).allocated_bytes
    assert p.reserved_peak(15) == p.peak(15).reserved_bytes == round(allocated * 1.2)
    assert p.reserved_peak(1) == round(p.peak(1).allocated_bytes * 1.1)
    assert p.reserved_peak(30) == round(p.peak(30).allocated_bytes * 1.3)
    assert profile().reserved_peak(15) is None
    capacity = 10_000
    assert p.largest_micro_batch(capacity, reserved=True) < p.largest_micro_batch(capacity)


def test_lines_over_the_sequence_length() -> None:
    over_length = Line((5, 1), (2, 0, 3), {"activations": ((5, 1), (2, 0, 3))}, "backward")
    p = profile(
        phases={"first_micro": (over_length,), "later_micro": (), "optimizer_step": ()},
        seq_len=SeqRange(8, 64, (8, 64), 24, 0.001),
    )
    assert evaluate((2, 0, 3), 10) == 302
    assert p.peak(4, seq_len=10).allocated_bytes == 15 + 4 * 302
    assert p.peak(4, seq_len=10).parts == {"activations": 15 + 4 * 302}
    with pytest.raises(BadInput, match=r"^seq_len: must be between 8 and 64 tokens, .*; you gave 65$"):
        p.peak(4, seq_len=65)
    with pytest.raises(BadInput, match=r"^seq_len: is needed"):
        p.peak(4)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2"])
def test_batches_are_whole_numbers(bad: Any) -> None:
    with pytest.raises(BadInput, match=r"^micro_batch: must be a whole number of 1 or more; you gave "):
        profile().peak(bad)
    with pytest.raises(BadInput, match=r"^accumulation_steps: must be a whole number"):
        profile().peak(1, bad)


def told(kinds: dict[str, tuple[float, float]]) -> Line:
    """A line of activations by kind."""
    constant, slope = (sum(amount[n] for amount in kinds.values()) for n in (0, 1))
    amounts: dict[str, Any] = {kind: ((c,), (s,)) for kind, (c, s) in kinds.items()}
    return Line((constant,), (slope,), {"activations": ((constant,), (slope,))}, "backward", amounts)


def test_activations_by_kind_sum_to_their_part_and_keep_their_order() -> None:
    line = told({"logits and loss": (0.5, 10.4), "MLP": (0.4, 20.4), "attention": (0.4, 30.4)})
    for micro_batch in (1, 2, 7, 1000):
        kinds = line.activations_at(micro_batch)
        assert list(kinds) == ["attention", "MLP", "logits and loss"]
        assert sum(kinds.values()) == line.parts_at(micro_batch)["activations"]
    assert line.activations_at(10) == {"attention": 304, "MLP": 205, "logits and loss": 104}


def test_less_than_nothing_of_a_kind_is_taken_from_the_others() -> None:
    line = told({"attention": (-10, 0), "MLP": (100, 0), "norm": (10, 0)})
    assert line.activations_at(1) == {"MLP": 91, "norm": 9}


def test_profiles_that_do_not_tell_kinds_can_be_read() -> None:
    data = json.loads(profile().to_json())
    for line in data["phases"]["first_micro"]:
        del line["activations"]
    assert MemoryProfile.from_json(json.dumps(data)) == profile()
    assert profile().peak(1).activations == {}


def test_json_round_trips_exactly(tmp_path: Path) -> None:
    p = profile(seq_len=SeqRange(8, 64, (8, 64), 24, 0.001), reserved=(ReservedPoint(1, 2, 8, 3, 4),))
    assert MemoryProfile.from_json(p.to_json()) == p
    path = tmp_path / "p.json"
    p.save(path)
    assert MemoryProfile.load(path) == p
    assert MemoryProfile.load(path).to_json() == p.to_json()
    assert [f.name for f in tmp_path.iterdir()] == ["p.json"]


def edited(change: Any) -> str:
    data = json.loads(profile().to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(batchfit_profile=2), r"^p\.batchfit_profile: must be 1, .*; it is 2$"),
        (lambda d: d.update(batchfit_profile=True), r"^p\.batchfit_profile: must be 1, .*; it is True$"),
        (lambda d: d.pop("batchfit_profile"), "^p: is not a batchfit profile"),
        (lambda d: d.pop("states"), r"^p\.states: is missing$"),
        (lambda d: d.update(extra=1), r"^p\.extra: is not a key we know; known are model, "),
        (
            lambda d: d["states"].update(weights_bytes=1.5),
            r"^p\.states\.weights_bytes: must be a whole number; it is 1\.5$",
        ),
        (
            lambda d: d["states"].update(weights_bytes=True),
            r"^p\.states\.weights_bytes: must be a whole number; it is True$",
        ),
        (lambda d: d["model"]["units"][1].pop("count"), r"^p\.model\.units\[1\]\.count: is missing$"),
        (
            lambda d: d["phases"].update(warmup=[]),
            r"^p\.phases\.warmup: is not a phase we know; known are first_micro, ",
        ),
        (
            lambda d: d["phases"]["first_micro"][0]["parts"].update(snacks=[[1], [2]]),
            r"^p\.phases\.first_micro\[0\]\.parts\.snacks: is not a part we know",
        ),
        (
            lambda d: d["phases"]["first_micro"][0].update(activations={"snacks": [[1], [2]]}),
            r"^p\.phases\.first_micro\[0\]\.activations\.snacks: is not a part we know; known are attention, ",
        ),
        (
            lambda d: d["phases"]["first_micro"][0].update(activations={"MLP": [[1], [2]]}),
            r"^p\.phases\.first_micro\[0\]\.activations: must add up to the activations among the parts$",
        ),
        (
            lambda d: d["phases"]["first_micro"][1].update(constant="many"),
            r"^p\.phases\.first_micro\[1\]\.constant: must be a list; it is 'many'$",
        ),
        (
            lambda d: d["affinity"].update(affine="yes"),
            r"^p\.affinity\.affine: must be true or false; it is 'yes'$",
        ),
    ],
)
def test_loading_is_strict(change: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        MemoryProfile.from_json(edited(change), "p")


def test_what_is_no_profile_at_all(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^profile: is not JSON: "):
        MemoryProfile.from_json("{")
    with pytest.raises(BadInput, match=r"^profile: is not a batchfit profile"):
        MemoryProfile.from_json("[1]")
    with pytest.raises(BadInput, match=r"none\.json: cannot be read: "):
        MemoryProfile.load(tmp_path / "none.json")


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile().save(path)
    before = path.read_text()
    with pytest.raises(TypeError):
        profile(settings={"bad": object()}).save(path)
    assert path.read_text() == before
    assert [f.name for f in tmp_path.iterdir()] == ["p.json"]


def test_repr_is_one_line() -> None:
    assert repr(profile()) == "MemoryProfile(toy, 12 parameters, states 3.906 KiB, 100 B per sample)"


def test_the_notebook_shows_a_bar_to_scale_with_activations_by_kind() -> None:
    kinds: dict[str, tuple[Polynomial, Polynomial]] = {
        "attention": ((0,), (30,)),
        "logits and loss": ((0,), (20,)),
    }
    parts: dict[str, tuple[Polynomial, Polynomial]] = {
        "weights": ((300,), (0,)),
        "activations": ((0,), (50,)),
    }
    mixed = Line((300,), (50,), parts, "backward: <module>")
    for line, drawn in (
        (mixed, {"weights": 0.75, "activations": 0.25}),
        (
            dataclasses.replace(mixed, activations=kinds),
            {"weights": 0.75, "attention": 0.15, "logits-and-loss": 0.1},
        ),
    ):
        shown = profile(
            phases={"first_micro": (line,), "later_micro": (), "optimizer_step": ()}
        )._repr_html_()
        assert "backward: &lt;module&gt;" in shown
        rectangles = re.findall(r'<rect class="([\w-]+)" x="[\d.]+" y="24" width="([\d.]+)"', shown)
        assert {name: float(width) for name, width in rectangles} == {
            name: pytest.approx(share * charts.WIDTH, abs=0.1) for name, share in drawn.items()
        }
        assert all(f".bf .{name}{{fill:" in shown for name in drawn)
        assert "on the card" not in shown


def test_every_part_has_its_colour_in_order() -> None:
    assert (*PARTS, "free") == tuple(COLOURS)
