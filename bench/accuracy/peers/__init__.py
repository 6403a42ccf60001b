"""Other tools on the same rows, each asked as its documentation says: PYTHONPATH=src:. python -m bench.accuracy.peers

One module for each tool: NAME, `peak(question)` in bytes, which raises CannotExpress where the tool has no words for a
row, PACKAGES where it is installed for this (exact, without their dependencies), and LIMIT where it is too slow for all
rows. The rows are those of the results with a peak of what is allocated, once each. Writes results.json beside this.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from bench.accuracy.question import CannotExpress, Question

KEPT = Path(__file__).with_name("results.json")


def tools() -> dict[str, Any]:
    """Each tool's module by its name."""
    modules = [
        import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__) if found.name[0] != "_"
    ]
    return {module.NAME: module for module in sorted(modules, key=lambda module: module.NAME.lower())}


def packages() -> list[str]:
    """What is installed to ask them."""
    return [pin for tool in tools().values() for pin in getattr(tool, "PACKAGES", ())]


def compared(results: dict[str, Any]) -> dict[str, Any]:
    """Each tool's errors beside batchfit's on the same rows, and why it had no words for the others."""
    rows = list(_rows(results))
    return {name: _peer(tool, rows) for name, tool in tools().items()}


def _rows(results: dict[str, Any]) -> Iterator[tuple[Question, int, float]]:
    """Of rows with a peak of what is allocated: the question, the measured bytes, and batchfit's error."""
    from bench.accuracy.families import figures, question
    from bench.accuracy.picture import measured_ones
    from bench.accuracy.report import scores_in
    from bench.accuracy.rows import read

    asked = {row.id: row for row in figures(read())}
    for score in measured_ones(scores_in(results)):
        if score.measure == "allocated":
            yield question(asked[score.id]), score.measured or 1, score.error or 0.0


def _peer(tool: Any, rows: list[tuple[Question, int, float]]) -> dict[str, Any]:
    theirs, ours, seconds = [], [], []
    without: Counter[str] = Counter()
    asked: dict[tuple[str, int, int, int], float] = {}
    for question, measured, error in rows:
        key = question.key, question.micro_batch, question.accumulation_steps, question.replicas
        try:
            if key not in asked:
                if len(asked) >= getattr(tool, "LIMIT", len(rows)):
                    raise CannotExpress(f"beyond the {tool.LIMIT} that are asked, as it takes minutes")
                begun = time.perf_counter()
                asked[key] = tool.peak(question)
                seconds.append(time.perf_counter() - begun)
        except CannotExpress as reason:
            without[str(reason)] += 1
            continue
        theirs.append(abs(asked[key] / measured - 1))
        ours.append(abs(error))
    return {
        "rows": len(theirs),
        "median": statistics.median(theirs) if theirs else None,
        "batchfit_median": statistics.median(ours) if ours else None,
        "seconds_per_row": statistics.median(seconds) if seconds else None,
        "without": dict(sorted(without.items())),
    }


def text(peers: dict[str, Any]) -> str:
    """The comparison as a table in Markdown."""
    lines = [
        "| tool | rows | its median error | batchfit's on these | seconds a row | rows it has no words for |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in peers.items():
        without = ", ".join(f"{count} {reason}" for reason, count in found["without"].items())
        figures = (
            (
                f"{100 * found['median']:.1f} %",
                f"{100 * found['batchfit_median']:.2f} %",
                f"{found['seconds_per_row']:.3f}",
            )
            if found["rows"]
            else ("", "", "")
        )
        lines.append(" | ".join(("| " + name, str(found["rows"]), *figures, without + " |")))
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """The comparison that is kept."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept
