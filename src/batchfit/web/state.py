"""The state of a calculator's page: what its address says, what that was read as, and the address that says it.

The address is the only place where a state is kept. A number in it is written with a decimal point; a size is a
number of gigabytes, or carries its unit ("0.75GiB"). A form sent without JavaScript may hold what a person typed
in their language, and a size's unit apart, in FIELD_unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from batchfit.calculator import Calculator, Results, Value
from batchfit.errors import BadInput
from batchfit.fields import Field, Reading, When
from batchfit.languages import catalogue
from batchfit.numbers import decimal_text
from batchfit.presets import Entry, Preset
from batchfit.scales import written

#: Enough for every field filled to the brim; what is longer was not made by our pages.
LONGEST_QUERY = 2048

REPEATED = "was given more than once in the address; give it once"
ONE_OF_TWO = "cannot be given together with {solved}, which it finds; give one of the two"


@dataclass(slots=True)
class State:
    """A calculator's inputs as one address gives them.

    inverse    whether the inverse's field is given, and its solved field found
    presets    the entry chosen of each preset; what it fills in stands for a field's default
    typed      the text of each field in use, as it is to stand in the form
    units      the unit chosen for each size
    readings   what the texts mean, where they mean something
    wrong      what is wrong with the others
    notes      for a text that others may read otherwise, the number it was read as
    malformed  the address itself is wrong: a field given twice, or two that exclude each other
    beside     what the address has beside the values: an embed's options
    """

    calculator: Calculator
    lang: str
    inverse: bool
    presets: dict[str, Entry] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    wrong: dict[str, BadInput] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    malformed: bool = False
    beside: dict[str, str] = field(default_factory=dict)
    results: Results | None = None

    @property
    def fields(self) -> list[Field]:
        """The fields in use, in order; the inverse's stands where its solved field would."""
        return fields_in_use(self.calculator, inverse=self.inverse)

    def applies(self, each: Field) -> bool:
        """Whether results may depend on a field, as far as the choices can be read."""
        return each.only_when is None or self._holds(each.only_when)

    def offers(self, preset: Preset) -> bool:
        """Whether a preset fills in anything that results may depend on."""
        needs = self.calculator.needs(preset)
        return not needs or any(map(self._holds, needs))

    def _holds(self, when: When) -> bool:
        return when.field not in self.readings or self.readings[when.field].value in when.values

    @property
    def applying(self) -> list[Field]:
        """The fields in use that results may depend on, in order."""
        return [each for each in self.fields if self.applies(each)]

    @property
    def incomplete(self) -> bool:
        """Whether the only thing wrong is that a field is empty."""
        return bool(self.wrong) and all(not self.typed.get(name, "-").strip() for name in self.wrong)

    @property
    def status(self) -> int:
        """The HTTP status that fits: 400 for a malformed address, 422 for a value that cannot be used."""
        if self.malformed:
            return 400
        return 422 if self.wrong and not self.incomplete else 200

    def values(self) -> dict[str, Value]:
        """Every number by name: inputs as formulas know them, and results."""
        return self.results.values if self.results else {}

    @property
    def filled(self) -> dict[str, str]:
        """What the presets fill in, by field."""
        return {
            name: text
            for preset in self.calculator.presets
            if preset.name in self.presets
            for name, text in preset.texts(self.presets[preset.name]).items()
        }

    def unchanged(self, each: Field) -> str | None:
        """What a field holds unless something else is given for it: what a preset fills in, or its default."""
        return self.filled.get(each.name, each.default)

    def query(self) -> str:
        """The query that gives this state in any language; defaults are left out, and what does not apply. A value
        that cannot be read is kept as it was typed, so that a change of language does not lose it."""
        return self._query(self.fields, {})

    def other_way(self) -> str:
        """The query of the same batch with the inverse switched on or off: the value found becomes the one given."""
        way_back = self.calculator.inverse
        if way_back is None:
            raise LookupError(f"{self.calculator.slug} has no inverse")
        given, found = way_back.given.name, way_back.reaches
        if self.inverse:
            given, found = way_back.solved, way_back.solved
        value = self.results.outputs[found] if self.results else self.calculator.field(given).default or ""
        return self._query(fields_in_use(self.calculator, inverse=not self.inverse), {given: str(value)})

    def with_solved(self, value: Value) -> str:
        """The query with this value typed into the field that the inverse solves for."""
        way_back = self.calculator.inverse
        if way_back is None:
            raise LookupError(f"{self.calculator.slug} has no inverse")
        return self._query(list(self.calculator.fields), {way_back.solved: str(value)})

    def _query(self, fields: list[Field], replaced: Mapping[str, str]) -> str:
        pairs = {name: entry.name for name, entry in self.presets.items()}
        for each in filter(self.applies, fields):
            if each.name in replaced:
                text = replaced[each.name]
            elif each.name in self.readings:
                text = canonical(each, self.readings[each.name])
            else:
                text = self.typed[each.name]
            usual = self.unchanged(each)
            if usual is None and not text and each.empty is not None:
                continue
            if usual is None or text != canonical(each, each.read(usual)):
                pairs[each.name] = text
        return "&".join(filter(None, (urlencode(pairs), urlencode(self.beside, safe=","))))


