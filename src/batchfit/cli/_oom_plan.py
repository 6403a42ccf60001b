"""What to set instead, after an out-of-memory message: the plan for the GPU that the message is from."""

from __future__ import annotations

from dataclasses import dataclass

import click

from batchfit.cli._profiles import profiles_of
from batchfit.errors import BadInput
from batchfit.oom import OutOfMemory
from batchfit.planning import Plans, plan
from batchfit.units import format_bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `--model` and its companions ask for. `gpu` only where the message does not tell it."""

    model: str
    batch: str
    gpu: str | None
    gpus: int | None
    seq_len: int | None


def plan_after(message: OutOfMemory, ranks: int, wanted: Wanted) -> Plans:
    """Plans on the message's GPU, as many as there are ranks in the log unless a number is given.

    Memory that other processes hold is not there for the plan either. Raises click.UsageError.
    """
    there = message.gpus()
    gpu = wanted.gpu or (there[0].id if there else None)
    if gpu is None:
        raise click.UsageError("--gpu is needed: the message does not tell which card it is from")
    try:
        return plan(
            profiles_of((wanted.model,)),
            batch=wanted.batch,
            gpu=gpu,
            gpus=wanted.gpus or max(1, ranks),
            seq_len=wanted.seq_len,
        )
    except BadInput as wrong:
        raise click.UsageError(f"--{wrong.field.replace('_', '-')} {wrong.reason}") from None


def as_text(answer: Plans, message: OutOfMemory) -> str:
    """The plan, or what to change where nothing fits, below the message's own advice."""
    lines = [click.style("What to set", bold=True), "", answer.sentence]
    if message.elsewhere:
        lines.append(f"Other processes hold {format_bytes(message.elsewhere)} of that card: end them first.")
    lines += answer.notes[:1] + tuple(advice.text for advice in answer.advice)
    return "\n".join(lines)
