"""Inputs of any calculator: its defaults, and whatever it allows."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from batchfit.calculator import Calculator
from batchfit.fields import Field, Input


def defaults(calculator: Calculator) -> dict[str, Input]:
    """What each field holds when nobody has typed anything."""
    return {field.name: field.default_value() for field in calculator.fields}


def allowed_inputs(calculator: Calculator) -> st.SearchStrategy[dict[str, Input]]:
    """Values that every field allows, the largest and smallest among them."""
    return st.fixed_dictionaries({field.name: _allowed(field) for field in calculator.fields})


def _allowed(field: Field) -> st.SearchStrategy[Input]:
    values = [choice.value for choice in field.choices]
    if field.kind == "choice":
        return st.sampled_from(values)
    if field.kind == "choices":
        some = st.lists(st.sampled_from(values), min_size=int(field.minimum), unique=True)
        return some.map(lambda chosen: tuple(value for value in values if value in chosen))
    if field.kind in ("whole", "bytes"):
        low, high = math.ceil(field.minimum), math.floor(field.maximum)
        # Small numbers as often as large ones, which a range of many powers of ten would hardly ever give.
        near = st.integers(low, min(high, low + 200))
        spread = st.floats(0, 1).map(lambda part: round(low + (high - low) * part**12))
        found: st.SearchStrategy[Input] = near | spread | st.just(low) | st.just(high)
    else:
        found = st.floats(field.minimum, field.maximum, allow_subnormal=False)
    if field.default is not None:
        found = found | st.just(field.default_value())
    return found if field.empty is None else found | st.none()
