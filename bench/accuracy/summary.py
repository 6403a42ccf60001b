"""The scoreboard's errors by kind of run, as the package ships them: `python -m bench.accuracy.summary` writes
src/batchfit/catalog/accuracy.json from the results that are kept."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchfit.accuracy import FILE
from bench.accuracy.families import figures, question
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import DATA, read
from bench.accuracy.scoring import Score

PATH = Path(__file__).parents[2] / "src" / "batchfit" / FILE

#: Figures that are of a step's peak.
_PEAKS = ("allocated", "reserved", "device")


def summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """The kinds with their errors. A run counts once: as traced with today's libraries, which people have, else with
    those of its time; and a kind counts where at least two runs are of it. Kinds are of models of tokens: of those of
    images only whole devices were measured, with what cuDNN takes."""
    asked = _questions()
    errors: dict[str, tuple[Question, float]] = {}
    for row in results["scores"]:
        score = Score(**dict(zip(results["columns"], row, strict=True)))
        known = score.measure in _PEAKS and score.error is not None and score.id in asked
        if known and (score.id not in errors or score.versions == "today"):
            errors[score.id] = asked[score.id], abs(score.error or 0.0)
    by_kind: dict[tuple[str, str], list[float]] = defaultdict(list)
    for ask, error in errors.values():
        by_kind[_kind(ask)].append(error)
    rows = [_row(kind, sorted(found)) for kind, found in sorted(by_kind.items()) if len(found) > 1]
    return {"made_by": "scripts/accuracy", "versions": dict(results["versions"]), "kinds": rows}


def save(results: Mapping[str, Any]) -> None:
    """Writes the file."""
    PATH.write_text(json.dumps(summary(results), indent=1) + "\n", encoding="utf-8")


def _questions() -> dict[str, Question]:
    """What each row asks, of those that can be expressed."""
    found = {}
    for row in figures(read(DATA)):
        try:
            found[row.id] = question(row)
        except CannotExpress:
            continue
    return {row_id: ask for row_id, ask in found.items() if "timm" not in ask.trace}


def _kind(ask: Question) -> tuple[str, str]:
    adapters = "qlora" if ask.trace.get("quantize") else "lora"
    return adapters if "adapters" in ask.trace else "full", "one" if ask.replicas == 1 else "several"


def _row(kind: tuple[str, str], errors: list[float]) -> dict[str, Any]:
    return {
        "trained": kind[0],
        "gpus": kind[1],
        "runs": len(errors),
        "median": round(statistics.median(errors), 4),
        # The nearest rank: nine of ten runs are off by no more.
        "ninetieth": round(errors[max(0, -(-9 * len(errors) // 10) - 1)], 4),
        "worst": round(errors[-1], 4),
    }


if __name__ == "__main__":
    from bench.accuracy.report import load

    save(load())
