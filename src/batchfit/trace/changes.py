"""Where in a range of sequence lengths a step becomes another one.

Attention over a window, to name one, is masked only where samples are longer than the window, and runs in another
kernel there. No polynomial tells of the lengths on both sides.
"""

from __future__ import annotations

from collections.abc import Callable

from batchfit.errors import BadInput
from batchfit.trace.lengths import Lengths
from batchfit.trace.phases import alike
from batchfit.trace.timeline import Timeline

#: Kernels take rows of a multiple of so many tokens; others are padded first, which is a step of its own.
_ALIGNED = 8


def change_within(lengths: Lengths, timeline: Callable[[int], Timeline]) -> tuple[int, int] | None:
    """The last length at which the step has the events that it has at the range's shortest, and the first at which it
    has those of the longest; None where it is not parted in two so. `timeline` traces it at a length."""
    before, after = lengths.traced[0], lengths.traced[-1]
    first, last = timeline(before), timeline(after)
    if alike(first, last):
        return None
    while after - before > _ALIGNED:
        middle = _middle(before, after)
        found = timeline(middle)
        if alike(found, first):
            before = middle
        elif alike(found, last):
            after = middle
        else:
            return None
    # Between them may be lengths of a third kind.
    found_at = {length: timeline(length) for length in range(before + 1, after)}
    while before + 1 in found_at and alike(found_at[before + 1], first):
        before += 1
    while after - 1 in found_at and alike(found_at[after - 1], last):
        after -= 1
    return before, after


def _middle(low: int, high: int) -> int:
    """A multiple of `_ALIGNED` about half way between two lengths that are further apart."""
    found = (low + high) // 2 // _ALIGNED * _ALIGNED
    return found if found > low else found + _ALIGNED


def changes_at(lengths: Lengths, before: int, after: int) -> BadInput:
    """What to say of a range that such a change is in: which two to ask for."""
    return BadInput(
        "seq_len",
        "must be a range over which a training step stays the same; this model's changes after {before} tokens, as "
        "attention over a window does: ask for {shorter}, or for {longer}",
        before=before,
        shorter=_range(lengths.traced[0], before),
        longer=_range(after, lengths.traced[-1]),
    )


def _range(low: int, high: int) -> str:
    return f"{low}..{high}" if low < high else str(low)
