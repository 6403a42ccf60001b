"""A calculator: fields, outputs and the formulas between them, as one record that every face reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Literal

from batchfit.errors import BadInput
from batchfit.fields import Bound, Field, Input, When
from batchfit.presets import Preset

Value = int | float
Formula = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a formula or a figure is from: a work as one cites it ("Rajbhandari et al., ZeRO, 2020, section 3.1"),
    the same in every language, and its address."""

    title: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """A result. `formula` takes by their names fields, the numbers that choices bind, and earlier outputs.

    kind        "whole", "number"; "bytes", whose name ends in `_bytes`; "share", a fraction shown as a percentage;
                "seconds", shown in the unit that fits, whose name ends in `_seconds`
    reading     the sentence that explains the number, with inputs and outputs as placeholders that are filled with
                number and unit ("4 samples", "0.5 GB")
    counted     as in Field
    difference  whether it is shown with its sign
    detail      whether it is a step on the way to a result, and shown smaller
    when        a formula that says whether there is such a result for the inputs; without one there always is
    sources     where the formula is from
    """

    name: str
    symbol: str
    label: str
    kind: Literal["whole", "number", "bytes", "share", "seconds"]
    unit: str
    formula: Formula
    reading: str
    counted: tuple[str, str] | None = None
    difference: bool = False
    detail: bool = False
    when: Callable[..., bool] | None = None
    sources: tuple[Source, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the fields and outputs that the formula needs."""
        return parameters(self.formula)


@dataclass(frozen=True, slots=True)
class Inverse:
    """The calculator run backwards: `given` is a field for the result that a person wants, and `solved` the
    field that is found instead of typed.

    nearest, below, above   formulas for the value of `solved`; below and above may coincide
    drift                   an output that exists only here: how far the result is from what was wanted
    """

    given: Field
    solved: str
    reaches: str
    forward_label: str
    inverse_label: str
    nearest: Formula
    below: Formula
    above: Formula
    drift: Output


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold between inputs that are each allowed: `holds` is a formula of it. Where it does not, `field` is
    told the `message`, which has inputs as placeholders: "must be at most {total_steps}"."""

    field: str
    holds: Callable[..., bool]
    message: str


@dataclass(frozen=True, slots=True)
class Table:
    """The outputs named in `columns` for every choice of the field `over`, or for the `values` of it, as typed."""

    title: str
    over: str
    columns: tuple[str, ...]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A picture of outputs as functions of the field `over`, the value given marked.

    outputs     their names, all of one kind; each is a line
    low, high   the ends of the axis: as typed into the field, or the name of a field whose value it is
    log_x, log_y   whether an axis is logarithmic; then what is drawn must be above zero
    corners     names of numbers on the axis at which a line may turn sharply, so that it is drawn through them
    """

    title: str
    over: str
    outputs: tuple[str, ...]
    low: str
    high: str
    log_x: bool = False
    log_y: bool = False
    corners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stack:
    """A bar of outputs in bytes, to scale, in the colours of memory: each name of the palette with its output."""

    title: str
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of the catalogue that an output in bytes fits on."""

    title: str
    output: str


Section = Table | Curve | Stack | Cards


@dataclass(frozen=True, slots=True)
class Calculator:
    """One calculator. Texts are English and the keys of the catalogues; the article, FAQ and other prose stand
    in `content/LANGUAGE/SLUG.md`. `answer` is the whole result in one sentence, with placeholders as in an
    output's reading.

    category   the group of the shelf it stands in
    related    what to do next, by slug
    presets    what fills several fields at once
    checks     what must hold between fields
    sections   tables and pictures under the results
    planner    where the planner knows better: a sentence that leads there, empty where it does not
    """

    slug: str
    category: str
    title: str
    purpose: str
    answer: str
    fields: tuple[Field, ...]
    outputs: tuple[Output, ...]
    updated: date
    inverse: Inverse | None = None
    related: tuple[str, ...] = ()
    presets: tuple[Preset, ...] = ()
    checks: tuple[Check, ...] = ()
    sections: tuple[Section, ...] = ()
    planner: str = ""

    def field(self, name: str) -> Field:
        """The field of that name, the inverse's included. Raises KeyError."""
        for field in self.all_fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def output(self, name: str) -> Output:
        """The output of that name. Raises KeyError."""
        for output in self.outputs:
            if output.name == name:
                return output
        raise KeyError(name)

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """Every field that can be given: the inverse's comes last."""
        return self.fields + ((self.inverse.given,) if self.inverse else ())

    def needs(self, preset: Preset) -> tuple[When, ...]:
        """The choices of which a preset needs one, for any field that it fills to apply; none where one always does."""
        whens = [self.field(name).only_when for name in preset.fills]
        return () if None in whens else tuple(dict.fromkeys(when for when in whens if when))

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The numbers that choices give to formulas."""
        return tuple(bound for field in self.fields for bound in field.binds)

    def numbers(self, inputs: Mapping[str, Input]) -> dict[str, Value]:
        """What formulas know of the inputs, by name: numbers as they are, and what choices bind."""
        known: dict[str, Value] = {}
        for name, value in inputs.items():
            known |= self.field(name).numbers(value)
        return known

    def evaluate(self, inputs: Mapping[str, Input]) -> Results:
        """The outputs for inputs by field name, sizes in bytes. With the inverse's field among the inputs, its
        solved field is found, and must not be given. Raises BadInput where inputs do not go together."""
        known = self.numbers(inputs)
        inverse = self.inverse if self.inverse and self.inverse.given.name in inputs else None
        choices: tuple[dict[str, Value], ...] = ()
        if inverse is not None:
            known[inverse.solved] = _call(inverse.nearest, known)
            around = sorted({_call(inverse.below, known), _call(inverse.above, known)})
            choices = tuple(self._choice(inverse, known, value) for value in around)
        for check in self.checks:
            if not _call(check.holds, known):
                raise BadInput(check.field, check.message, **known)
        outputs = self._outputs(known)
        if inverse is not None:
            found = known | outputs
            outputs = {
                inverse.solved: known[inverse.solved],
                **outputs,
                inverse.drift.name: _call(inverse.drift.formula, found),
            }
        return Results(inputs=dict(inputs), numbers=known, outputs=outputs, choices=choices)

    def _outputs(self, known: Mapping[str, Value]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for output in self.outputs:
            if output.when is None or _call(output.when, {**known, **found}):
                found[output.name] = _call(output.formula, {**known, **found})
        return found

    def _choice(self, inverse: Inverse, known: Mapping[str, Value], value: Value) -> dict[str, Value]:
        trial = {**known, inverse.solved: value}
        trial |= self._outputs(trial)
        return {name: trial[name] for name in (inverse.solved, inverse.reaches)} | {
            inverse.drift.name: _call(inverse.drift.formula, trial)
        }


@dataclass(frozen=True, slots=True)
class Results:
    """What a calculator answers: `numbers` are the inputs as formulas know them. `choices` are the values around an
    inverse's solution, in order: below and above, or one where the target is reached exactly."""

    inputs: dict[str, Input]
    numbers: dict[str, Value]
    outputs: dict[str, Value]
    choices: tuple[dict[str, Value], ...] = ()

    @property
    def values(self) -> dict[str, Value]:
        """Every number by name: inputs as formulas know them, and outputs."""
        return self.numbers | self.outputs

    def as_json(self, calculator: Calculator, presets: Mapping[str, str] | None = None) -> dict[str, object]:
        """The answer as the command line and the web give it: sizes are whole bytes in keys ending in `_bytes`. With
        the `presets` that were chosen, by name, among the inputs."""
        outputs: dict[str, object] = dict(self.outputs)
        if self.choices:
            outputs["choices"] = [dict(choice) for choice in self.choices]
        return {
            "calculator": calculator.slug,
            "inputs": {
                **(presets or {}),
                **{calculator.field(name).key: value for name, value in self.inputs.items()},
            },
            "outputs": outputs,
        }


@cache
def parameters(formula: Callable[..., object]) -> tuple[str, ...]:
    """The names of what a formula takes."""
    return tuple(inspect.signature(formula).parameters)


def _call(formula: Callable[..., Value], known: Mapping[str, Value]) -> Value:
    return formula(*[known[name] for name in parameters(formula)])
