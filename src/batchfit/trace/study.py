"""Which traces of a step are made: few small ones, that tell of a model of any depth at any micro-batch and length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

from batchfit.errors import BadInput
from batchfit.trace.blocks import Depths, Run, runs_of
from batchfit.trace.changes import change_within, changes_at
from batchfit.trace.fold import Fold, Growth, fold, growth
from batchfit.trace.job import Job
from batchfit.trace.kinds import Kinds
from batchfit.trace.lengths import Lengths
from batchfit.trace.own_step import OwnStep
from batchfit.trace.phases import alike
from batchfit.trace.surface import Pair, Surface
from batchfit.trace.timeline import Timeline

#: The micro-batches traced (with one sample strides are ambiguous, and copies are skipped), and the one at which the
#: lines that they give are checked.
TRACED = (2, 3)
CHECKED_AT = 5

#: How many copies of each run of blocks are tried, the first that repeat as one more does.
_COPIES = (2, 3, 4)

#: A run can be folded where it has so many copies.
_LEAST_COPIES = 5

#: Told what runs now and which part of the whole is done, from 0 to 1.
Progress = Callable[[str, float], None]


@dataclass(slots=True)
class Deeper:
    """The same step with one copy more of a run, of which the whole model has `extra` more than the study."""

    model: nn.Module
    extra: int
    growth: Growth
    #: At each length: at the smaller micro-batch, and at the one that checks.
    pairs: list[Pair]


@dataclass(slots=True)
class Study:
    """The traces of a step. `pairs` are at the two micro-batches, one pair a length."""

    model: nn.Module
    pairs: list[Pair]
    lengths: Lengths
    fold: Fold = field(default_factory=Fold)
    deeper: list[Deeper] = field(default_factory=list)
    #: The step at another micro-batch, of a model with one copy more of the first run where there is one.
    check: Timeline | None = None
    #: The same for another length, at the smaller micro-batch and as many copies as the pairs have.
    length_check: Timeline | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def is_regular(self) -> bool:
        """Whether all timelines have the same events, so that sizes can be told for every micro-batch and length."""
        first = self.pairs[0].small
        return all(alike(first, timeline) for pair in self.pairs for timeline in (pair.small, pair.large))

    def surface(self) -> Surface:
        """The whole model's step. Only of a regular study."""
        extras = [deeper.extra for deeper in self.deeper]
        stretched = [self._stretched(number, extras) for number in range(len(self.pairs))]
        kinds = Kinds(self.model, self.pairs[0].small)
        return Surface(self.pairs, TRACED, self.fold, self.lengths, stretched, kinds if kinds.tells else None)

    def check_surface(self) -> Surface:
        """The step of as many blocks as `check` is of, at the first length."""
        once = fold([(self.deeper[0].growth, 1)]) if self.deeper else Fold()
        stretched = self._stretched(0, [1] + [0] * (len(self.deeper) - 1))
        return Surface(self.pairs[:1], TRACED, once, Lengths(), [stretched])

    def length_check_surface(self) -> Surface:
        """The step of as many blocks as `length_check` is of, at all lengths."""
        return Surface(self.pairs, TRACED, Fold(), self.lengths)

    def _stretched(self, number: int, extras: Sequence[int]) -> dict[int, tuple[int, int]]:
        """By how much so many further copies of each run make events larger, at one of the lengths: a line over the
        micro-batch, as sizes are."""
        base = self.pairs[number]
        found: dict[int, tuple[int, int]] = {}
        for deeper, extra in zip(self.deeper, extras, strict=False):
            deep = deeper.pairs[number]
            for index, other in deeper.growth.stretched.items():
                small, large = base.small.events[index].nbytes, base.large.events[index].nbytes
                at_check = small + (large - small) * (CHECKED_AT - TRACED[0]) // (TRACED[1] - TRACED[0])
                low = deep.small.events[other].nbytes - small
                high = deep.large.events[other].nbytes - at_check
                slope = (high - low) // (CHECKED_AT - TRACED[0])
                before = found.get(index, (0, 0))
                found[index] = (
                    before[0] + extra * low,
                    before[1] + extra * (low + slope * (TRACED[1] - TRACED[0])),
                )
        return found


def study(job: Job | OwnStep, lengths: Lengths, tell: Progress, *, folding: bool = True) -> Study:
    """Traces what is needed, with few of the blocks that repeat where that is sound, else with all.

    Raises BadInput where the step is another one from some length in the range on.
    """
    refused: tuple[str, ...] = ()
    if folding and isinstance(job, Job):
        runs = _worthwhile(job.source, runs_of(job.source, _LEAST_COPIES))
        if runs:
            found = _folded(job, runs, lengths, tell)
            if found is not None:
                return found
            refused = (_REFUSED.format(_named(runs)),)
    return _whole(job, lengths, tell, refused)


_REFUSED = "All of {} were traced: one more or fewer of these blocks changes more than what a block adds."
_FOLDED = "Of {} a few were traced; each further one adds what the last of them added."


def _named(runs: Sequence[Run]) -> str:
    return " and ".join(f"{run.path} ({run.period * run.copies} blocks)" for run in runs)


