"""The search: every candidate of every option is scored, and the best become plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from batchfit.planning.candidates import candidates
from batchfit.planning.envelope import Envelope
from batchfit.planning.fit import Verdict
from batchfit.planning.options import Option
from batchfit.planning.rank import Scores, order, simplicity
from batchfit.planning.request import Request
from batchfit.planning.result import Plan
from batchfit.planning.throughput import model_error
from batchfit.planning.traits import kind_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def search(found: Sequence[Option], request: Request) -> Scores:
    """The scores of every candidate that fits, at least tightly."""
    return _joined([score(index, option, request) for index, option in enumerate(found)])


def score(index: int, option: Option, request: Request) -> Scores:
    """The candidates of one option that fit. Memory and time are computed once for each micro-batch, not for each
    candidate, since they follow from it and from whether there is accumulation."""
    import numpy as np

    envelope = option.envelope
    most = envelope.largest(option.capacity.capacity_bytes, accumulates=False)
    if most < (request.micro_batch or 1):
        return _none()
    micro, steps = candidates(
        request.target,
        option.replicas,
        most_micro_batch=most,
        micro_batch=request.micro_batch,
        accumulation_steps=request.accumulation_steps,
        most_accumulation_steps=request.most_accumulation,
    )
    # Candidates ascend in the micro-batch: each one's first is where it differs from the one before.
    first = np.append(True, micro[1:] != micro[:-1])[: len(micro)]
    tried, place = micro[first], np.cumsum(first) - 1
    alone, accumulating = (_peaks(envelope, tried, accumulates) for accumulates in (False, True))
    several = steps > 1
    allocated = np.where(several, accumulating[0][place], alone[0][place])
    most_bytes = np.where(several, accumulating[1][place], alone[1][place])
    room = option.capacity
    fits = allocated <= room.capacity_bytes
    samples = micro * steps * option.replicas
    if option.clock is None:
        seconds = 1.0 / (micro * option.replicas)
    else:
        per_micro, once = option.clock.micro(tried), option.clock.once(tried)
        seconds = (steps * per_micro[place] + once[place]) / samples
    return Scores(
        option=np.full(int(fits.sum()), index, dtype=np.int32),
        micro_batch=micro[fits],
        accumulation_steps=steps[fits],
        drift=(samples - request.target.samples)[fits],
        peak_bytes=most_bytes[fits],
        tight=(most_bytes > room.capacity_bytes - room.headroom_bytes)[fits],
        seconds=seconds[fits],
    )


def _peaks(
    envelope: Envelope, tried: NDArray[np.int64], accumulates: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Allocated peaks, and the larger of allocated and reserved ones."""
    import numpy as np

    allocated = envelope.allocated(tried, accumulates)
    reserved = envelope.reserved(tried, allocated, accumulates)
    return allocated, allocated if reserved is None else np.maximum(allocated, reserved)


def _joined(parts: Sequence[Scores]) -> Scores:
    import numpy as np

    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else _none()
    names = ("option", "micro_batch", "accumulation_steps", "drift", "peak_bytes", "tight", "seconds")
    return Scores(**{name: np.concatenate([getattr(part, name) for part in filled]) for name in names})


@cache
def _none() -> Scores:
    import numpy as np

    empty = np.empty(0, dtype=np.int64)
    return Scores(empty.astype(np.int32), empty, empty, empty, empty, empty.astype(bool), empty.astype(float))


def best_first(scores: Scores, found: Sequence[Option]) -> list[int]:
    """The candidates' indices, best first."""
    import numpy as np

    steps = np.array([simplicity(option.sharding, option.checkpointing) for option in found], dtype=np.int64)
    timed = all(option.clock is not None for option in found)
    # Without a model of time there is no error of it; the fewest micro-batches come first.
    return [int(index) for index in order(scores, steps, model_error() if timed else 1e-9)]


def plans_at(
    indices: Iterable[int], scores: Scores, found: Sequence[Option], request: Request
) -> tuple[Plan, ...]:
    """The candidates as plans, their times relative to the fastest of them."""
    chosen = list(indices)
    fastest = min((float(scores.seconds[index]) for index in chosen), default=1.0)
    made = []
    for index in chosen:
        option = found[int(scores.option[index])]
        relative = float(scores.seconds[index]) / fastest if option.clock else None
        batch = int(scores.micro_batch[index]), int(scores.accumulation_steps[index])
        made.append(make_plan(option, request, *batch, relative))
    return tuple(made)


def make_plan(
    option: Option, request: Request, micro_batch: int, accumulation_steps: int, relative: float | None = None
) -> Plan:
    """One plan in full, whether it fits or not."""
    peak = option.profile.peak(micro_batch, accumulation_steps, option.seq_len)
    kind = kind_of(option.profile)
    effective = micro_batch * accumulation_steps * option.replicas
    verdict: Verdict = option.capacity.verdict(peak.allocated_bytes, peak.reserved_bytes)
    return Plan(
        micro_batch=micro_batch,
        accumulation_steps=accumulation_steps,
        replicas=option.replicas,
        effective_batch=effective,
        drift=effective - request.target.samples,
        sharding=option.sharding,
        checkpointing=option.checkpointing,
        precision=kind.precision,
        optimizer=kind.optimizer,
        lora_rank=kind.lora_rank,
        quantize=kind.quantize,
        attention=kind.attention,
        seq_len=option.seq_len,
        gpu=request.gpu.id,
        peak_allocated_bytes=peak.allocated_bytes,
        peak_reserved_bytes=peak.reserved_bytes,
        capacity_bytes=option.capacity.capacity_bytes,
        verdict=verdict,
        binding_phase=peak.binding_phase,
        binding_where=peak.line.where,
        parts=peak.parts,
        relative_step_time=relative,
        time=option.clock.explain(micro_batch, accumulation_steps) if option.clock else None,
        activations=peak.activations,
    )
