"""The scoreboard's errors by kind, which the package ships."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from batchfit.accuracy import error_on, kinds
from bench.accuracy import summary
from bench.accuracy.question import Question
from bench.accuracy.report import load


def test_the_file_is_what_the_results_give() -> None:
    """If not: python -m bench.accuracy.summary"""
    assert json.loads(summary.PATH.read_text("utf-8")) == summary.summary(load())


def results(*rows: Sequence[Any]) -> dict[str, Any]:
    columns = ["id", "family", "group", "measure", "versions", "measured", "low", "high", "error", "right"]
    full = [[row[0], "f", "g", row[1], row[2], 1, 1, 1, row[3], None] for row in rows]
    return {"versions": {}, "columns": columns, "scores": full}


def ask(**trace: Any) -> Question:
    return Question(trace=trace, group="g", measure="allocated", micro_batch=1)


def test_a_run_counts_once_and_only_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "_questions", lambda: {"a": ask(), "b": ask(), "c": ask(adapters={})})
    found = summary.summary(
        results(
            ("a", "allocated", "an era", 0.5),
            ("a", "allocated", "today", -0.1),
            ("a", "allocated", "another era", 0.6),
            ("b", "reserved", "an era", 0.3),
            ("b", "steady", "today", 0.9),
            ("c", "allocated", "today", 0.2),
            ("unknown", "allocated", "today", 0.7),
        )
    )
    # One run alone, such as c, is no kind.
    (kind,) = found["kinds"]
    assert kind == {
        "trained": "full",
        "gpus": "one",
        "runs": 2,
        "median": 0.2,
        "ninetieth": 0.3,
        "worst": 0.3,
    }


def test_kinds_are_found_by_what_is_trained_and_on_how_many_gpus() -> None:
    assert len(kinds()) >= 3
    one = error_on("full", 1)
    assert one is not None
    assert (one.trained, one.gpus) == ("full", "one")
    assert 0 <= one.median <= one.ninetieth <= one.worst
    assert error_on("full", 8) == next(k for k in kinds() if (k.trained, k.gpus) == ("full", "several"))
    assert error_on("nothing", 1) is None
