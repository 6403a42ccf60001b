"""Other tools on the same rows, each asked as its documentation says: PYTHONPATH=src:. python -m bench.accuracy.peers

One module for each tool: NAME, `peak(question)` in bytes, which raises CannotExpress where the tool has no words for a
row, PACKAGES where it is installed for this (exact, without their dependencies), and LIMIT where it is too slow for all
rows. The rows are those of the results with a peak of what is allocated or reserved, once each. Writes results.json
beside this.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from bench.accuracy.question import CannotExpress, Question

#: What figures of tools are compared with: peaks of a process's own tensors, or of what holds them.
MEASURES = ("allocated", "reserved")

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


@dataclass(frozen=True, slots=True)
class Asked:
    """A row: its question, the measured bytes, and batchfit's error."""

    family: str
    question: Question
    measured: int
    error: float


def compared(results: dict[str, Any]) -> dict[str, Any]:
    """Each tool's errors beside batchfit's on the same rows, and why it had no words for the others."""
    rows = list(_rows(results))
    return {name: _peer(tool, rows) for name, tool in tools().items()}


def _rows(results: dict[str, Any]) -> Iterator[Asked]:
    from bench.accuracy.families import figures, question
    from bench.accuracy.picture import measured_ones
    from bench.accuracy.report import scores_in
    from bench.accuracy.rows import read

    asked = {row.id: row for row in figures(read())}
    scores = [score for score in measured_ones(scores_in(results)) if score.measure in MEASURES]
    # What tools tell of comes first, for those that are asked of a few rows only.
    for score in sorted(scores, key=lambda score: MEASURES.index(score.measure)):
        yield Asked(score.family, question(asked[score.id]), score.measured or 1, score.error or 0.0)


def _peer(tool: Any, rows: list[Asked]) -> dict[str, Any]:
    errors: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    seconds = []
    without: Counter[str] = Counter()
    peaks: dict[tuple[str, int, int, int], float] = {}
    for row in rows:
        question = row.question
        key = question.key, question.micro_batch, question.accumulation_steps, question.replicas
        try:
            if key not in peaks:
                if len(peaks) >= getattr(tool, "LIMIT", len(rows)):
                    raise CannotExpress(f"beyond the {tool.LIMIT} that are asked, as it takes minutes")
                begun = time.perf_counter()
                peaks[key] = tool.peak(question)
                seconds.append(time.perf_counter() - begun)
        except CannotExpress as reason:
            without[str(reason)] += 1
            continue
        errors[question.measure, row.family].append((abs(peaks[key] / row.measured - 1), abs(row.error)))
    return {
        "seconds_per_row": statistics.median(seconds) if seconds else None,
        "without": dict(sorted(without.items())),
        "errors": [
            {"measure": measure, "family": family, **_medians(found)}
            for (measure, family), found in sorted(errors.items())
        ],
        **{
            measure: _medians([pair for key, found in errors.items() if key[0] == measure for pair in found])
            for measure in MEASURES
        },
    }


def _medians(errors: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Of pairs of errors, the tool's and batchfit's on the same row."""
    theirs, ours = ([pair[which] for pair in errors] for which in (0, 1))
    return {
        "rows": len(errors),
        "median": statistics.median(theirs) if theirs else None,
        "batchfit_median": statistics.median(ours) if ours else None,
    }


def text(peers: dict[str, Any]) -> str:
    """The comparison by tool as a table in Markdown: of the rows with a peak of what is allocated."""
    lines = [
        "| tool | rows | its median error | batchfit's on these | seconds a row | rows it has no words for |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in peers.items():
        without = ", ".join(f"{count} {reason}" for reason, count in found["without"].items())
        seconds = "" if found["seconds_per_row"] is None else f"{found['seconds_per_row']:.3f}"
        lines.append(" | ".join(("| " + name, *_figures(found["allocated"]), seconds, without + " |")))
    return "\n".join(lines)


def by_family(peers: dict[str, Any]) -> str:
    """For each family, the tool that is off by least, as a table in Markdown."""
    lines = [
        "| family | measure | the best tool there | rows | its median error | batchfit's on these |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    best: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    for name, found in peers.items():
        for errors in found["errors"]:
            key = errors["family"], errors["measure"]
            if key not in best or errors["median"] < best[key][1]["median"]:
                best[key] = name, errors
    for (family, measure), (name, errors) in sorted(best.items()):
        lines.append(" | ".join((f"| {family}", measure, name, *_figures(errors))) + " |")
    return "\n".join(lines)


def _figures(errors: dict[str, Any]) -> tuple[str, str, str]:
    if not errors["rows"]:
        return "", "", ""
    return str(errors["rows"]), f"{100 * errors['median']:.1f} %", f"{100 * errors['batchfit_median']:.2f} %"


def load() -> dict[str, Any]:
    """The comparison that is kept."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept
