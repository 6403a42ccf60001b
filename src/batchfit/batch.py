"""A batch as it is trained: micro-batch size, accumulation steps and replicas, and the way back from a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Literal

from batchfit.errors import BadInput
from batchfit.formulas import batching

#: What to do with the samples that do not fill a whole effective batch at the end of an epoch.
LastWindow = Literal["drop", "pad", "short"]


def _whole(field: str, value: object, minimum: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise BadInput(
            field,
            "must be a whole number of {minimum} or more; you gave {given}",
            minimum=minimum,
            given=repr(value),
        )
    return value


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over a data set, in optimizer steps.

    `last_step_samples` is what the last optimizer step sees: fewer than the effective batch only where the
    last window is short. A short step's gradient must be divided by what it holds, not by the full window.
    """

    optimizer_steps: int
    samples_used: int
    samples_dropped: int
    samples_padded: int
    last_step_samples: int
    last_step_micro_batches: int


@dataclass(frozen=True, slots=True)
class Batch:
    """How one optimizer step's samples are cut up: `micro_batch` samples at a time on each of `replicas`
    data-parallel replicas, `accumulation_steps` times before the optimizer steps.

    Raises BadInput where a part is not a whole number of 1 or more.

    >>> Batch(4, 8, 1).effective_batch
    32
    """

    micro_batch: int
    accumulation_steps: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        _whole("micro_batch", self.micro_batch)
        _whole("accumulation_steps", self.accumulation_steps)
        _whole("replicas", self.replicas)

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step: E = b·a·g."""
        return batching.effective_batch_size(self.micro_batch, self.accumulation_steps, self.replicas)

    def tokens_per_step(self, seq_len: int) -> int:
        """Tokens per optimizer step, for samples of `seq_len` tokens."""
        return self.effective_batch * _whole("seq_len", seq_len)

    def epoch(self, samples: int, last: LastWindow = "drop") -> Epoch:
        """Optimizer steps in one pass over `samples` samples, and what becomes of the ragged last window.

        `drop` leaves the remainder out, `pad` fills it up with repeated samples, `short` runs one step on it.
        """
        _whole("samples", samples, 0)
        if last not in ("drop", "pad", "short"):
            raise BadInput("last", "must be drop, pad or short; you gave {given}", given=repr(last))
        per_step = self.effective_batch
        full, rest = divmod(samples, per_step)
        per_pass = self.micro_batch * self.replicas
        if rest == 0 or last == "drop":
            return Epoch(
                optimizer_steps=full,
                samples_used=full * per_step,
                samples_dropped=rest,
                samples_padded=0,
                last_step_samples=per_step if full else 0,
                last_step_micro_batches=self.accumulation_steps if full else 0,
            )
        pad = last == "pad"
        return Epoch(
            optimizer_steps=full + 1,
            samples_used=samples,
            samples_dropped=0,
            samples_padded=per_step - rest if pad else 0,
            last_step_samples=per_step if pad else rest,
            last_step_micro_batches=self.accumulation_steps if pad else -(-rest // per_pass),
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to approach a target: the batch, and by how many samples it misses (positive: larger)."""

    batch: Batch
    drift: int


@dataclass(frozen=True, slots=True)
class StepChoices:
    """The accumulation steps around a target. `below` is None where even one step overshoots it."""

    nearest: Choice
    below: Choice | None
    above: Choice

    def __iter__(self) -> Iterator[Choice]:
        """The choices in order, each once: only one where a target is reached exactly."""
        if self.below is not None and self.below != self.above:
            yield self.below
        yield self.above


def solve_steps(target_batch: int, *, micro_batch: int, replicas: int = 1) -> StepChoices:
    """The accumulation steps whose effective batch is nearest to `target_batch` samples, and its neighbours.

    Of two equally near the one with fewer steps is `nearest`. For a target in tokens, see `samples_for_tokens`.
    """
    _whole("target_batch", target_batch)

    def choice(steps: int) -> Choice:
        batch = Batch(micro_batch, steps, replicas)
        return Choice(batch, batching.drift(batch.effective_batch, target_batch))

    Batch(micro_batch, 1, replicas)
    lower = choice(batching.accumulation_steps_below(target_batch, micro_batch, replicas))
    return StepChoices(
        nearest=choice(batching.accumulation_steps_nearest(target_batch, micro_batch, replicas)),
        below=lower if lower.drift <= 0 else None,
        above=choice(batching.accumulation_steps_above(target_batch, micro_batch, replicas)),
    )


def samples_for_tokens(tokens: int, seq_len: int) -> int:
    """The number of samples of `seq_len` tokens nearest to `tokens` tokens; at least 1, halves down."""
    _whole("tokens", tokens)
    _whole("seq_len", seq_len)
    below, rest = divmod(tokens, seq_len)
    return max(1, below + (2 * rest > seq_len))


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def factorings(
    target_batch: int,
    *,
    max_micro_batch: int | None = None,
    max_accumulation_steps: int | None = None,
    max_replicas: int | None = None,
) -> list[Batch]:
    """Every b·a·g that is exactly `target_batch`, under the bounds given; most replicas first, then the
    largest micro-batch, which is the order in which they are usually fastest."""
    _whole("target_batch", target_batch)
    found = []
    for replicas in reversed(_divisors(target_batch)):
        if max_replicas is not None and replicas > max_replicas:
            continue
        per_replica = target_batch // replicas
        for micro_batch in reversed(_divisors(per_replica)):
            steps = per_replica // micro_batch
            if (max_micro_batch is None or micro_batch <= max_micro_batch) and (
                max_accumulation_steps is None or steps <= max_accumulation_steps
            ):
                found.append(Batch(micro_batch, steps, replicas))
    return found
