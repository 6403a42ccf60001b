"""Published runs as they stand in CSV files: one row, one figure."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: The rows that are scored by default.
DATA = Path(__file__).parent / "data"

#: What a unit of the column mem_unit is in bytes, by its first word. Where a source prints "GB" and does not say
#: which, the number is taken as GiB, as PyTorch's own summaries count.
_UNITS = {"bytes": 1, "MiB": 2**20, "MB": 2**20, "GiB": 2**30, "GB": 2**30, "G": 2**30, "1e9": 10**9}


@dataclass(frozen=True, slots=True)
class Row:
    """A published figure and the settings of its run, by column. A column that a file does not have is empty."""

    id: str
    family: str
    values: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values.get(column, "")

    def number(self, column: str) -> int | None:
        """The whole number in a column, None where it says nothing."""
        text = self[column].strip()
        try:
            return int(float(text))
        except ValueError:
            return None

    @property
    def measured_bytes(self) -> int | None:
        """The published figure in bytes; None where a row only says what fits or fails, or its unit is not known."""
        text, unit = self["mem_raw"].split(" ")[0], self["mem_unit"]
        if not text or not unit:
            return None
        scale = _UNITS.get("1e9" if "1e9" in unit else unit.split(" ")[0])
        try:
            return None if scale is None else round(float(text) * scale)
        except ValueError:
            return None


def read(folder: Path = DATA) -> Iterator[Row]:
    """The rows of all CSV files in a folder, by file name. The column source_family says which family a row is of;
    without one, the file's name does."""
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for values in csv.DictReader(file):
                if "id" in values:
                    yield Row(values["id"], values.get("source_family") or path.stem, values)
