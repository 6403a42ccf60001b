"""The shelf of calculators. Each is one module here with a `CALCULATOR`; it is found, not listed. What
several have in common stands in modules whose names begin with an underscore."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchfit.calculator import Calculator

#: The one that `batchfit calc` means when none is named.
DEFAULT = "gradient-accumulation"


@cache
def slugs() -> tuple[str, ...]:
    """The slugs of all calculators, in alphabetical order, without loading any."""
    return tuple(
        sorted(
            module.name.replace("_", "-")
            for module in pkgutil.iter_modules(__path__)
            if not module.name.startswith("_")
        )
    )


@cache
def load(slug: str) -> Calculator:
    """The calculator with that slug. Raises KeyError where there is none."""
    if slug not in slugs():
        raise KeyError(slug)
    calculator: Calculator = importlib.import_module(f"{__name__}.{slug.replace('-', '_')}").CALCULATOR
    if calculator.slug != slug:
        raise ValueError(
            f"calculators/{slug.replace('-', '_')}.py holds a calculator called {calculator.slug!r}"
        )
    return calculator


def group_title(category: str) -> str:
    """A category's name in English, the key of the catalogues: "training" is "Training"."""
    return category.replace("-", " ").capitalize()
