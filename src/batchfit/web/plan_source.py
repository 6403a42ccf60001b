"""Where a model is from, as the planner's form asks it: the catalogue, a file of one's own, measured points."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

from batchfit.numbers import format_number
from batchfit.sentences import Sentence, in_language, parted
from batchfit.units import split_unit
from batchfit.web.plan_lists import Choice
from batchfit.web.plan_points import PAIRS, ROWS
from batchfit.web.plan_state import OWN_FILE, PlanState
from batchfit.web.trace_worker import lengths_of

#: Where a model may be from, as the form asks it.
SOURCE_NAMES: dict[str, str] = {
    "catalogue": Sentence("Known model"),
    "own": Sentence("Your own model"),
    "points": Sentence("Measured points"),
}


@dataclass(frozen=True, slots=True)
class PointRow:
    """A pair of fields for a measured point, with what stands in them."""

    batch_name: str
    peak_name: str
    batch: str
    peak: str


class SourceForm:
    """What the form shows of a model's source in a state."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._lang = state.lang

    @property
    def choices(self) -> list[Choice]:
        """Where the model may be from."""
        return [
            Choice(source, in_language(name, self._lang), source == self._state.source)
            for source, name in SOURCE_NAMES.items()
        ]

    @property
    def point_rows(self) -> list[PointRow]:
        """The fields for measured points: as typed, else as the address has them."""
        points = self._state.points
        return [
            PointRow(
                batch_name,
                peak_name,
                str(points[row].point.micro_batch)
                if row < len(points)
                else self._state.typed.get(batch_name, ""),
                self._peak(points[row].size) if row < len(points) else self._state.typed.get(peak_name, ""),
            )
            for row, (batch_name, peak_name) in enumerate(PAIRS[: max(ROWS, len(points))])
        ]

    def _peak(self, size: str) -> str:
        number, unit = split_unit(size, "GB")
        return f"{format_number(Decimal(number), self._lang, max_fraction=12, grouping=False)} {unit}"

    @property
    def matched(self) -> str:
        """Of a config that is of a catalogue's model: that it is planned with its profiles."""
        state = self._state
        if (
            state.source != "catalogue"
            or not state.own_text
            or (entry := state.catalogue.find(state.model)) is None
        ):
            return ""
        said = Sentence(
            "Your config.json has the shape of {model}: planned with its profiles.", model=entry.title
        )
        return in_language(said, self._lang)

    @property
    def nearest_model(self) -> str:
        """Of a config that no profiles are known of: which model is nearest, and what sets them apart."""
        own = self._state.own
        if not self._state.untraced or own is None or own.match is None or not own.match.differences:
            return ""
        apart = [
            Sentence(
                "{key} is {given}, there {known}",
                key=each.key,
                given=_value(each.given),
                known=_value(each.known),
            )
            for each in own.match.differences
        ]
        differences = parted((in_language(each, self._lang) for each in apart), self._lang)
        said = Sentence(
            "Nearest in the catalogue: {model}, but {differences}.",
            model=own.match.entry.title,
            differences=differences,
        )
        return in_language(said, self._lang)

    @property
    def trace_command(self) -> str:
        """The command that traces a config."""
        own = self._state.own
        lengths = lengths_of(own.config) if own is not None and own.config else None
        span = f" --seq-len {lengths[0]}..{lengths[1]}" if lengths else ""
        return f"batchfit trace config.json{span} --save {OWN_FILE}"


def _value(value: object) -> str:
    """A config's value, as it stands in one; short."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"
