"""A profile's peak at many micro-batches at once: what `MemoryProfile.peak` says, for arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchfit.profile import NO_LIMIT, PHASES, MemoryProfile, evaluate, reserved_over_allocated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Sizes = NDArray[np.float64]


class Envelope:
    """The lines of a profile at one sequence length, ready to be evaluated at arrays of micro-batches.

    A server keeps a thousand of them, so they hold numbers alone and not the profile, whose lines Python's garbage
    collector would walk over again and again.
    """

    __slots__ = ("_known_ratios", "_lines", "_replayed", "_seq_len")

    def __init__(self, profile: MemoryProfile, seq_len: int | None) -> None:
        lines = {
            phase: [
                (evaluate(line.constant, seq_len), evaluate(line.per_sample, seq_len))
                for line in profile.phases.get(phase, ())
            ]
            for phase in PHASES
        }
        # Those of the phases that occur, without accumulation and with it.
        self._lines = {
            accumulates: _highest(
                [line for phase in PHASES if accumulates or phase != "later_micro" for line in lines[phase]]
            )
            for accumulates in (False, True)
        }
        self._replayed = profile.reserved
        self._seq_len = seq_len
        self._known_ratios: dict[bool, tuple[tuple[int, ...], tuple[float, ...]]] = {}

    def largest(self, capacity_bytes: int, accumulates: bool) -> int:
        """The largest micro-batch whose allocated peak is at most `capacity_bytes`; 0 where none is."""
        largest = NO_LIMIT
        for constant, slope in self._lines[accumulates]:
            # Peaks are rounded to whole bytes, so half a byte more still fits.
            room = capacity_bytes + 0.5 - constant
            if slope > 0:
                largest = min(largest, int(room // slope))
            elif room + slope * 1 < 0:
                return 0
        return max(0, largest)

    def allocated(self, micro_batch: Counts, accumulates: bool) -> Counts:
        """The allocated peak in bytes at each micro-batch."""
        peaks: Counts = allocated([self], micro_batch, accumulates)[0]
        return peaks

    def reserved(self, micro_batch: Counts, allocated: Counts, accumulates: bool) -> Counts | None:
        """The reserved peak in bytes where the profile was replayed through the allocator, else None."""
        import numpy as np

        if not self._replayed:
            return None
        asked, ratios = self._ratios(accumulates)
        return _whole(allocated * np.interp(micro_batch, asked, ratios))

    def _ratios(self, accumulates: bool) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Reserved over allocated where it was replayed; the profile interpolates between, as `np.interp` does."""
        found = self._known_ratios.get(accumulates)
        if found is None:
            asked = tuple(sorted({1, *(point.micro_batch for point in self._replayed)}))
            ratios = tuple(
                [reserved_over_allocated(self._replayed, b, accumulates, self._seq_len) or 1.0 for b in asked]
            )
            found = self._known_ratios[accumulates] = asked, ratios
        return found


def allocated(envelopes: Sequence[Envelope], micro_batch: Counts, accumulates: bool) -> Counts:
    """The allocated peaks in bytes of several profiles, a row each, at each micro-batch."""
    import numpy as np

    lines = [envelope._lines[accumulates] for envelope in envelopes]
    most = max(map(len, lines))
    nothing = ((float("-inf"), 0.0),)
    table = np.array([each + nothing * (most - len(each)) for each in lines]).reshape(len(lines), most, 2)
    sizes = table[:, :, :1] + table[:, :, 1:] * micro_batch
    return _whole(sizes.max(axis=1, initial=0.0))


def _highest(lines: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The lines that are the highest anywhere from a micro-batch of 1 on, and few others: of a profile's dozens, some
    three decide."""
    kept: list[tuple[float, float]] = []
    steepest = float("-inf")
    for constant, slope in sorted(lines, key=lambda line: (-(line[0] + line[1]), -line[1])):
        # Whatever comes later is lower at 1, so it is only ever higher by being steeper.
        if slope > steepest:
            kept.append((constant, slope))
            steepest = slope
    return tuple(kept)


#: More bytes than any GPU has, yet far from where 64-bit whole numbers end: a billion samples of a large model pass it.
_MOST_BYTES = 2.0**62


def _whole(sizes: Sizes) -> Counts:
    """Bytes rounded to whole ones; what is beyond any memory is held where it still compares as such."""
    import numpy as np

    return np.rint(np.minimum(sizes, _MOST_BYTES)).astype(np.int64)
