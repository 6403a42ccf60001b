"""A calculator in one state, as its template shows it: fields with their messages, results, the picture.

What the page's JavaScript needs to go on from there is `for_script`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from babel import Locale
from markupsafe import Markup

from batchfit.bidi import isolate
from batchfit.calculator import Calculator, Output, Value
from batchfit.errors import BadInput
from batchfit.fields import Field
from batchfit.languages import Catalogue, catalogue
from batchfit.numbers import format_compact, magnitudes, percent_sign
from batchfit.pictures import Picture
from batchfit.presets import Entry, Preset
from batchfit.scales import spellings, written
from batchfit.sentences import listed
from batchfit.units import UNITS
from batchfit.web import section_views
from batchfit.web.drawing import draw
from batchfit.web.state import State, canonical
from batchfit.wording import DURATIONS, all_in_words, complaint, fitting_unit, in_words, parts, signed

#: The unit a size is also given in, since both kinds are in use and easily mixed up.
_ALSO = {"MB": "MiB", "GB": "GiB", "TB": "TiB", "MiB": "MB", "GiB": "GB", "TiB": "TB"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit in a sentence's word order, apart, since the page sets them apart."""

    before: str
    number: str
    after: str


@dataclass(frozen=True, slots=True)
class Result:
    """A result: its number, the same size in the other kind of unit, and the sentence that explains it."""

    name: str
    label: str
    symbol: str
    quantity: Quantity | None
    also: str
    reading: str
    hidden: bool
    detail: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the values around a target: where it leads, what it reaches, how far that is from the target."""

    query: str
    solved: str
    reached: str
    drift: str
    nearest: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """The picture on one canvas."""

    name: str
    width: int
    height: int
    shapes: Markup


class Instrument:
    """What the template shows of a state."""

    def __init__(self, state: State, picture: Picture | None) -> None:
        self.state = state
        self.calculator: Calculator = state.calculator
        self.lang = state.lang
        self.picture = picture

    @property
    def texts(self) -> Catalogue:
        """The texts of the page's language."""
        return catalogue(self.lang)

    @cached_property
    def groups(self) -> dict[str, list[Field]]:
        """The fields of both directions by group: an inverse's field beside the one it solves for."""
        way_back = self.calculator.inverse
        found: dict[str, list[Field]] = {}
        for each in self.calculator.fields:
            found.setdefault(each.group, []).append(each)
            if way_back and each.name == way_back.solved:
                found[each.group].append(way_back.given)
        return found

    def presets(self, before: Field | None = None) -> list[Preset]:
        """The presets that stand before a field: those that come and go with a choice, before the first that they fill.
        Without a field, those that stand above all."""
        found = []
        for preset in self.calculator.presets:
            first = next(each for each in self.calculator.all_fields if each.name in preset.fills)
            if before is (first if self.calculator.needs(preset) else None):
                found.append(preset)
        return found

    def filled_in(self, preset: Preset, entry: Entry) -> list[str]:
        """What an entry fills in, field by field, as every language reads it: without spaces."""
        read = ((self.calculator.field(name), text) for name, text in preset.texts(entry).items())
        return [canonical(each, each.read(text)) for each, text in read]

    def in_use(self, each: Field) -> bool:
        """Whether a field belongs to the direction shown, and results may depend on it."""
        return each.name in self.state.typed and self.state.applies(each)

    def complaint(self, each: Field | Preset) -> str:
        """What is wrong with a field's value, or with a preset's; empty where nothing is."""
        wrong = self.state.wrong.get(each.name)
        return complaint(wrong, self.lang) if wrong else ""

    def note(self, each: Field) -> str:
        """How a value was read that others may read otherwise."""
        note = self.state.notes.get(each.name)
        return self.texts.text("read as {number}").format(number=note) if note else ""

    def chosen(self, each: Field) -> list[str]:
        """The values chosen of a choice, those that cannot be read as they were given."""
        return self.state.typed.get(each.name, each.default or "").split(",")

    def units_of(self, each: Field) -> list[str]:
        """The units to choose from: those offered, and the one given where it is another."""
        chosen = self.state.units.get(each.name, each.unit)
        return [*each.units, *({chosen} - set(each.units))]

    def has_slider(self, each: Field) -> bool:
        """Whether there is a slider beside a field: where its values span a few powers of ten, not many."""
        return not each.suffixes and (each.kind != "share" or each.unit == "%")

    @cached_property
    def values(self) -> dict[str, Value]:
        """Inputs, results and what the picture adds, by name. Empty where there are no results."""
        if self.state.results is None:
            return {}
        values = self.state.values()
        for extra in self.picture.extra if self.picture else ():
            values[extra.name] = extra.formula(**{name: values[name] for name in extra.parameters})
        return values

    @cached_property
    def wished_units(self) -> dict[str, str]:
        """The unit that each size is wished for in: results in the one that sizes were given in."""
        units = {each.name: self.state.units[each.name] for each in self.state.fields if each.kind == "bytes"}
        given = next(iter(units.values()), None)
        return units | {of.name: given or of.unit for of in self._outputs() if of.kind == "bytes"}

    @cached_property
    def shown_units(self) -> dict[str, str]:
        """The unit that each size is shown in: a result's own where it fits it better."""
        outputs = {output.name for output in self._outputs()}
        return {
            name: fitting_unit(self.values.get(name, 0), unit) if name in outputs else unit
            for name, unit in self.wished_units.items()
        }

    @cached_property
    def words(self) -> dict[str, str]:
        """Every value with its unit, for sentences."""
        inputs = self.state.results.inputs if self.state.results else {}
        words = all_in_words(self.calculator, self.values, self.lang, self.shown_units, inputs)
        for extra in self.picture.extra if self.picture and self.values else ():
            words[extra.name] = in_words(
                extra, self.values[extra.name], self.lang, self.shown_units[extra.name]
            )
        return words

    def sentence(self, english: str) -> str:
        """A template in the page's language with every value put in; empty where there are no results."""
        return self.texts.text(english).format(**self.words) if self.values else ""

    @cached_property
    def answer(self) -> str:
        """The whole result in one sentence."""
        return self.sentence(self.calculator.answer)

    @cached_property
    def results(self) -> list[Result]:
        """The results in order; those that only the inverse has come first and last, and may be hidden."""
        way_back = self.calculator.inverse
        found = []
        if way_back:
            solved = self.calculator.field(way_back.solved)
            found.append(self._result(solved, way_back.given.help, hidden=not self.state.inverse))
        # What there is no result of for these inputs is hidden; without any results, all are shown empty.
        known = self.values
        found += [
            self._result(output, output.reading, hidden=bool(known) and output.name not in known)
            for output in sorted(self.calculator.outputs, key=lambda output: output.detail)
        ]
        return found

    def _result(self, of: Field | Output, reading: str, *, hidden: bool) -> Result:
        quantity, also = None, ""
        known = of.name in self.values
        if known:
            value, unit = self.values[of.name], self.shown_units.get(of.name, of.unit)
            quantity = self.quantity(of, value, unit)
            if of.kind == "bytes" and unit in _ALSO:
                also = f"= {in_words(of, value, self.lang, _ALSO[unit])}"
            elif of.kind in ("whole", "number") and (short := format_compact(value, self.lang)):
                also = f"≈ {short}"
        explained = self.sentence(reading) if isinstance(of, Output) and known else ""
        detail = isinstance(of, Output) and of.detail
        return Result(
            of.name, self.texts.text(of.label), of.symbol, quantity, also, explained, hidden, detail
        )

    def quantity(self, of: Field | Output, value: Value, unit: str) -> Quantity:
        """A value cut into what stands before its number, the number, and what stands after."""
        before, number, after = parts(of, value, self.lang, unit)
        if not before and not after and of.kind != "share":
            after = "\N{NO-BREAK SPACE}" + self.texts.text(of.unit)
        return Quantity(before, number, after)

    @cached_property
    def drift(self) -> str:
        """By how much the target is missed, in a sentence; empty where it is reached or there is none."""
        way_back = self.calculator.inverse
        if way_back is None or not self.values.get(way_back.drift.name):
            return ""
        return self.sentence(way_back.drift.reading)

    @cached_property
    def choices(self) -> list[Choice]:
        """The values around a target."""
        way_back, results = self.calculator.inverse, self.state.results
        if way_back is None or results is None:
            return []
        solved = self.calculator.field(way_back.solved)
        found = []
        for choice in results.choices:
            words = all_in_words(self.calculator, choice, self.lang)
            found.append(
                Choice(
                    query=self.state.with_solved(choice[solved.name]),
                    solved=words[solved.name],
                    reached=words[way_back.reaches],
                    drift=signed(choice[way_back.drift.name], self.lang),
                    nearest=choice[solved.name] == results.outputs[solved.name],
                )
            )
        return found

    @cached_property
    def drawings(self) -> list[Drawing]:
        """The picture on a narrow and on a wide canvas."""
        if self.picture is None:
            return []
        return [
            Drawing(
                name,
                width,
                self.picture.height,
                draw(self.picture, self.values, self.words, width, self.lang, self.texts.text)
                if self.values
                else Markup(),
            )
            for name, width in zip(("narrow", "wide"), self.picture.widths, strict=True)
        ]

    @cached_property
    def caption(self) -> list[str]:
        """What the picture shows."""
        return [self.sentence(part) for part in self.picture.caption] if self.picture else []

    @cached_property
    def sections(self) -> list[section_views.View]:
        """What stands under the results."""
        return section_views.views(self.calculator, self.state.results, self.wished_units, self.lang)

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but fields to type into and main results."""
        chosen = any(each.is_choice for each in self.calculator.fields)
        details = any(output.detail for output in self.calculator.outputs)
        return not (chosen or details or self.calculator.presets or self.calculator.sections)

    def _outputs(self) -> list[Output]:
        return [*self.calculator.outputs, *(self.picture.extra if self.picture else ())]

    # ---- For the page's JavaScript ------------------------------------------------------------------------

    def for_script(self) -> dict[str, Any]:
        """The calculator as data: what the page's JavaScript needs to read fields, evaluate and show results."""
        way_back = self.calculator.inverse
        outputs = {output.name: self._output_for_script(output) for output in self.calculator.outputs}
        return {
            "lang": self.lang,
            "isolate": isolate(self.lang),
            "slug": self.calculator.slug,
            "answer": self.texts.text(self.calculator.answer),
            "readAs": self.texts.text("read as {number}"),
            "units": UNITS,
            "also": _ALSO,
            "fields": {each.name: self._field_for_script(each) for each in self.calculator.all_fields},
            "outputs": outputs,
            "inverse": way_back
            and {
                "given": way_back.given.name,
                "solved": way_back.solved,
                "reaches": way_back.reaches,
                "nearest": way_back.nearest.__name__,
                "below": way_back.below.__name__,
                "above": way_back.above.__name__,
                "drift": self._output_for_script(way_back.drift),
            },
            "picture": self.picture and self._picture_for_script(self.picture),
            **self._notation_for_script(),
            **({"sections": section_views.for_script(self.calculator)} if self.calculator.sections else {}),
        }

    def _notation_for_script(self) -> dict[str, Any]:
        """How the language writes percentages, durations and large counts, where the calculator has such."""
        of: list[Field | Output] = [*self.calculator.fields, *self.calculator.outputs]
        kinds = {each.kind for each in of}
        found: dict[str, Any] = {"magnitudes": magnitudes(self.lang)}
        if "choice" in kinds or "choices" in kinds:
            found["comma"] = listed(["", ""], self.lang)
        if "share" in kinds:
            found["percent"] = percent_sign(self.lang)
        if "seconds" in kinds:
            found["durations"] = [[scale, _forms(forms, self.lang)] for scale, forms in DURATIONS]
        if self.calculator.checks:
            found["checks"] = [
                {"field": each.field, "holds": each.holds.__name__, "message": self.texts.text(each.message)}
                for each in self.calculator.checks
            ]
        return found

    def _field_for_script(self, each: Field) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": each.name,
            "kind": each.kind,
            "unit": each.unit,
            "label": self.texts.text(each.label),
            **self._unit_for_script(each),
            "minimum": each.minimum,
            "maximum": each.maximum,
            # As every language reads it.
            "default": None if each.default is None else canonical(each, each.read(each.default)),
            **({"step": each.step} if each.step != "1" else {}),
            "empty": _message(each, "", self.lang) if each.empty is None else "",
            "wrong": _message(each, "{typed}", self.lang),
        }
        if each.only_when:
            found["onlyWhen"] = {"field": each.only_when.field, "values": each.only_when.values}
        if each.scales:
            found |= {
                "scales": each.scales,
                "spellings": spellings(each.scales, self.lang),
                "suffixes": each.suffixes,
            }
        if each.suffixes:
            words = {name: written(name, self.lang) for name in each.scales}
            found["written"] = {name: word for name, word in words.items() if word != name}
        if each.units:
            found["units"] = each.units
        if each.empty is not None:
            found["whenEmpty"] = each.empty
        if each.is_choice:
            found["choices"] = {choice.value: self.texts.text(choice.label) for choice in each.choices}
            found["binds"] = {choice.value: choice.numbers for choice in each.choices}
            found["bound"] = [bound.name for bound in each.binds]
        return found

    def _unit_for_script(self, of: Field | Output) -> dict[str, Any]:
        """How the language writes a unit, where it does so otherwise than English or counts what it stands for."""
        text, forms = self.texts.text(of.unit), _forms(of.counted, self.lang)
        return ({"unitText": text} if text != of.unit else {}) | ({"counted": forms} if forms else {})

    def _output_for_script(self, output: Output) -> dict[str, Any]:
        return {
            "name": output.name,
            "label": self.texts.text(output.label),
            "kind": output.kind,
            "unit": output.unit,
            **self._unit_for_script(output),
            **({"difference": True} if output.difference else {}),
            "formula": output.formula.__name__,
            "reading": self.texts.text(output.reading),
            **({"when": output.when.__name__} if output.when else {}),
        }

    def _picture_for_script(self, picture: Picture) -> dict[str, Any]:
        return {
            "extra": {extra.name: self._output_for_script(extra) for extra in picture.extra},
            "caption": [self.texts.text(part) for part in picture.caption],
            "shapes": [
                {
                    "element": shape.element,
                    "style": shape.style,
                    "place": shape.place.__name__,
                    "times": shape.times and shape.times.__name__,
                    "text": shape.text and self.texts.text(shape.text),
                    "number": shape.number and shape.number.__name__,
                }
                for shape in picture.shapes
            ],
        }


def _message(each: Field, typed: str, lang: str) -> str:
    """What a person is told who types that into a field."""
    try:
        each.read(typed)
    except BadInput as wrong:
        return complaint(wrong, lang)
    raise ValueError(f"{each.name} accepts {typed!r}")


def _forms(counted: tuple[str, str] | None, lang: str) -> Mapping[str, str] | None:
    """A unit's plural forms by the names that browsers have for them ("one", "few", ...); "other" stands for those that
    are left out."""
    if counted is None:
        return None
    forms = {
        name: catalogue(lang).count(*counted, example) for name, example in _plural_examples(lang).items()
    }
    return {name: form for name, form in forms.items() if name == "other" or form != forms["other"]}


@cache
def _plural_examples(lang: str) -> dict[str, int]:
    """For each plural form that a language has, a number that takes it. Some take one only for whole millions."""
    form = Locale.parse(lang, sep="-").plural_form
    return {form(number): number for number in (1_000_000, *range(200, -1, -1))}
