"""Other tools on the same rows, each asked as its documentation says: PYTHONPATH=src:. python -m bench.accuracy.peers

    accelerate   `accelerate estimate-memory`: its own functions, over the model on the meta device. It knows the size
                 of the weights and "training with Adam", for one GPU, without a batch.
    DeepSpeed    `estimate_zero3_model_states_mem_needs_all_live` without offloading, for runs over several GPUs:
                 4 bytes for each parameter of the largest layer, and 18 for each of all over the GPUs (its formula, in
                 deepspeed/runtime/zero/stage3.py). It leaves activations out, and says so.

The rows are those of the results with a peak of what is allocated, once each; a tool that has no words for a row says
why. Writes bench/accuracy/peers.json.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.accuracy.question import CannotExpress, Question

PEERS = Path(__file__).with_name("peers.json")


def accelerate(question: Question) -> float:
    """Bytes to train with Adam. Raises CannotExpress."""
    from accelerate.commands.estimate import calculate_maximum_sizes, estimate_training_usage

    if question.replicas > 1:
        raise CannotExpress("more than one GPU")
    _all_trained(question)
    total, _ = calculate_maximum_sizes(_model(question))
    precision = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[question.trace["weights"]]
    return float(max(estimate_training_usage(total, precision).values()))


def deepspeed(question: Question) -> float:
    """Bytes of a GPU's share of the states, gathered layer included. Raises CannotExpress."""
    if question.replicas == 1:
        raise CannotExpress("one GPU alone")
    _all_trained(question)
    model = _model(question)
    total: int = sum(p.numel() for p in model.parameters())
    largest: int = max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules())
    return float(4 * largest + int(18 * total / question.replicas))


PEER_TOOLS: dict[str, Callable[[Question], float]] = {
    "accelerate estimate-memory": accelerate,
    "DeepSpeed's ZeRO-3 estimator": deepspeed,
}


def _all_trained(question: Question) -> None:
    if "adapters" in question.trace:
        raise CannotExpress("adapters over frozen weights")


def _model(question: Question) -> Any:
    """The model with float32 weights, as both tools load it."""
    return _built(json.dumps(question.trace["config"], sort_keys=True), question.trace["seq_len"])


@cache
def _built(config: str, seq_len: int) -> Any:
    from bench.accuracy import building

    return building._model({"config": json.loads(config), "weights": "fp32", "seq_len": seq_len})


def compared(results: dict[str, Any]) -> dict[str, Any]:
    """Each tool's errors beside batchfit's on the same rows, and why it had no words for the others."""
    rows = list(_rows(results))
    return {name: _peer(tool, rows) for name, tool in PEER_TOOLS.items()}


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


def _peer(tool: Callable[[Question], float], rows: list[tuple[Question, int, float]]) -> dict[str, Any]:
    theirs, ours, seconds = [], [], []
    without: Counter[str] = Counter()
    for question, measured, error in rows:
        begun = time.perf_counter()
        try:
            theirs.append(abs(tool(question) / measured - 1))
        except CannotExpress as reason:
            without[str(reason)] += 1
            continue
        ours.append(abs(error))
        seconds.append(time.perf_counter() - begun)
    return {
        "rows": len(theirs),
        "median": statistics.median(theirs),
        "batchfit_median": statistics.median(ours),
        "seconds_per_row": statistics.median(seconds),
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
        lines.append(
            f"| {name} | {found['rows']} | {100 * found['median']:.1f} % | {100 * found['batchfit_median']:.2f} % "
            f"| {found['seconds_per_row']:.3f} | {without} |"
        )
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """The comparison that is kept."""
    kept: dict[str, Any] = json.loads(PEERS.read_text(encoding="utf-8"))
    return kept


if __name__ == "__main__":
    from bench.accuracy import report

    PEERS.write_text(json.dumps(compared(report.load()), indent=1) + "\n", encoding="utf-8")
    report.write(report.load())
    print(text(load()))
