"""A row's model on the meta device, with weights in float32 as tools load it if nothing else is said."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from bench.accuracy.question import Question


def model(question: Question, weights: str = "fp32") -> Any:
    """The row's model."""
    return _built(json.dumps(question.trace["config"], sort_keys=True), question.trace["seq_len"], weights)


@cache
def _built(config: str, seq_len: int, weights: str) -> Any:
    from bench.accuracy import building

    return building._model({"config": json.loads(config), "weights": weights, "seq_len": seq_len})
