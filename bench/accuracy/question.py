"""What a published row asks of batchfit: a trace, how it is sharded, and which figure of it is compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchfit.sharding import Sharding

#: What is compared, by name:
#: allocated        the highest `torch.cuda.memory_allocated` of a step
#: steady           what is allocated between steps
#: after_forward    what is allocated when the first forward has ended, its output alive; after_backward likewise
#: reserved         a highest `torch.cuda.memory_reserved`, against the interval from allocated to reserved
#: reserved_in_some_order  the same over samples of several lengths, against the lowest and the highest of orders drawn
#:                  by chance (`bench.accuracy.orders`)
#: device           a whole device's memory, against that interval and what the process holds beside the allocator
#: fits, oom        whether the run is judged to fit the card
#: bracket          whether a largest batch that ran is judged to fit, and the next one that failed is not
MEASURES = (
    "allocated",
    "steady",
    "after_forward",
    "after_backward",
    "reserved",
    "reserved_in_some_order",
    "device",
    "fits",
    "oom",
    "bracket",
)


class CannotExpress(Exception):
    """A row that batchfit, or its adapter, has no words for; the message is the reason, counted in the report."""


@dataclass(frozen=True)
class Question:
    """A row as batchfit is asked about it.

    `trace` is what the worker traces: plain data, and the key under which the profile is kept. `group` is the line of
    the report that the row counts in. `next_batch` is a bracket's batch that failed. `beside_bytes` is what the source
    says the process holds beside PyTorch's allocator; a device's memory without it is held against what its card's
    context and communication take. `era` names the libraries' versions of the run's time, where they matter.
    """

    trace: Mapping[str, Any]
    group: str
    measure: str
    micro_batch: int
    next_batch: int | None = None
    accumulation_steps: int = 1
    sharding: Sharding = None
    replicas: int = 1
    #: FSDP1 over the original parameters keeps the flat gradient until the next forward begins.
    keeps_gradients: bool = False
    gpu: str | None = None
    beside_bytes: int | None = None
    #: The published figure of PyTorch's allocator leaves out the trained weights, which came to the GPU between the
    #: spans that were watched.
    misses_trained: bool = False
    #: What the allocator may take of the card, where it is not what PyTorch's may take of the catalogue's `gpu`.
    room_bytes: int | None = None
    era: str | None = None
    #: The era brings a library that is not installed otherwise, or parts of its libraries are replaced, so there is
    #: nothing to trace with today's.
    needs_era: bool = False
    assumptions: tuple[str, ...] = field(default=())

    @property
    def key(self) -> str:
        """The trace as canonical text."""
        return json.dumps(self.trace, sort_keys=True)
