"""A model of a person's own for the planner: batchfit profiles, or a `config.json` that is looked up by its shape.

It is data and nothing else: limited in size, depth and numbers before anything is made of it, and never stored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from batchfit.calibrate import Point, calibrate
from batchfit.errors import BadInput
from batchfit.models import ModelEntry
from batchfit.profile import MemoryProfile
from batchfit.shapes import Match, nearest_shape

#: The longest text of a model: some twenty profiles, or any config there is.
MOST_CHARACTERS = 1_000_000
#: How deep, how many and how long its values may be. Profiles are eight deep and hold some thousands.
_DEEPEST, _MOST_VALUES, _LONGEST_TEXT = 24, 200_000, 20_000
#: Numbers of bytes, tokens and FLOPs are far below, and what is computed from them stays finite.
_LARGEST = 2.0**80
#: Profiles of one model: one for each way of training.
_MOST_PROFILES = 32
#: Lines of a phase and coefficients of a polynomial: ten times what traces give.
_MOST_LINES, _MOST_COEFFICIENTS = 300, 8
#: Models whose numbers are kept while people plan with them.
_KEPT = 16

#: Keys by which a config asks for code of its own to be run.
_CODE = ("auto_map", "trust_remote_code", "custom_pipelines", "remote_code")

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class Own:
    """What a text holds: the profiles to plan with, or else a config with the catalogue's model that is nearest."""

    profiles: tuple[MemoryProfile, ...] = ()
    config: Mapping[str, Any] | None = None
    match: Match | None = None

    @property
    def known(self) -> ModelEntry | None:
        """The catalogue's model of the config's very shape."""
        return self.match.entry if self.match is not None and not self.match.differences else None


def read_own(text: str) -> Own:
    """The model in a text. Raises BadInput on "own", naming the place in the text that cannot be used."""
    if len(text) > MOST_CHARACTERS:
        raise BadInput(
            "own",
            "must be at most {limit} characters; this text has {given}",
            limit=MOST_CHARACTERS,
            given=len(text),
        )
    own = _read(text)
    return own if own.config is None else replace(own, match=nearest_shape(own.config))


@lru_cache(maxsize=_KEPT)
def _read(text: str) -> Own:
    data = _json(text)
    rows = data if isinstance(data, list) else [data]
    if rows and all(isinstance(row, dict) and "batchfit_profile" in row for row in rows):
        return Own(profiles=_profiles(rows))
    if not isinstance(data, dict) or not {"model_type", "_class_name"} & data.keys():
        raise BadInput(
            "own",
            'must be a config.json (with a "model_type") or a profile (with "batchfit_profile"); it is neither',
        )
    code = next((key for key in _keys(data) if key in _CODE), None)
    if code is not None:
        raise BadInput(
            "own",
            "names code of its own ({key}), which is never run here: only models of the installed libraries are read",
            key=code,
        )
    return Own(config=data)


def measured(points: Sequence[Point]) -> tuple[MemoryProfile, ...]:
    """The profile of measured points. Raises BadInput on "points"."""
    try:
        return (calibrate(points).profile,)
    except BadInput as wrong:
        raise BadInput("points", wrong.template, **wrong.params) from None


# ---- What a text may be ---------------------------------------------------------------------------------------


def _json(text: str) -> Any:
    """The data in a text, within the limits."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
        if depth > _DEEPEST:
            raise _beyond()
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BadInput("own", "is not JSON: {error}", error=str(error)[:200]) from None
    _check_values(data)
    return data


def _check_values(data: Any) -> None:
    """Raises BadInput on too many values, too long a text, or a number that is none or beyond any model's."""
    left, count = [data], 0
    while left:
        value = left.pop()
        count += 1
        if isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            left += value
        long = isinstance(value, str) and len(value) > _LONGEST_TEXT
        large = isinstance(value, int | float) and not (math.isfinite(value) and abs(value) < _LARGEST)
        if long or large or count > _MOST_VALUES:
            raise _beyond()


def _beyond() -> BadInput:
    return BadInput(
        "own",
        "goes beyond what any model needs: at most {deep} levels, {values} values, texts of {length} characters and "
        "numbers below 2^80",
        deep=_DEEPEST,
        values=_MOST_VALUES,
        length=_LONGEST_TEXT,
    )


def _keys(data: Any) -> set[str]:
    """All keys in it, at any depth."""
    found: set[str] = set()
    left = [data]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            found |= value.keys()
            left += value.values()
        elif isinstance(value, list):
            left += value
    return found


# ---- Profiles -------------------------------------------------------------------------------------------------


def _profiles(rows: Sequence[Mapping[str, Any]]) -> tuple[MemoryProfile, ...]:
    if len(rows) > _MOST_PROFILES:
        raise BadInput(
            "own",
            "holds {given} profiles; at most {limit} are planned with",
            given=len(rows),
            limit=_MOST_PROFILES,
        )
    profiles = tuple(_profile(row, index, len(rows)) for index, row in enumerate(rows))
    if len({profile.model.name for profile in profiles}) > 1:
        raise BadInput("own", "must be profiles of one model; these have several names")
    return profiles


def _profile(row: Mapping[str, Any], index: int, of: int) -> MemoryProfile:
    name = "profile" if of == 1 else f"profile[{index}]"
    try:
        profile = MemoryProfile.from_json(json.dumps(row), name)
        _check_profile(profile)
    except BadInput as wrong:
        if wrong.field == "own":
            raise
        raise BadInput(
            "own", "cannot be used at {place}: {reason}", place=wrong.field, reason=wrong.reason
        ) from None
    return profile


def _check_profile(profile: MemoryProfile) -> None:
    """Raises BadInput on what no trace and no measurement gives, and the planner therefore does not expect."""
    for phase, lines in profile.phases.items():
        _expect(len(lines) <= _MOST_LINES, f"phases.{phase}")
        for line in lines:
            polynomials = [
                line.constant,
                line.per_sample,
                *(
                    each
                    for parts in (line.parts, line.activations)
                    for pair in parts.values()
                    for each in pair
                ),
            ]
            _expect(all(1 <= len(each) <= _MOST_COEFFICIENTS for each in polynomials), f"phases.{phase}")
    states = profile.states
    _expect(
        min(states.weights_bytes, states.gradients_bytes, states.optimizer_bytes, states.buffers_bytes) >= 0,
        "states",
    )
    model = profile.model
    _expect(0 <= model.trainable_parameters <= model.parameters, "model.trainable_parameters")
    for unit in model.units:
        sizes = (unit.parameters, unit.trainable_parameters, unit.weights_bytes, unit.trainable_weights_bytes)
        _expect(unit.count >= 1 and min(sizes) >= 0, "model.units")
    for point in profile.reserved:
        _expect(point.micro_batch >= 1 and 0 < point.allocated_bytes <= point.reserved_bytes, "reserved")
    span = profile.seq_len
    _expect(span is None or 1 <= span.minimum <= span.maximum <= 2**24, "seq_len")
    for length in (None,) if span is None else (span.minimum, span.maximum):
        for steps in (1, 2):
            _expect(profile.peak(1, steps, length).allocated_bytes > 0, "phases")


def _expect(holds: bool, place: str) -> None:
    if not holds:
        raise BadInput(
            "own", "cannot be used at {place}: no training step has such numbers", place=f"profile.{place}"
        )
