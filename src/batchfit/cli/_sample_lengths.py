"""What PyTorch reserves over the samples of a file of lengths, in their order: `batchfit trace --lengths FILE`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchfit.errors import BadInput
from batchfit.units import format_bytes

if TYPE_CHECKING:
    from batchfit.trace.allocator_config import AllocatorConfig
    from batchfit.trace.varying import VaryingLengths

#: So many micro-batches are replayed, and later ones that are longer than all before.
_FIRST = 200


@dataclass(frozen=True, slots=True)
class Reserved:
    """The most that is reserved, in bytes: with the samples in their order, with the longest micro-batch first, and in
    their order with expandable segments."""

    in_order_bytes: int
    longest_first_bytes: int
    expandable_bytes: int


class SampleLengths:
    """The lengths of a dataset's samples, in tokens and in the order of training."""

    def __init__(self, lengths: list[int], micro_batch: int) -> None:
        self.samples = len(lengths)
        self.shortest, self.longest = min(lengths), max(lengths)
        # A micro-batch is padded to its longest sample.
        self._padded = [max(lengths[at : at + micro_batch]) for at in range(0, len(lengths), micro_batch)]
        self._micro_batch = micro_batch
        self.reserved: Reserved | None = None

    @classmethod
    def read(cls, path: str, micro_batch: int) -> SampleLengths:
        """The whole numbers in a file, apart by spaces, commas or lines. Raises BadInput."""
        try:
            words = Path(path).read_text(encoding="utf-8").replace(",", " ").split()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput("lengths", "cannot be read: {error}", error=str(error)) from None
        wrong = next((word for word in words if not word.isdecimal() or int(word) < 1), None)
        if wrong is not None or not words:
            raise BadInput(
                "lengths",
                "must be a file of whole numbers, the tokens of each sample; {path} has {found}",
                path=path,
                found="none" if wrong is None else repr(wrong[:40]),
            )
        return cls([int(word) for word in words], micro_batch)

    def replay(self, steps: VaryingLengths, accumulation_steps: int) -> None:
        """Finds what is reserved."""
        from batchfit.trace.varying import telling

        longest = self._padded.index(max(self._padded))
        longest_first = [self._padded[longest], *self._padded[:longest], *self._padded[longest + 1 :]]

        def most(order: list[int], config: AllocatorConfig | None = None) -> int:
            told = telling(order, _FIRST)
            return max(steps.reserved(told, self._micro_batch, accumulation_steps, config))

        self.reserved = Reserved(
            most(self._padded),
            most(longest_first),
            most(self._padded, replace(steps.config, expandable_segments=True)),
        )

    def sentence(self) -> str:
        """What was found, and what to do about it."""
        assert self.reserved is not None
        found = self.reserved
        said = (
            f"{self.samples:,} samples of {self.shortest:,} to {self.longest:,} tokens, in the order of the file: "
            f"PyTorch reserves up to {format_bytes(found.in_order_bytes)}."
        )
        saved = min(found.longest_first_bytes, found.expandable_bytes)
        if saved >= 0.98 * found.in_order_bytes:
            return said
        return (
            f"{said} Each sample longer than all before it makes the cache grow. With the longest micro-batch first it "
            f"is {format_bytes(found.longest_first_bytes)}; with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "
            f"{format_bytes(found.expandable_bytes)}. On a full card the cache is given back before memory runs out."
        )
