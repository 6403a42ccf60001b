"""Adapters: one module for each source family, turning its rows into questions.

A module has FAMILIES, the values of source_family that it reads, and `question(row)`, which raises CannotExpress with
the reason where a row has no question. Where a row has several figures, `figures(row)` gives a row for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bench.accuracy.families import (
    fms,
    fsdp_qlora,
    fsdp_qlora_runs,
    hf_docs,
    litgpt,
    llmfoundry,
    nvidia_dle,
    ms_swift,
    peft_methods,
    qwen,
    torchtitan,
    torchtune,
)
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

ADAPTERS = (
    fms,
    peft_methods,
    fsdp_qlora,
    torchtune,
    litgpt,
    hf_docs,
    torchtitan,
    llmfoundry,
    fsdp_qlora_runs,
    qwen,
    nvidia_dle,
    ms_swift,
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
