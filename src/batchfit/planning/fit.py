"""Whether a peak fits a card: what the card has for PyTorch, what is kept free, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from batchfit.errors import BadInput
from batchfit.gpus import Gpu, load_gpus
from batchfit.kept import kept
from batchfit.sentences import Sentence, Size
from batchfit.units import format_bytes, parse_bytes

Verdict = Literal["fits", "tight", "does not fit"]

#: Share of the card's memory that is kept free by default. Of predictions for published runs, the ones that were
#: too low were so by up to 5 % of the card (40 vision models on one card, largest batch that ran).
HEADROOM_SHARE = Decimal("0.05")
HEADROOM_REASON = Sentence(
    "5 % of the card, which is by how much predictions for published runs were too low at most"
)

#: NCCL keeps buffers of 4 MiB to send and to receive for each of up to 32 channels (NCCL documentation,
#: NCCL_BUFFSIZE and NCCL_MAX_NCHANNELS; 32 is what it opens over NVSwitch).
NCCL_BYTES = 2 * 32 * 4 * 2**20


#: Capacities that are kept: one answer looks at every card there is, and at its own for each option.
_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one card has for a training process, in bytes. `capacity_bytes` is what PyTorch's allocator can reserve."""

    total_bytes: int
    context_bytes: int
    communication_bytes: int
    headroom_bytes: int
    headroom_reason: str
    assumptions: tuple[str, ...]

    @property
    def capacity_bytes(self) -> int:
        """The card's memory less the context and what communication keeps."""
        return max(0, self.total_bytes - self.context_bytes - self.communication_bytes)

    def verdict(self, allocated_bytes: int, reserved_bytes: int | None) -> Verdict:
        """Fits: also what is reserved leaves the headroom free. Tight: allocated memory fits, but the allocator's
        overhead or the headroom does not. Where reserved memory is not known, the headroom stands for it."""
        if allocated_bytes > self.capacity_bytes:
            return "does not fit"
        most = allocated_bytes if reserved_bytes is None else max(allocated_bytes, reserved_bytes)
        return "fits" if most <= self.capacity_bytes - self.headroom_bytes else "tight"

    @property
    def said(self) -> Sentence:
        """What there is for PyTorch, and what of it stays free."""
        parts = {"usable": Size(self.total_bytes), "context": Size(self.context_bytes)}
        made = Sentence("{usable} usable, less {context} context", **parts)
        if self.communication_bytes:
            made = Sentence(
                "{usable} usable, less {context} context, less {buffers} communication buffers",
                **parts,
                buffers=Size(self.communication_bytes),
            )
        return Sentence(
            "{capacity} for PyTorch ({made}), of which {headroom} stay free as headroom ({reason})",
            capacity=Size(self.capacity_bytes),
            made=made,
            headroom=Size(self.headroom_bytes),
            reason=self.headroom_reason,
        )

    def __str__(self) -> str:
        return str(self.said)


def capacity(gpu: Gpu, replicas: int = 1, headroom: str | int | None = None) -> Capacity:
    """What `gpu` has for one of `replicas` data-parallel processes.

    `headroom` is a share ("5%"), a size ("2GiB", a bare number is GB) or bytes; HEADROOM_SHARE by default.
    Raises BadInput on `headroom`.
    """
    return _capacity(gpu, replicas > 1, headroom)


@kept(_KEPT)
def _capacity(gpu: Gpu, communicates: bool, headroom: str | int | None) -> Capacity:
    context, assumption = _context(gpu)
    kept_free, reason = _headroom(headroom, gpu.memory_bytes)
    return Capacity(
        total_bytes=gpu.memory_bytes,
        context_bytes=context,
        communication_bytes=NCCL_BYTES if communicates else 0,
        headroom_bytes=kept_free,
        headroom_reason=reason,
        assumptions=assumption,
    )


def _context(gpu: Gpu) -> tuple[int, tuple[str, ...]]:
    """What the process holds beside the allocator: the published figure, else the largest of any generation."""
    if gpu.context_bytes is not None:
        return gpu.context_bytes, ()
    largest = max(other.context_bytes or 0 for other in load_gpus())
    said = Sentence(
        "no context size is published for {gpu}: {largest}, the largest known, is taken",
        gpu=gpu.name,
        largest=Size(largest),
    )
    return largest, (said,)


def _headroom(asked: str | int | None, total_bytes: int) -> tuple[int, str]:
    if asked is None:
        return int(total_bytes * HEADROOM_SHARE), HEADROOM_REASON
    if isinstance(asked, bool):
        raise BadInput(
            "headroom", "must be a share such as 5% or a size such as 2GiB; you gave {given}", given=asked
        )
    if isinstance(asked, int):
        kept = asked
    elif asked.strip().endswith("%"):
        kept = int(total_bytes * _share(asked))
    else:
        kept = parse_bytes(asked, field="headroom")
    if not 0 <= kept < total_bytes:
        raise BadInput(
            "headroom",
            "must be between 0 and the card's {total}; you gave {given}",
            total=format_bytes(total_bytes),
            given=repr(asked),
        )
    return kept, Sentence("as asked")


def _share(text: str) -> Decimal:
    try:
        share = Decimal(text.strip().removesuffix("%").strip()) / 100
    except InvalidOperation:
        share = Decimal("NaN")
    if not share.is_finite():
        raise BadInput("headroom", "must be a share such as 5%; you gave {given}", given=repr(text))
    return share
