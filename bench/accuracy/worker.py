"""Traces what it is asked for: a JSON document a line on stdin, an answer a line on stdout.

Run in a process of its own, so that a run can be traced with the libraries of its time, and so that a trace that
breaks takes nothing with it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from bench.accuracy import flash
from bench.accuracy.earlier_torch import keeping_as


def answer(asked: Mapping[str, Any], micro_batches: tuple[int, ...]) -> dict[str, Any]:
    """The profile of what is asked for; for a question about moments of a step, the bytes at each."""
    from batchfit.trace import trace
    from batchfit.trace.varying import VaryingLengths
    from bench.accuracy import megatron_step, timm_steps
    from bench.accuracy.building import checkpoints_itself, training
    from bench.accuracy.fused_kernels import replaced
    from bench.accuracy.orders import orders

    if "program" in asked:
        return timm_steps.answer(asked, micro_batches)
    if "rank" in asked:
        return megatron_step.answer(asked, micro_batches)
    made = training(asked)
    if asked.get("moments"):
        return {"moments": {str(b): _moments(made, asked, b) for b in micro_batches}}
    precision = f"{asked['mixed']}-mixed" if asked.get("mixed") else asked["weights"]
    with_trainer = asked.get("trainer", "none")
    varied = asked.get("lengths")
    steps: list[VaryingLengths] = []
    with replaced(asked["config"]["model_type"], asked.get("kernels", ())):
        profile = trace(
            made.model if with_trainer != "none" else made,
            made.make_batch if with_trainer != "none" else None,
            loss=asked.get("loss", "full"),
            precision=precision,
            optimizer="sgd" if made.optimizer else asked.get("optimizer", "adamw"),
            checkpointing="none" if checkpoints_itself(asked) else asked.get("checkpointing", "none"),
            attention=asked.get("attention", "sdpa"),
            max_grad_norm=asked.get("max_grad_norm"),
            trainer=with_trainer,
            flat_gradients=asked.get("flat_gradients", False),
            compile=asked.get("compile", "none"),
            allocator=asked.get("allocator"),
            seq_len=(varied["shortest"], asked["seq_len"]) if varied else None,
            micro_batches=micro_batches,
            on_lengths=steps.append if varied else None,
            name=asked["config"]["model_type"],
        )
    if varied:
        return {"orders": {str(b): orders(steps[0], varied, asked["seq_len"], b) for b in micro_batches}}
    return {"profile": profile.to_json()}


def _moments(made: Any, asked: Mapping[str, Any], micro_batch: int) -> dict[str, int]:
    """Bytes alive when the first forward ends and when its backward has."""
    from batchfit.trace.job import trace_timeline
    from batchfit.trace.settings import Settings
    from batchfit.trace.timeline import MARK

    settings = Settings(
        precision=asked["weights"],
        optimizer="sgd",
        checkpointing=asked.get("checkpointing", "none"),
        attention=asked.get("attention", "sdpa"),
    )
    timeline = trace_timeline(made.model, made.make_batch, micro_batch, settings, loss=made.loss, steps=(1,))
    found: dict[str, int] = {}
    before = 0
    for event, alive in timeline.live():
        if event.kind == MARK:
            phase = timeline.marks[event.stack].phase
            if phase == "backward":
                found.setdefault("after_forward", before)
            elif phase == "optimizer":
                found.setdefault("after_backward", before)
        before = alive
    return found


def main() -> None:
    """Answers line by line until there is no more."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    if flash.is_wanted():
        flash.stand_in()
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        for line in sys.stdin:
            request = json.loads(line)
            try:
                with keeping_as(request["torch"]):
                    given = answer(request["trace"], tuple(request["micro_batches"]))
            except Exception as error:
                given = {
                    "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
                }
            out.write(json.dumps(given) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
