"""An input of a calculator: one record that feeds the form, the command's option, the API's schema and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from batchfit.errors import BadInput
from batchfit.numbers import read_number
from batchfit.units import UNITS, split_unit, to_bytes

Kind = Literal["whole", "number", "bytes"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a typed value was read as: the value (bytes for sizes), and the number and unit it was given in.
    `ambiguous` when the text could mean another number elsewhere ("1.000"): then the person is shown the `echo`."""

    value: int | float
    number: Decimal
    unit: str
    ambiguous: bool
    echo: str


@dataclass(frozen=True, slots=True)
class Field:
    """One input. Texts are English and the keys of the catalogues.

    kind       "whole" a whole number; "number" any number; "bytes" a size, held in bytes
    unit       what is counted ("samples"), or for bytes the unit of a bare number ("GB")
    minimum    smallest and largest value allowed, in bytes for sizes
    default    as a person would type it; `None` where the field may stay empty
    step       what an arrow key adds, in the shown unit
    units      for bytes: the units offered beside the field
    counted    the number with its unit in a sentence, for one and for many: ("{n} sample", "{n} samples");
               catalogues hold as many forms as their language has
    """

    name: str
    symbol: str
    label: str
    help: str
    kind: Kind
    unit: str
    minimum: int | float
    maximum: int | float
    default: str | None
    step: str = "1"
    group: str = ""
    units: tuple[str, ...] = ()
    counted: tuple[str, str] | None = None

    @property
    def option(self) -> str:
        """The command's option: "--micro-batch"."""
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """The name in JSON, where sizes say that they are bytes: "activation_per_sample_bytes"."""
        return f"{self.name}_bytes" if self.kind == "bytes" else self.name

    def read(self, text: str, lang: str = "en", unit: str | None = None) -> Reading:
        """What `text` means in a language. `unit` is the unit of a bare number, where one was chosen beside
        the field. Raises BadInput that restates the text and says what is allowed."""
        if not text.strip():
            raise BadInput(self.name, "Enter a value to see results")
        number, unit = split_unit(text, unit or self.unit) if self.kind == "bytes" else (text, self.unit)
        try:
            read = read_number(number, lang)
        except BadInput:
            raise self._refuse(text) from None
        value: int | float
        if self.kind == "bytes":
            value = to_bytes(read.value, unit)
        elif self.kind == "whole":
            if read.value != read.value.to_integral_value():
                raise self._refuse(text)
            value = int(read.value)
        else:
            value = float(read.value)
        if not self.minimum <= value <= self.maximum:
            raise self._refuse(text)
        return Reading(value, read.value, unit, read.ambiguous, read.echo)

    def default_value(self) -> int | float:
        """The default as a value."""
        if self.default is None:
            raise LookupError(f"{self.name} has no default")
        return self.read(self.default).value

    def _refuse(self, typed: str) -> BadInput:
        if self.kind == "whole":
            template = "must be a whole number from {minimum} to {maximum}; you typed {typed}"
        elif self.kind == "number":
            template = "must be a number from {minimum} to {maximum}; you typed {typed}"
        else:
            template = "must be a size from {minimum} to {maximum} {unit}; you typed {typed}"
            scale = UNITS[self.unit]
            return BadInput(
                self.name,
                template,
                minimum=self.minimum // scale,
                maximum=self.maximum // scale,
                unit=self.unit,
                typed=typed.strip(),
            )
        return BadInput(self.name, template, minimum=self.minimum, maximum=self.maximum, typed=typed.strip())