def _worthwhile(model: nn.Module, runs: Sequence[Run]) -> list[Run]:
    """Those that, folded together, leave the fewest blocks to trace.

    At each length the model is traced twice with few copies of each, and for each run twice with a copy more. So a
    short run next to a long one, or many short ones, can cost more than they leave out.
    """
    blocks = sum(len(list(model.get_submodule(path).children())) for path in {run.path for run in runs})

    def left_out(run: Run) -> int:
        return run.period * (run.copies - _COPIES[0])

    def traced(folded: Sequence[Run]) -> int:
        few = blocks - sum(map(left_out, folded))
        return 2 * few + sum(2 * (few + run.period) for run in folded)

    longest = sorted(runs, key=left_out, reverse=True)
    chosen = min((longest[:count] for count in range(len(runs) + 1)), key=traced)
    return [run for run in runs if run in chosen]


def _whole(job: Job | OwnStep, lengths: Lengths, tell: Progress, assumptions: tuple[str, ...]) -> Study:
    several = lengths.traced if lengths.is_range else (None,)
    total = len(several) * len(TRACED) + 1 + (lengths.checked_at is not None)
    count = 0

    def traced(micro_batch: int, length: int | None) -> Timeline:
        nonlocal count
        count += 1
        tell(_step_name(micro_batch, length), count / (total + 1))
        return _timeline(job, micro_batch, length)

    pairs = [Pair(*(traced(b, length) for b in TRACED)) for length in several]
    made = Study(job.model, pairs, lengths, assumptions=assumptions)
    _check_lengths(made, lambda length: _timeline(job, TRACED[0], length))
    made.check = traced(CHECKED_AT, several[0])
    if lengths.checked_at is not None:
        made.length_check = traced(TRACED[0], lengths.checked_at)
    return made


def _check_lengths(made: Study, timeline: Callable[[int], Timeline]) -> None:
    """Raises BadInput where the step is the same at each micro-batch, but from some length on another one."""
    if made.is_regular or not all(alike(pair.small, pair.large) for pair in made.pairs):
        return
    change = change_within(made.lengths, timeline)
    if change is not None:
        raise changes_at(made.lengths, *change)


def _step_name(micro_batch: int, length: int | None) -> str:
    return f"tracing micro-batch {micro_batch}" + (f" of {length} tokens" if length else "")


def _timeline(job: Job | OwnStep, micro_batch: int, length: int | None) -> Timeline:
    if length is None:
        return job.timeline(micro_batch)
    if not isinstance(job, Job):
        raise BadInput(
            "seq_len", "must be one number with a step of your own, which makes its batches itself"
        )
    return job.timeline(micro_batch, seq_len=length)


def _folded(job: Job, runs: Sequence[Run], lengths: Lengths, tell: Progress) -> Study | None:
    """The study of a few copies; None where they do not repeat as they must."""
    for copies in _COPIES:
        if any(run.copies < copies + 1 for run in runs):
            return None
        base = dict.fromkeys(runs, copies)
        found = _Folding(job, runs, base, lengths, tell).study()
        if found is not None:
            return found
    return None


class _Folding:
    """Tries to fold with so many copies of each run."""

    def __init__(
        self, job: Job, runs: Sequence[Run], depths: Depths, lengths: Lengths, tell: Progress
    ) -> None:
        self._job = job
        self._runs = runs
        self._depths = depths
        self._lengths = lengths
        self._several = lengths.traced if lengths.is_range else (None,)
        self._tell = tell
        self._done = 0
        self._total = (len(self._several) * 2) * (1 + len(runs)) + (lengths.checked_at is not None) + 1

    def _traced(self, job: Job, micro_batch: int, length: int | None) -> Timeline:
        self._done += 1
        self._tell(_step_name(micro_batch, length), self._done / self._total)
        return _timeline(job, micro_batch, length)

    def study(self) -> Study | None:
        job = self._job.at(self._depths)
        first = self._traced(job, TRACED[0], self._several[0])
        jobs = [self._job.at({**self._depths, run: self._depths[run] + 1}) for run in self._runs]
        growths: list[Growth] = []
        small: list[Timeline] = []
        for deep in jobs:
            small.append(self._traced(deep, TRACED[0], self._several[0]))
            grown = growth(first, small[-1])
            if grown is None:
                return None
            growths.append(grown)
        extras = [run.copies - self._depths[run] for run in self._runs]
        whole = fold(zip(growths, extras, strict=True))
        if whole is None:
            return None
        pairs = [Pair(first, self._traced(job, TRACED[1], self._several[0]))]
        pairs += [Pair(*(self._traced(job, b, length) for b in TRACED)) for length in self._several[1:]]
        made = Study(job.model, pairs, self._lengths, whole)
        _check_lengths(made, lambda length: self._traced(job, TRACED[0], length))
        if not made.is_regular:
            return None
        for deep, grown, extra, timeline in zip(jobs, growths, extras, small, strict=True):
            own = [Pair(timeline, self._traced(deep, CHECKED_AT, self._several[0]))]
            own += [
                Pair(*(self._traced(deep, b, length) for b in (TRACED[0], CHECKED_AT)))
                for length in self._several[1:]
            ]
            made.deeper.append(Deeper(deep.model, extra, grown, own))
        made.check = made.deeper[0].pairs[0].large
        if self._lengths.checked_at is not None:
            made.length_check = self._traced(job, TRACED[0], self._lengths.checked_at)
        made.assumptions = (_FOLDED.format(_named(self._runs)),)
        return made
