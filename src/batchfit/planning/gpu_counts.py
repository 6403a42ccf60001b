"""One effective batch held across GPU counts: what to set on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from batchfit.planning.result import COLUMNS, Plan, Plans, cells, what_is_trained
from batchfit.sentences import Sentence


@dataclass(frozen=True, slots=True)
class ElasticRow:
    """The best plan on `gpus` GPUs: exact where that fits, else the nearest, else what comes closest in memory."""

    gpus: int
    plan: Plan | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return {"gpus": self.gpus, "why": self.why, "plan": self.plan.to_dict() if self.plan else None}


@dataclass(frozen=True, slots=True)
class Elastic:
    """The table. `answers` are the full answers, one for each number of GPUs."""

    answers: tuple[Plans, ...]

    @property
    def rows(self) -> tuple[ElasticRow, ...]:
        """One row for each number of GPUs; times are relative to the fastest of the table."""
        rows = [_row(answer) for answer in self.answers]
        times = [row.plan.seconds_per_sample if row.plan else None for row in rows]
        fastest = min((time for time in times if time is not None), default=0.0)
        return tuple(
            replace(row, plan=replace(row.plan, relative_step_time=time / fastest))
            if row.plan and time is not None
            else row
            for row, time in zip(rows, times, strict=True)
        )

    @property
    def fits(self) -> bool:
        """Whether any number of GPUs has a plan."""
        return any(answer.plans for answer in self.answers)

    @property
    def sentence(self) -> Sentence:
        """The answer in one sentence."""
        first = self.answers[0]
        fitting = [str(answer.gpus) for answer in self.answers if answer.plans]
        asked = {
            "target": first.target.said,
            "what": what_is_trained(first.model, first.seq_len),
            "gpu": first.gpu,
        }
        if not fitting:
            return Sentence("{target} of {what} fit on none of these numbers of {gpu}.", **asked)
        counts = ", ".join(fitting)
        return Sentence("{target} of {what} fit on {counts} × {gpu}.", counts=counts, **asked)

    def to_dict(self) -> dict[str, Any]:
        """The table as data, with the plans and the rest of the smallest count that fits, else of the largest."""
        chosen = next((answer for answer in self.answers if answer.plans), self.answers[-1])
        return {
            **chosen.to_dict(),
            "sentence": self.sentence,
            "elastic": [row.to_dict() for row in self.rows],
        }

    def records(self) -> list[dict[str, Any]]:
        """One flat record for each number of GPUs that has a plan."""
        return [record for answer in self.answers for record in answer.records()[:1]]

    def __iter__(self) -> Iterator[ElasticRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.answers)

    def __str__(self) -> str:
        lines = [self.sentence, "", "  ".join(("on", *COLUMNS))]
        for row in self.rows:
            shown = cells(row.plan) if row.plan else ("no plan",)
            lines.append("  ".join((str(row.gpus), *shown)))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("on", *COLUMNS, ""))
        rows = (
            (str(row.gpus), *(cells(row.plan) if row.plan else [""] * len(COLUMNS)), row.why) for row in self
        )
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return (
            f"<p><strong>{escape(self.sentence)}</strong></p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def _row(answer: Plans) -> ElasticRow:
    best = answer.best
    if best is not None and best.replicas == answer.gpus:
        return ElasticRow(answer.gpus, best, "")
    if best is not None:
        return ElasticRow(answer.gpus, best, fewer_used(best.replicas, answer.gpus))
    if answer.nearest:
        closest = min(answer.nearest, key=lambda near: abs(near.plan.drift))
        return ElasticRow(answer.gpus, closest.plan, closest.why)
    return ElasticRow(answer.gpus, None, Sentence("nothing fits"))


def fewer_used(used: int, gpus: int) -> Sentence:
    """That a plan leaves GPUs idle."""
    return Sentence("{used} of {gpus} GPUs are used", used=used, gpus=gpus)
