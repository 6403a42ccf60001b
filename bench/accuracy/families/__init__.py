"""Adapters: one module for each source family, turning its rows into questions.

A module has FAMILIES, the values of source_family that it reads, and `question(row)`, which raises CannotExpress with
the reason where a row has no question. Where a row has several figures, `figures(row)` gives a row for each. Where the
repository has more rows than can be traced for the table, `left_out(row)` gives the reason for one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

ADAPTERS: tuple[Any, ...] = tuple(
    module
    for found in iter_modules(__path__)
    if hasattr(module := import_module(f"{__name__}.{found.name}"), "FAMILIES")
)

_BY_FAMILY: dict[str, Callable[[Row], Question]] = {
    family: adapter.question for adapter in ADAPTERS for family in adapter.FAMILIES
}
_FIGURES: dict[str, Callable[[Row], Iterable[Row]]] = {
    family: adapter.figures
    for adapter in ADAPTERS
    for family in adapter.FAMILIES
    if hasattr(adapter, "figures")
}


_LEFT_OUT: dict[str, Callable[[Row], str | None]] = {
    family: adapter.left_out
    for adapter in ADAPTERS
    for family in adapter.FAMILIES
    if hasattr(adapter, "left_out")
}


def left_out(row: Row) -> str | None:
    """Why a row of the repository is not traced for the table, None if it is."""
    return _LEFT_OUT[row.family](row) if row.family in _LEFT_OUT else None


def figures(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with one figure each."""
    for row in rows:
        yield from _FIGURES[row.family](row) if row.family in _FIGURES else (row,)


def question(row: Row) -> Question:
    """What the row asks of batchfit. Raises CannotExpress."""
    try:
        ask = _BY_FAMILY[row.family]
    except KeyError:
        raise CannotExpress(f"no adapter for the family {row.family}") from None
    return ask(row)
