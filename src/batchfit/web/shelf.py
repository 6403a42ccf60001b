"""The calculators that an app serves, by group, and those announced but not there yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from batchfit import calculators
from batchfit.calculator import Calculator
from batchfit.pictures import Picture, picture_of


@dataclass(frozen=True, slots=True)
class Announced:
    """A calculator that does not exist yet but that others point to."""

    slug: str
    category: str
    title: str


#: An entry is dropped from view by the calculator of its slug.
ANNOUNCED = (
    Announced("llm-training-memory", "training", "LLM training memory"),
    Announced("lora-parameters", "training", "LoRA parameters"),
)


class Shelf:
    """Calculators by slug, in the order given."""

    def __init__(self, given: Iterable[Calculator] | None = None) -> None:
        if given is None:
            given = (calculators.load(slug) for slug in calculators.slugs())
        self.calculators: dict[str, Calculator] = {each.slug: each for each in given}
        self.pictures: dict[str, Picture | None] = {each.slug: picture_of(each) for each in self}

    def __iter__(self) -> Iterator[Calculator]:
        return iter(self.calculators.values())

    def groups(self) -> dict[str, list[Calculator | Announced]]:
        """Everything there is and is announced, by category: first what exists."""
        found: dict[str, list[Calculator | Announced]] = {}
        announced = [each for each in ANNOUNCED if each.slug not in self.calculators]
        for each in [*self, *announced]:
            found.setdefault(each.category, []).append(each)
        return found

    def entry(self, slug: str) -> Calculator | Announced | None:
        """What is known under a slug."""
        return self.calculators.get(slug) or next((each for each in ANNOUNCED if each.slug == slug), None)
