"""Pictures are well-formed, to scale, say in words what they show, and carry no style unless they stand alone."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from batchfit import charts
from batchfit.languages import languages
from batchfit.palette import FILLS, INTERFACE, KINDS, PARTS, style_of
from batchfit.planning import Plans, plan
from batchfit.sentences import in_language
from tests.planning.decoder import family

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def fitting() -> Plans:
    return plan(family(), batch=256, seq_len=4096, gpu="h100-80gb", gpus=8)


@pytest.fixture(scope="module")
def too_large() -> Plans:
    return plan(family(), batch=256, seq_len=4096, gpu="rtx-4090", gpus=1)


def pictures(answer: Plans) -> dict[str, str]:
    shown = answer.best or answer.nearest[0].plan
    assert answer.curve is not None
    made = {"bar": charts.memory_bar(shown), "curve": charts.memory_curve(answer.curve)}
    return made | ({"front": charts.pareto_front(answer.front)} if answer.front else {})


def test_every_picture_is_well_formed_described_and_without_style(fitting: Plans, too_large: Plans) -> None:
    for answer in (fitting, too_large):
        for svg in pictures(answer).values():
            root = ElementTree.fromstring(svg)
            assert root.tag == f"{SVG}svg"
            assert len(root.attrib["aria-label"]) > 40
            assert "style" not in svg
            assert "<script" not in svg


@pytest.mark.parametrize("lang", languages())
def test_every_text_of_every_picture_is_in_its_language(fitting: Plans, lang: str) -> None:
    english = {name: draw() for name, draw in charts.pictures_of(fitting).items()}
    drawn = {name: draw() for name, draw in charts.pictures_of(fitting, lang).items()}
    assert drawn.keys() == {"memory", "micro-batch", "pareto"}
    assert (drawn == english) == (lang == "en")
    root = ElementTree.fromstring(drawn["pareto"])
    shown = " ".join([root.attrib["aria-label"], *root.itertext()])
    for each in fitting.front:
        assert in_language(each.how, lang) in shown
        assert in_language(each.memory, lang) in shown
    if lang != "en":
        assert not re.search(r"allocated|reserved|\btime\b|Memory|against", shown)


@pytest.mark.parametrize("lang", languages())
def test_names_on_the_front_stay_inside_and_apart(fitting: Plans, lang: str) -> None:
    root = ElementTree.fromstring(charts.pareto_front(fitting.front, lang))
    names = [
        text for text in root.iter(f"{SVG}text") if "×" in (text.text or "") and len(text.text or "") > 8
    ]
    assert names
    boxes = []
    for name in names:
        x, long = float(name.attrib["x"]), charts.text_length(name.text or "", 11)
        start = x - long if "end" in name.attrib["class"].split() else x
        assert start >= 0
        assert start + long <= charts.WIDTH
        boxes.append((float(name.attrib["y"]), start, start + long))
    for index, (y, start, end) in enumerate(boxes):
        for other_y, other_start, other_end in boxes[:index]:
            assert abs(y - other_y) > 14 or start > other_end or other_start > end


@pytest.mark.parametrize("sign", "\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u202a\u202c\u064f")
def test_signs_of_direction_and_marks_on_letters_have_no_width(sign: str) -> None:
    assert charts.text_length(f"{sign}4 × 8{sign}", 11) == charts.text_length("4 × 8", 11) > 0


def test_the_bar_is_to_scale(fitting: Plans) -> None:
    best = fitting.best
    assert best is not None
    root = ElementTree.fromstring(charts.memory_bar(best))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.attrib["height"] == "44"]
    assert [bar.attrib["class"] for bar in bars] == [s.style for s in charts.segments(best)]
    assert sum(float(bar.attrib["width"]) for bar in bars) == pytest.approx(charts.WIDTH, abs=0.5)
    weights = next(bar for bar in bars if bar.attrib["class"] == "weights")
    assert float(weights.attrib["width"]) == pytest.approx(
        best.parts["weights"] / best.capacity_bytes * charts.WIDTH, abs=0.1
    )


def test_every_stretch_of_the_bar_is_named(fitting: Plans) -> None:
    best = fitting.best
    assert best is not None
    root = ElementTree.fromstring(charts.memory_bar(best))
    words = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for segment in charts.segments(best):
        assert segment.label in words


def test_activations_are_drawn_by_kind_over_a_line_of_their_sum(fitting: Plans) -> None:
    best = fitting.best
    assert best is not None
    kinds = [segment for segment in charts.segments(best) if segment.kind]
    assert [segment.kind for segment in kinds] == ["attention", "MLP", "logits and loss"]
    assert sum(segment.nbytes for segment in kinds) == best.parts["activations"]
    root = ElementTree.fromstring(charts.memory_bar(best))
    (line,) = (rect for rect in root.iter(f"{SVG}rect") if rect.attrib["class"] == "activations")
    drawn = [rect for rect in root.iter(f"{SVG}rect") if rect.attrib["height"] == "44"]
    above = [rect for rect in drawn if rect.attrib["class"] in {segment.style for segment in kinds}]
    assert float(line.attrib["x"]) == float(above[0].attrib["x"])
    assert float(line.attrib["width"]) == pytest.approx(sum(float(r.attrib["width"]) for r in above), abs=0.2)


def test_activations_of_a_profile_that_does_not_tell_kinds_are_one_stretch(fitting: Plans) -> None:
    best = fitting.best
    assert best is not None
    silent = replace(best, activations={})
    assert [s for s in charts.segments(silent) if s.part == "activations"] == [
        charts.Segment("activations", charts.PART_NAMES["activations"], best.parts["activations"])
    ]
    assert "70" not in {
        rect.attrib["y"] for rect in ElementTree.fromstring(charts.memory_bar(silent)).iter(f"{SVG}rect")
    }


def test_kinds_too_small_to_be_seen_are_drawn_with_the_others() -> None:
    activations = {"attention": 500, "norm": 4, "logits and loss": 490, "other": 6}
    drawn = charts.stretches({"weights": 1000, "activations": 1000}, activations)
    assert [(each.kind or each.part, each.nbytes) for each in drawn] == [
        ("weights", 1000),
        ("attention", 500),
        ("logits and loss", 490),
        ("other", 10),
    ]


def test_every_kind_has_a_name_and_a_colour() -> None:
    assert tuple(charts.KIND_NAMES) == KINDS
    for kind in KINDS:
        assert f".bf .{style_of(kind)}{{fill:" in charts.STYLE


@pytest.mark.parametrize("name", FILLS)
def test_labels_can_be_read_on_their_colour(name: str) -> None:
    text = INTERFACE["ink" if name in charts.LIGHT_FILLS else "paper"][0]
    lighter, darker = sorted((_luminance(text), _luminance(FILLS[name])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5 or name in ("gradients", "buffers", "overhead")


def _luminance(colour: str) -> float:
    """Relative luminance of a colour (WCAG 2.2)."""
    channels = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_memory_keeps_its_order(fitting: Plans, too_large: Plans) -> None:
    for each in (*fitting.plans, *(near.plan for near in too_large.nearest)):
        order = [*PARTS, "free"]
        places = [order.index(segment.part) for segment in charts.segments(each)]
        assert places == sorted(places)


def test_the_cards_line_is_inside_the_bar_where_the_peak_is_beyond_it(too_large: Plans) -> None:
    root = ElementTree.fromstring(charts.memory_bar(too_large.nearest[0].plan))
    line = next(path for path in root.iter(f"{SVG}path") if path.attrib["class"] == "limit")
    (x,) = re.findall(r"^M([0-9.]+) ", line.attrib["d"])
    assert 0 < float(x) < charts.WIDTH / 2


def test_a_curve_rises_to_the_chosen_micro_batch(fitting: Plans) -> None:
    curve = fitting.curve
    assert curve is not None
    assert curve.chosen in curve.micro_batches
    assert list(curve.allocated_bytes) == sorted(curve.allocated_bytes)
    assert curve.allocated_bytes[-1] > curve.capacity_bytes


def test_alone_a_picture_has_its_style(fitting: Plans) -> None:
    best = fitting.best
    assert best is not None
    alone = charts.standalone(charts.memory_bar(best))
    root = ElementTree.fromstring(alone)
    assert root[0].tag == f"{SVG}style"
    assert "prefers-color-scheme" in alone


@pytest.mark.parametrize("highest", [1, 3, 8, 9, 31, 100, 12345])
def test_ticks_are_few_round_and_within(highest: int) -> None:
    ticks = charts.count_ticks(highest)
    assert 1 <= len(ticks) <= 8
    assert ticks[-1] <= highest
    assert all(str(tick).rstrip("0") in {"", *map(str, range(1, 100))} for tick in ticks)
