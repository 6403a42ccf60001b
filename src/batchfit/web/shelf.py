"""The calculators that an app serves, with their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchfit import calculators
from batchfit.calculator import Calculator
from batchfit.pictures import Picture, picture_of


class Shelf:
    """Calculators by slug, in the order given."""

    def __init__(self, given: Iterable[Calculator] | None = None) -> None:
        if given is None:
            given = (calculators.load(slug) for slug in calculators.slugs())
        self.calculators: dict[str, Calculator] = {each.slug: each for each in given}
        self.pictures: dict[str, Picture | None] = {each.slug: picture_of(each) for each in self}

    def __iter__(self) -> Iterator[Calculator]:
        return iter(self.calculators.values())

    def groups(self) -> dict[str, list[Calculator]]:
        """Every calculator by category."""
        found: dict[str, list[Calculator]] = {}
        for each in self:
            found.setdefault(each.category, []).append(each)
        return found