def fields_in_use(calculator: Calculator, *, inverse: bool) -> list[Field]:
    """The fields of one direction, in order."""
    way_back = calculator.inverse
    if way_back is None or not inverse:
        return list(calculator.fields)
    return [way_back.given if each.name == way_back.solved else each for each in calculator.fields]


def canonical(of: Field, reading: Reading) -> str:
    """A value as addresses carry it. Three decimals get a fourth, since "1.125" is 1125 to German readers."""
    if of.is_choice or reading.value is None:
        return reading.echo
    text = decimal_text(reading.number)
    if "." in text and len(text.split(".")[1]) == 3:
        text += "0"
    return text if reading.unit == of.unit else text + reading.unit


def read_state(calculator: Calculator, lang: str, query: Iterable[tuple[str, str]]) -> State:
    """The state that an address's query gives to readers of a language. Never raises: what is wrong stands in the
    state. Unknown names are ignored."""
    query = list(query)
    given: dict[str, str] = {}
    repeated = set()
    several = {each.name for each in calculator.fields if each.kind == "choices"}
    for name, text in query:
        if name in several:  # a form sends each box that is ticked
            given[name] = ",".join(filter(None, (given.get(name), text)))
            continue
        if name in given:
            repeated.add(name)
        given.setdefault(name, text)
    way_back = calculator.inverse
    state = State(calculator, lang, inverse=way_back is not None and way_back.given.name in given)
    _read_presets(state, given)
    for each in state.fields:
        _read_field(state, each, given)
        if repeated & {each.name, f"{each.name}_unit"}:
            state.malformed = True
            state.wrong[each.name] = BadInput(each.name, REPEATED)
    idle = {each.name for each in calculator.presets if each.name in given and not state.offers(each)}
    if idle:  # nobody sees them, so they do not count
        return read_state(calculator, lang, [pair for pair in query if pair[0] not in idle])
    _pass_over(state)
    if way_back and state.inverse and way_back.solved in given:
        state.malformed = True
        solved = catalogue(lang).text(calculator.field(way_back.solved).label)
        state.wrong[way_back.given.name] = BadInput(way_back.given.name, ONE_OF_TWO, solved=solved)
    if not state.wrong:
        try:
            inputs = {name: reading.value for name, reading in state.readings.items()}
            state.results = calculator.evaluate(inputs)
        except BadInput as wrong:  # what is allowed alone may not be allowed together
            state.wrong[wrong.field] = wrong
    return state


def _pass_over(state: State) -> None:
    """Takes the usual values of fields that do not apply where theirs cannot be read: nobody sees them."""
    for each in state.fields:
        if each.name in state.wrong and not state.applies(each):
            state.wrong.pop(each.name)
            _read_field(state, each, {})


def _read_presets(state: State, given: Mapping[str, str]) -> None:
    for preset in state.calculator.presets:
        if name := given.get(preset.name, "").strip():
            try:
                state.presets[preset.name] = preset.find(name)
            except BadInput as wrong:
                state.wrong[preset.name] = wrong


def _read_field(state: State, each: Field, given: Mapping[str, str]) -> None:
    name = each.name
    chosen = given.get(f"{name}_unit")
    unit = chosen if chosen in each.units else each.unit
    text = given.get(name)
    if text is None:  # ours is written in English, and put as every language reads it
        usual = state.unchanged(each)
        text = canonical(each, each.read(usual)) if usual else ""
    state.typed[name], state.units[name] = text, unit
    try:
        reading = each.read(text, state.lang, unit)
    except BadInput as wrong:
        state.wrong[name] = wrong
        return
    state.readings[name] = reading
    state.units[name] = reading.unit
    if reading.spelled:
        state.notes[name] = reading.spelled
    elif reading.ambiguous and text.strip() not in (reading.echo, canonical(each, reading)):
        state.notes[name] = reading.echo
    state.typed[name] = in_field(each, reading, state.lang)


def in_field(of: Field, reading: Reading, lang: str) -> str:
    """A value as it stands in its field: with its unit, where none is chosen beside it."""
    if of.units or reading.unit == of.unit:
        return reading.echo
    return reading.echo + (written(reading.unit, lang) if reading.unit in of.scales else reading.unit)
