"""Sequence lengths: one, or a range over which a profile's coefficients are curves.

What a step holds is a polynomial of second degree in the sequence length: activations grow with it, written-out
attention with its square. So three lengths say all, and one in between shows whether that holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batchfit.errors import BadInput
from batchfit.profile import Polynomial

#: At how many lengths of a range the highest points are looked for, both ends among them.
_GRID = 13

#: Attention kernels work on blocks of this many tokens; lengths between the ends are multiples of it.
_BLOCK = 128


#: A range is over so many tokens at least, so that there are lengths between its ends.
_LEAST_RANGE = 8


@dataclass(frozen=True, slots=True)
class Lengths:
    """The sequence lengths that are traced, in tokens: one or none, or three of a range."""

    traced: tuple[int, ...] = ()

    @classmethod
    def asked(cls, seq_len: int | tuple[int, int] | None) -> Lengths:
        """Those that stand for one length, or for a range: both its ends, and the middle. Raises BadInput."""
        if seq_len is None:
            return cls()
        minimum, maximum = (seq_len, seq_len) if isinstance(seq_len, int) else seq_len
        if minimum < 1 or maximum < minimum or 0 < maximum - minimum < _LEAST_RANGE:
            raise BadInput(
                "seq_len",
                "must be 1 token or more, or a range over at least {least} tokens; you gave {given}",
                least=_LEAST_RANGE,
                given=seq_len,
            )
        if minimum == maximum:
            return cls((minimum,))
        return cls((minimum, _between(minimum, maximum, 1, 2), maximum))

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sample; None where there is no length."""
        return self.traced[-1] if self.traced else None

    @property
    def is_range(self) -> bool:
        """Whether coefficients are curves."""
        return len(self.traced) > 1

    @property
    def checked_at(self) -> int | None:
        """A length in between that is none of the traced ones; None where there is none."""
        if not self.is_range:
            return None
        found = _between(self.traced[0], self.traced[-1], 1, 4)
        return None if found in self.traced else found

    def curve(self, values: Sequence[float]) -> Polynomial:
        """The polynomial through the values at the traced lengths, lowest power first; a constant is one number."""
        if all(value == values[0] for value in values):
            return (values[0],)
        (x0, x1, x2), (y0, y1, y2) = self.traced, values
        first = (y1 - y0) / (x1 - x0)
        second = ((y2 - y0) / (x2 - x0) - first) / (x2 - x1)
        return (y0 - first * x0 + second * x0 * x1, first - second * (x0 + x1), second)

    def weights(self, length: float) -> list[float]:
        """How much the value at each traced length counts for that at `length`, on the curve through them."""
        if not self.is_range:
            return [1.0]
        result = []
        for at in self.traced:
            weight = 1.0
            for other in self.traced:
                if other != at:
                    weight *= (length - other) / (at - other)
            result.append(weight)
        return result

    def grid(self) -> Iterator[list[float]]:
        """The weights of lengths all over the range, for looking which points are the highest."""
        low, high = (self.traced[0], self.traced[-1]) if self.is_range else (1, 1)
        steps = _GRID - 1 if self.is_range else 0
        for step in range(steps + 1):
            yield self.weights(low * (high / low) ** (step / max(1, steps)))


def _between(low: int, high: int, part: int, of: int) -> int:
    """A length about so far between the two: a whole number of blocks where there is room for it."""
    exact = low + (high - low) * part // of
    blocks = round(exact / _BLOCK) * _BLOCK
    found = blocks if low < blocks < high else exact
    return min(max(found, low + 1), high - 1)


def parse_lengths(text: str) -> int | tuple[int, int]:
    """A length or a range in tokens, both ends included: "1024", "512..8192". Raises BadInput."""
    low, dots, high = text.partition("..")
    try:
        seq_len = (int(low), int(high)) if dots else int(low)
        Lengths.asked(seq_len)
    except ValueError:
        raise BadInput(
            "seq_len",
            "must be a number of tokens such as 1024, or a range such as 512..8192; you typed {typed}",
            typed=repr(text),
        ) from None
    return seq_len
