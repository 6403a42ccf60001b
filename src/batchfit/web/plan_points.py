"""Measured points for the planner: "4:12GB,8:14GB" in an address, a pair of fields for each in the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchfit.calibrate import Point
from batchfit.errors import BadInput
from batchfit.languages import SOURCE
from batchfit.numbers import decimal_text, read_number
from batchfit.units import split_unit, to_bytes

#: Points that an address may hold, and rows that the form shows: a line needs two, more tell how straight it is.
MOST_POINTS, ROWS = 8, 4

#: The form's fields, a pair for each point.
PAIRS = tuple((f"point{row}_batch", f"point{row}_peak") for row in range(1, MOST_POINTS + 1))
FIELDS = tuple(name for pair in PAIRS for name in pair)

#: Peaks and micro-batches that are taken for a slip: no card has so much, and nobody trains so many at once.
_LARGEST_PEAK, _LARGEST_BATCH = 10**14, 10**6


@dataclass(frozen=True, slots=True)
class Measured:
    """A point as it stands in an address: the size keeps the unit that it was typed in."""

    point: Point
    size: str

    def __str__(self) -> str:
        return f"{self.point.micro_batch}:{self.size}"


def parse_points(text: str) -> tuple[Measured, ...]:
    """The points in an address, whose numbers have a decimal point in every language. Raises BadInput on "points"."""
    pairs = [part.partition(":")[::2] for part in text.split(",") if part.strip()]
    return _read(pairs, SOURCE)


def points_of(given: Mapping[str, str], lang: str) -> tuple[Measured, ...]:
    """The points in the form's fields. Raises BadInput on "points"."""
    return _read([(given.get(batch, ""), given.get(peak, "")) for batch, peak in PAIRS], lang)


def _read(pairs: Sequence[tuple[str, str]], lang: str) -> tuple[Measured, ...]:
    found = tuple(_one(batch.strip(), size.strip(), lang) for batch, size in pairs if batch or size)
    if len(found) > MOST_POINTS:
        raise BadInput(
            "points", "must be at most {limit} points; you gave {given}", limit=MOST_POINTS, given=len(found)
        )
    if len({each.point.micro_batch for each in found}) < 2:
        raise BadInput("points", "are needed at two different micro-batches or more, such as 4:12GB,8:14GB")
    return found


def _one(batch: str, size: str, lang: str) -> Measured:
    wrong = BadInput(
        "points",
        "must be a micro-batch and its peak with a unit, such as 4 and 12 GB; you gave {batch} and {size}",
        batch=batch or "–",
        size=size or "–",
    )
    number, unit = split_unit(size, "GB")
    try:
        micro_batch, value = read_number(batch, lang).whole, read_number(number, lang).value
    except BadInput:
        raise wrong from None
    nbytes = to_bytes(value, unit)
    if micro_batch is None or not (0 < micro_batch <= _LARGEST_BATCH and 0 < nbytes <= _LARGEST_PEAK):
        raise wrong
    return Measured(Point(micro_batch, nbytes), f"{decimal_text(value)}{unit}")
