"""A calculator: fields, outputs and the formulas between them, as one record that every face reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

from batchfit.fields import Field

Value = int | float
Formula = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Output:
    """A result. `formula` takes fields and earlier outputs by their names; sizes are in bytes, and their
    names end in `_bytes`. `reading` is the sentence that explains the number, with inputs and outputs as
    placeholders that are filled with number and unit ("4 samples", "0.5 GB"). `counted` as in Field. A
    `difference` is shown with its sign."""

    name: str
    symbol: str
    label: str
    kind: Literal["whole", "number", "bytes"]
    unit: str
    formula: Formula
    reading: str
    counted: tuple[str, str] | None = None
    difference: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the fields and outputs that the formula needs."""
        return tuple(inspect.signature(self.formula).parameters)


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
class Calculator:
    """One calculator. Texts are English and the keys of the catalogues; the article, FAQ and other prose stand
    in `content/LANGUAGE/SLUG.md`. `answer` is the whole result in one sentence, with placeholders as in an
    output's reading."""

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

    def field(self, name: str) -> Field:
        """The field of that name, the inverse's included. Raises KeyError."""
        for field in self.all_fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """Every field that can be given: the inverse's comes last."""
        return self.fields + ((self.inverse.given,) if self.inverse else ())

    def evaluate(self, inputs: Mapping[str, Value]) -> Results:
        """The outputs for inputs by field name, sizes in bytes. With the inverse's field among the inputs, its
        solved field is found, and must not be given."""
        known: dict[str, Value] = dict(inputs)
        inverse = self.inverse if self.inverse and self.inverse.given.name in inputs else None
        choices: tuple[dict[str, Value], ...] = ()
        if inverse is not None:
            known[inverse.solved] = _call(inverse.nearest, known)
            around = sorted({_call(inverse.below, known), _call(inverse.above, known)})
            choices = tuple(self._choice(inverse, known, value) for value in around)
        outputs = self._outputs(known)
        if inverse is not None:
            known |= outputs
            outputs = {
                inverse.solved: known[inverse.solved],
                **outputs,
                inverse.drift.name: _call(inverse.drift.formula, known),
            }
        return Results(inputs=dict(inputs), outputs=outputs, choices=choices)

    def _outputs(self, known: Mapping[str, Value]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for output in self.outputs:
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
    """What a calculator answers. `choices` are the values around an inverse's solution, in order: below and
    above, or one where the target is reached exactly."""

    inputs: dict[str, Value]
    outputs: dict[str, Value]
    choices: tuple[dict[str, Value], ...] = ()

    def as_json(self, calculator: Calculator) -> dict[str, object]:
        """The answer as the command line and the web give it: sizes are whole bytes in keys ending in `_bytes`."""
        outputs: dict[str, object] = dict(self.outputs)
        if self.choices:
            outputs["choices"] = [dict(choice) for choice in self.choices]
        return {
            "calculator": calculator.slug,
            "inputs": {calculator.field(name).key: value for name, value in self.inputs.items()},
            "outputs": outputs,
        }


def _call(formula: Formula, known: Mapping[str, Value]) -> Value:
    return formula(**{name: known[name] for name in inspect.signature(formula).parameters})
