"""A profile's peak at many micro-batches at once: what `MemoryProfile.peak` says, for arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchfit.profile import NO_LIMIT, PHASES, MemoryProfile, evaluate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Sizes = NDArray[np.float64]


class Envelope:
    """The lines of a profile at one sequence length, ready to be evaluated at arrays of micro-batches."""

    def __init__(self, profile: MemoryProfile, seq_len: int | None) -> None:
        self._lines = {
            phase: [
                (evaluate(line.constant, seq_len), evaluate(line.per_sample, seq_len))
                for line in profile.phases.get(phase, ())
            ]
            for phase in PHASES
        }
        self._profile = profile
        self._seq_len = seq_len
        self._known_ratios: dict[bool, tuple[list[int], list[float]]] = {}

    def _of(self, accumulates: bool) -> list[tuple[float, float]]:
        """The lines of the phases that occur."""
        return [
            line
            for phase, lines in self._lines.items()
            if accumulates or phase != "later_micro"
            for line in lines
        ]

    def largest(self, capacity_bytes: int, accumulates: bool) -> int:
        """The largest micro-batch whose allocated peak is at most `capacity_bytes`; 0 where none is."""
        largest = NO_LIMIT
        for constant, slope in self._of(accumulates):
            # Peaks are rounded to whole bytes, so half a byte more still fits.
            room = capacity_bytes + 0.5 - constant
            if slope > 0:
                largest = min(largest, int(room // slope))
            elif room + slope * 1 < 0:
                return 0
        return max(0, largest)

    def allocated(self, micro_batch: Counts, accumulates: bool) -> Counts:
        """The allocated peak in bytes at each micro-batch."""
        import numpy as np

        highest = np.zeros(len(micro_batch))
        for constant, slope in self._of(accumulates):
            np.maximum(highest, constant + slope * micro_batch, out=highest)
        return _whole(highest)

    def reserved(self, micro_batch: Counts, allocated: Counts, accumulates: bool) -> Counts | None:
        """The reserved peak in bytes where the profile was replayed through the allocator, else None."""
        import numpy as np

        if not self._profile.reserved:
            return None
        asked, ratios = self._ratios(accumulates)
        return _whole(allocated * np.interp(micro_batch, asked, ratios))

    def _ratios(self, accumulates: bool) -> tuple[list[int], list[float]]:
        """Reserved over allocated where it was replayed; the profile interpolates between, as `np.interp` does."""
        found = self._known_ratios.get(accumulates)
        if found is None:
            asked = sorted({1, *(point.micro_batch for point in self._profile.reserved)})
            peaks = [self._profile.peak(b, 2 if accumulates else 1, self._seq_len) for b in asked]
            ratios = [(peak.reserved_bytes or peak.allocated_bytes) / peak.allocated_bytes for peak in peaks]
            found = self._known_ratios[accumulates] = asked, ratios
        return found


#: More bytes than any GPU has, yet far from where 64-bit whole numbers end: a billion samples of a large model pass it.
_MOST_BYTES = 2.0**62


def _whole(sizes: Sizes) -> Counts:
    """Bytes rounded to whole ones; what is beyond any memory is held where it still compares as such."""
    import numpy as np

    return np.rint(np.minimum(sizes, _MOST_BYTES)).astype(np.int64)
