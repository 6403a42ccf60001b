"""Scores, the table made of them, and the page in docs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.accuracy import report
from bench.accuracy.picture import measured_ones, picture
from bench.accuracy.question import Question
from bench.accuracy.rows import Row
from bench.accuracy.scoring import UNTRACED, Score, predicted, score
from bench.accuracy.tracing import Wanted, answers, wanted
from tests.test_profile import profile

ROW = Row("r1", "some family", {"mem_raw": "1000", "mem_unit": "bytes"})


def ask(measure: str = "after_forward", **more: Any) -> Question:
    return Question(trace={"config": {}}, group="some", measure=measure, micro_batch=2, **more)


def moments(nbytes: int) -> dict[str, Any]:
    return {"moments": {"2": {"after_forward": nbytes}}}


def scored(error: float | None, **more: Any) -> Score:
    return Score("r", "f", "g", "allocated", "today", 1000, 990, 990, error, **more)


def test_one_figure_is_off_by_its_distance() -> None:
    assert score(ROW, ask(), moments(990)).error == pytest.approx(-0.01)
    assert score(ROW, ask(), moments(1000)).error == 0


@pytest.mark.parametrize(("low", "high", "error"), [(900, 1100, 0.0), (1010, 1200, 0.01), (700, 980, -0.02)])
def test_an_interval_is_off_by_its_nearest_end(
    monkeypatch: pytest.MonkeyPatch, low: int, high: int, error: float
) -> None:
    monkeypatch.setattr("bench.accuracy.scoring.predicted", lambda question, answer: (low, high))
    assert score(ROW, ask("reserved"), {}).error == pytest.approx(error)


def test_steady_memory_has_gradients_only_where_they_are_kept() -> None:
    answer = {"profile": profile().to_json()}
    assert predicted(ask("steady"), answer) == (3000, 3000)
    assert predicted(ask("steady", keeps_gradients=True), answer) == (4000, 4000)


def test_a_device_holds_more_than_the_allocator() -> None:
    answer = {"profile": profile().to_json()}
    assert predicted(ask("allocated"), answer) == (5000, 5000)
    assert predicted(ask("device", beside_bytes=50), answer) == (5050, 5050)
    least, most = predicted(ask("device", gpu="a100-80gb"), answer)
    assert 5000 + 400 * 2**20 < least < most < 5000 + 1100 * 2**20
    of_two = predicted(ask("device", gpu="a100-80gb", replicas=2), answer)
    assert of_two == (least + 256 * 2**20, most + 544 * 2**20)


def test_a_figure_that_misses_trained_weights_is_met_by_one_that_does() -> None:
    answer = {"profile": profile().to_json()}
    trained = sum(unit.count * unit.trainable_weights_bytes for unit in profile().model.units)
    assert trained
    assert predicted(ask("allocated", misses_trained=True), answer) == (5000 - trained, 5000 - trained)


@pytest.mark.parametrize(("gib", "fits", "out_of_memory"), [(20, True, False), (90, False, True)])
def test_verdicts(monkeypatch: pytest.MonkeyPatch, gib: int, fits: bool, out_of_memory: bool) -> None:
    monkeypatch.setattr("bench.accuracy.scoring.predicted", lambda question, answer: (gib * 2**30,) * 2)
    assert score(ROW, ask("fits", gpu="a100-80gb"), {}).right is fits
    assert score(ROW, ask("oom", gpu="a100-80gb"), {}).right is out_of_memory


def test_a_failed_trace_is_a_reason_without_folders() -> None:
    found = score(ROW, ask(), {"error": "BadInput: /home/me/lib/site-packages/peft/a.py:3: no"})
    assert found.reason == "no trace: BadInput: site-packages/peft/a.py:3: no"
    assert found.error is None
    ours = score(ROW, ask(), {"error": f"ImportError: no name in x ({Path(__file__).resolve()})"})
    assert ours.reason == "no trace: ImportError: no name in x (tests/bench/test_accuracy_report.py)"


def test_the_table_counts_rows_with_a_prediction() -> None:
    errors = [0.01, -0.02, 0.03, -0.5]
    (line,) = report.table([*map(scored, errors), scored(None, reason="no words for it")])
    assert (line.n, line.ninetieth) == (4, 0.5)
    assert line.median == pytest.approx(0.025)
    assert (line.worst, line.worst_error) == ("r", -0.5)
    verdicts = [scored(None, right=right) for right in (True, True, False, True)]
    assert report.table(verdicts)[0].right == 0.75


@pytest.mark.parametrize(("share", "expected"), [(0.9, 9), (0.5, 5), (1.0, 10), (0.91, 10)])
def test_percentiles(share: float, expected: int) -> None:
    assert report.percentile(range(1, 11), share) == expected


def test_the_page_is_what_the_results_say() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(report.load())


def test_the_pictures_are_of_the_results() -> None:
    drawn = report.pictures(report.load())
    assert {path.name for path in report.PICTURES.glob("*.svg")} == set(drawn)
    for name, svg in drawn.items():
        assert (report.PICTURES / name).read_text(encoding="utf-8") == svg
        assert f"(accuracy/{name})" in report.PAGE.read_text(encoding="utf-8")


def test_readme_says_the_headline() -> None:
    text = report.README.read_text(encoding="utf-8")
    assert f"{report.headline(report.load())}: [" in text
    assert report.readme(text, report.load()) == text
    results = copy.deepcopy(report.load())
    del results["scores"][: len(results["scores"]) // 2]
    assert report.readme(text, results) != text


def test_a_picture_tells_rows_within_the_band_from_others() -> None:
    near, far = scored(0.01), Score("r2", "f", "g", "allocated", "today", 1000, 2000, 2000, 1.0)
    svg = picture("a & b", [near, far, scored(None)])
    assert svg.count('class="in"') == svg.count('class="out"') == 1
    assert "a &amp; b: 1 of 2 within 5 %" in svg
    ElementTree.fromstring(svg)


def test_a_row_counts_once_with_the_libraries_of_its_time() -> None:
    era = Score("r", "f", "g", "allocated", "transformers-4.48", 1000, 1000, 1000, 0.0)
    assert measured_ones([scored(0.2), era]) == [era]


def test_a_stale_page_would_be_noticed() -> None:
    results = copy.deepcopy(report.load())
    results["scores"][0][report.load()["columns"].index("error")] = 12.5
    assert report.page(results) != report.PAGE.read_text(encoding="utf-8")


def test_traces_are_asked_for_once() -> None:
    first, second = ask(), Question({"config": {}}, "other", "reserved", 4)
    assert wanted([first, second, first]) == [Wanted(first.key, None, (2, 4))]


def test_what_was_done_before_an_interruption_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHFIT_CACHE", str(tmp_path))

    def run(self: object, traces: list[Wanted]) -> Iterator[tuple[Wanted, dict[str, Any]]]:
        yield traces[0], moments(7)
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.accuracy.tracing._Workers.run", run)
    traces = [Wanted(json.dumps({"config": {"n": n}}), None, (2,)) for n in (1, 2)]
    assert answers(traces, 1, lambda done, total: None) == {(traces[0].key, None): moments(7)}


def test_a_row_that_was_not_traced_keeps_the_score_it_had() -> None:
    first, second = (replace(scored(0.01), id=name) for name in ("first", "second"))
    untraced = score(ROW, ask(), UNTRACED)
    now = [
        replace(untraced, id=each.id, family="f", group="g", measure="allocated") for each in (first, second)
    ]
    assert all(each.untraced for each in now)
    assert report.with_earlier(now, [first]) == [first, now[1]]
    anew = replace(first, error=0.02)
    assert report.with_earlier([anew, now[1]], [first, second]) == [anew, second]


def test_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFIT_CACHE", str(tmp_path))
    trace = Wanted(json.dumps({"config": {}}), None, (2,))
    traced: list[Wanted] = []

    def run(self: object, traces: list[Wanted]) -> list[tuple[Wanted, dict[str, Any]]]:
        traced.extend(traces)
        return [(each, moments(7)) for each in traces]

    monkeypatch.setattr("bench.accuracy.tracing._Workers.run", run)
    quiet: Callable[[int, int], None] = lambda done, total: None  # noqa: E731
    for wanted_once in (trace, trace):
        assert answers([wanted_once], 1, quiet) == {(trace.key, None): moments(7)}
    assert traced == [trace]
    further = Wanted(trace.key, None, (2, 8))
    answers([further], 1, quiet)
    assert traced == [trace, further]
