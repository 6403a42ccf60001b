"""The formula of a step's time, on numbers or, for many settings at once, on columns of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Seconds = NDArray[np.float64]

#: A number, or a column of one for each setting, in an array of (settings, 1).
Column = Any


@dataclass(frozen=True, slots=True)
class Costs:
    """What the time of a step is made of: FLOPs, bytes, rates per second, and seconds.

    Products take `flops` per sample at a rate of `matmul`, and move `matmul_bytes` (constant and per sample); all the
    other kernels `attention` seconds per sample, and `other_bytes`; both move bytes at the rate of `memory`. The rest
    is in seconds: `launches` to launch a micro-batch's kernels; `sent` and `exposed` to communicate with each
    micro-batch, the latter with nothing to hide it; once per window `reduce` for gradients, which the
    `backward_share` of a micro-batch hides, `gather` for weights, and `optimizer`.
    """

    flops: Column
    matmul: Column
    matmul_bytes: Column
    matmul_bytes_per_sample: Column
    attention: Column
    other_bytes: Column
    other_bytes_per_sample: Column
    memory: Column
    launches: Column
    sent: Column
    exposed: Column
    backward_share: Column
    reduce: Column
    gather: Column
    optimizer: Column

    @classmethod
    def stacked(cls, costs: Sequence[Costs]) -> Costs:
        """Several as one, in columns."""
        import numpy as np

        return cls(*np.array([_all_of(each) for each in costs]).T[:, :, None])

    def kernels(self, micro_batch: Counts) -> tuple[Seconds, Seconds, Seconds]:
        """Seconds of products by FLOPs and by bytes, and of everything else, on the GPU alone."""
        samples = micro_batch.astype(float)
        return (
            self.flops * samples / self.matmul,
            (self.matmul_bytes + self.matmul_bytes_per_sample * samples) / self.memory,
            self.attention * samples
            + (self.other_bytes + self.other_bytes_per_sample * samples) / self.memory,
        )

    def times(self, micro_batch: Counts) -> tuple[Seconds, Seconds]:
        """Seconds of one micro-batch of each size, with the communication that comes with each; and once per window:
        gradients as far as the last backward does not hide them, weights, optimizer."""
        import numpy as np

        by_flops, by_bytes, rest = self.kernels(micro_batch)
        kernels = np.maximum(np.maximum(by_flops, by_bytes) + rest, self.launches)
        micro: Seconds = np.maximum(kernels, self.sent) + self.exposed
        hidden = self.backward_share * micro
        return micro, np.maximum(0.0, self.reduce - hidden) + self.gather + self.optimizer


_all_of = attrgetter(*(field.name for field in fields(Costs)))
