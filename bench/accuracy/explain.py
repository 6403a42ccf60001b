"""One row, explained: what was asked, what batchfit says and what of it is made, what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from batchfit.units import format_bytes
from bench.accuracy.question import Question
from bench.accuracy.rows import Row
from bench.accuracy.scoring import Score, profile_of


def explanation(row: Row, question: Question, answer: Mapping[str, Any], score: Score) -> str:
    """The explanation, in lines."""
    lines = [
        f"{row.id}: {row.family}, {row['model']} ({score.group}; libraries: {score.versions})",
        f"  published as  {row['mem_raw']} {row['mem_unit']}, {row['metric'] or score.measure} {row['outcome']}",
        f"  settings      {json.dumps(dict(question.trace))}",
        f"                micro-batch {question.micro_batch}, {question.accumulation_steps} accumulation steps, "
        f"{question.replicas} replicas, {question.sharding}",
    ]
    if score.reason:
        return "\n".join([*lines, f"  no prediction: {score.reason}"])
    if "profile" in answer:
        lines += _parts(question, answer)
    lines += _difference(score)
    return "\n".join([*lines, *(f"  assumed       {said}" for said in question.assumptions)])


def _parts(question: Question, answer: Mapping[str, Any]) -> list[str]:
    profile = profile_of(question, answer)
    peak = profile.peak(question.micro_batch, question.accumulation_steps)
    return [
        f"  peak          {format_bytes(peak.allocated_bytes)} in {peak.binding_phase}, {peak.line.where}",
        *(f"                {format_bytes(nbytes):>12} {part}" for part, nbytes in peak.parts.items()),
        *(f"  assumed       {said}" for said in profile.assumptions),
    ]


def _difference(score: Score) -> list[str]:
    assert score.low is not None
    assert score.high is not None
    span = format_bytes(score.low) + (f" to {format_bytes(score.high)}" if score.high != score.low else "")
    lines = [f"  predicted     {span} {score.measure.replace('_', ' ')}"]
    if score.right is not None:
        return [*lines, f"  judged        {'rightly' if score.right else 'wrongly'}"]
    assert score.measured is not None
    assert score.error is not None
    return [*lines, f"  measured      {format_bytes(score.measured)}, difference {100 * score.error:+.2f} %"]
