"""The search: every candidate of every option is scored, and the best become plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from batchfit.planning.candidates import candidates
from batchfit.planning.costs import Costs
from batchfit.planning.envelope import allocated
from batchfit.planning.fit import Verdict
from batchfit.planning.options import Option
from batchfit.planning.rank import Scores, order, simplicity
from batchfit.planning.request import Request
from batchfit.planning.result import Plan
from batchfit.planning.throughput import model_error
from batchfit.planning.traits import kind_of
from batchfit.profile import NO_LIMIT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from batchfit.planning.envelope import Counts

T = TypeVar("T")

#: Candidates of several options are scored at once, up to so many numbers in an array.
_MOST_AT_ONCE = 1_000_000


def search(found: Sequence[Option], request: Request) -> Scores:
    """The scores of every candidate that fits, at least tightly."""
    most = {
        index: each
        for index, option in enumerate(found)
        if request.reaches(option.replicas)
        and (each := option.envelope.largest(option.capacity.capacity_bytes, accumulates=False))
    }
    largest: dict[int, int] = {}
    for index, each in most.items():
        largest[found[index].replicas] = max(each, largest.get(found[index].replicas, 0))
    tried = {replicas: _Tried.of(replicas, each, request) for replicas, each in largest.items()}
    parts = []
    for replicas, run in groupby(most, key=lambda index: found[index].replicas):
        for group in tried[replicas].at_once(list(run)):
            parts.append(_scores(group, found, tried[replicas], request))
    return _joined(parts)


def least_peaks(found: Sequence[Option], request: Request) -> dict[int, int]:
    """The smallest peak in bytes, with what the allocator reserves, of all candidates whatever the card has: for each
    number of replicas that reaches the target."""
    least: dict[int, int] = {}
    for replicas, run in groupby(found, key=lambda option: option.replicas):
        if not request.reaches(replicas):
            continue
        tried = _Tried.of(replicas, NO_LIMIT, request)
        if len(tried.micro):
            parts = (_sizes(group, tried)[1] for group in tried.at_once(list(run)))
            least[replicas] = min(int(part.min()) for part in parts)
    return least


@dataclass(frozen=True, slots=True)
class _Tried:
    """The candidates on a number of replicas, ascending in the micro-batch; each micro-batch once, `alone`, and at
    which `place` among these the candidates have theirs."""

    micro: Counts
    steps: Counts
    alone: Counts
    place: NDArray[np.intp]

    @classmethod
    def of(cls, replicas: int, most: int, request: Request) -> _Tried:
        """Those of micro-batches up to `most`."""
        import numpy as np

        micro, steps = candidates(
            request.target,
            replicas,
            most_micro_batch=most,
            micro_batch=request.micro_batch,
            accumulation_steps=request.accumulation_steps,
            most_accumulation_steps=request.most_accumulation,
        )
        # Candidates ascend in the micro-batch: each one's first is where it differs from the one before.
        first = np.append(True, micro[1:] != micro[:-1])[: len(micro)]
        return cls(micro, steps, micro[first], np.cumsum(first) - 1)

    def at_once(self, options: Sequence[T]) -> Iterator[Sequence[T]]:
        """The options in groups for which all candidates are evaluated at once."""
        most = max(1, _MOST_AT_ONCE // (len(self.micro) or 1))
        return (options[start : start + most] for start in range(0, len(options), most))


def _scores(indices: Sequence[int], found: Sequence[Option], tried: _Tried, request: Request) -> Scores:
    """The candidates of some options, all of as many replicas, that fit."""
    import numpy as np

    if not len(tried.micro):
        return _none()
    group = [found[index] for index in indices]
    peaks, most_bytes = _sizes(group, tried)
    capacity, headroom = (
        np.array([[getattr(option.capacity, name)] for option in group], dtype=np.int64)
        for name in ("capacity_bytes", "headroom_bytes")
    )
    samples = tried.micro * tried.steps * group[0].replicas
    option, candidate = np.nonzero(peaks <= capacity)
    if not len(option):
        return _none()
    return Scores(
        option=np.array(indices, dtype=np.int32)[option],
        micro_batch=tried.micro[candidate],
        accumulation_steps=tried.steps[candidate],
        drift=(samples - request.target.samples)[candidate],
        peak_bytes=most_bytes[option, candidate],
        tight=(most_bytes > capacity - headroom)[option, candidate],
        seconds=_seconds(group, tried, samples)[option, candidate],
    )


def _seconds(group: Sequence[Option], tried: _Tried, samples: Counts) -> NDArray[np.float64]:
    """Seconds per sample of each option's candidates; where no time can be told, see Scores."""
    import numpy as np

    clocks = [option.clock for option in group]
    untimed = 1.0 / (tried.micro * group[0].replicas)
    if None in clocks:
        rows = [_seconds([option], tried, samples)[0] if option.clock else untimed for option in group]
        return np.array(rows)
    per_micro, once = Costs.stacked([clock.costs for clock in clocks if clock]).times(tried.alone)
    seconds: NDArray[np.float64] = (tried.steps * per_micro[:, tried.place] + once[:, tried.place]) / samples
    return seconds


def _sizes(group: Sequence[Option], tried: _Tried) -> tuple[Counts, Counts]:
    """Allocated peaks, and the larger of allocated and reserved ones, of each option's candidates. They are computed
    once for each micro-batch, as times are, since they follow from it and from whether there is accumulation."""
    import numpy as np

    place, several = tried.place, tried.steps > 1
    alone, accumulating = (_peaks(group, tried.alone, accumulates) for accumulates in (False, True))
    return (
        np.where(several, accumulating[0][:, place], alone[0][:, place]),
        np.where(several, accumulating[1][:, place], alone[1][:, place]),
    )


def _peaks(group: Sequence[Option], tried: Counts, accumulates: bool) -> tuple[Counts, Counts]:
    """Allocated peaks, and the larger of allocated and reserved ones, a row for each option."""
    import numpy as np

    envelopes = [option.envelope for option in group]
    peaks = allocated(envelopes, tried, accumulates)
    most = peaks.copy()
    for row, envelope in enumerate(envelopes):
        reserved = envelope.reserved(tried, peaks[row], accumulates)
        if reserved is not None:
            np.maximum(peaks[row], reserved, out=most[row])
    return peaks, most


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

    if not len(scores):
        return []
    steps = np.array([simplicity(option.sharding, option.checkpointing) for option in found], dtype=np.int64)
    timed = all(option.timed for option in found)
    # Without a model of time there is no error of it; the fewest micro-batches come first.
    found_order: list[int] = order(scores, steps, model_error() if timed else 1e-9).tolist()
    return found_order


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
