"""An input of a calculator: one record that feeds the form, the command's option, the API's schema and the docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from batchfit.errors import BadInput
from batchfit.numbers import format_number, read_number
from batchfit.scales import COUNTS, DURATIONS, SHARES, Scale, scaled, split_scale
from batchfit.units import UNITS, split_unit, to_bytes

Kind = Literal["whole", "number", "bytes", "share", "seconds", "choice", "choices"]
#: What an input is: a number, the value chosen or the values chosen; None where a field that may be empty is.
Input = int | float | str | tuple[str, ...] | None

#: From here on a count is hard to read, and its reading is shown in groups: 7,000,000,000.
_MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A number that a choice gives to the formulas, as they name and show it."""

    name: str
    symbol: str
    label: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that can be chosen. `numbers` are those that formulas get for it, by the names of the field's `binds`."""

    value: str
    label: str
    numbers: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class When:
    """That another field, a choice, is at one of these values."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a typed value was read as: the value (bytes for sizes), and the number and unit it was given in.

    ambiguous   the text could mean another number elsewhere ("1.000"): then the person is shown the `echo`
    echo        the number as it stands in the field
    spelled     the number in full, where it was shortened or is hard to count: "7,000,000,000"
    """

    value: Input
    number: Decimal
    unit: str
    ambiguous: bool
    echo: str
    spelled: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One input. Texts are English and the keys of the catalogues.

    kind       "whole" a whole number; "number" any number; "bytes" a size, held in bytes; "share" a part of a whole,
               held as a fraction; "seconds" a duration, held in seconds; "choice" one of `choices`; "choices" some
    unit       what is counted ("samples"); for bytes and seconds the unit of a bare number ("GB", "h"); for a share
               what a bare number is: "%" a percentage, "" a fraction
    minimum    smallest and largest value allowed, in what it is held in
    default    as a person would type it; `None` where the field has none
    step       what an arrow key adds, in the shown unit
    units      for bytes and seconds: the units offered beside the field
    counted    the number with its unit in a sentence, for one and for many: ("{n} sample", "{n} samples");
               catalogues hold as many forms as their language has
    suffixes   whether K, M, B and T may follow the number, and what a language has for such: 7B, 70億
    empty      the number that formulas get where the field is left empty; `None` where it must be filled
    choices    what can be chosen; of "choices", at least `minimum` of them
    binds      the numbers that a choice gives to formulas. Of "choices", those of a value not chosen are 0
    only_when  when it applies: otherwise no result depends on it, and pages do not show it
    replaced_by   a field that may be empty, and takes this one's place where it is not: then no result depends on it
    """

    name: str
    symbol: str
    label: str
    help: str
    kind: Kind
    unit: str = ""
    minimum: int | float = 0
    maximum: int | float = 0
    default: str | None = None
    step: str = "1"
    group: str = ""
    units: tuple[str, ...] = ()
    counted: tuple[str, str] | None = None
    suffixes: bool = False
    empty: int | float | None = None
    choices: tuple[Choice, ...] = ()
    binds: tuple[Bound, ...] = ()
    only_when: When | None = None
    replaced_by: str | None = None

    @property
    def option(self) -> str:
        """The command's option: "--micro-batch"."""
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """The name in JSON, where sizes and durations say their unit: "activation_per_sample_bytes"."""
        ending = f"_{self.kind}"
        return (
            self.name + ending
            if self.kind in ("bytes", "seconds") and not self.name.endswith(ending)
            else self.name
        )

    @property
    def scales(self) -> Mapping[str, Scale]:
        """What may follow a number, beside the units of bytes."""
        if self.kind == "share":
            return SHARES
        if self.kind == "seconds":
            return DURATIONS
        return COUNTS if self.suffixes else {}

    @property
    def is_choice(self) -> bool:
        """Whether its value is chosen, not typed as a number."""
        return self.kind in ("choice", "choices")

    @property
    def chosen_by_default(self) -> tuple[str, ...]:
        """For a choice: the values of its default."""
        return tuple(filter(None, (self.default or "").split(",")))

    def read(self, text: str, lang: str = "en", unit: str | None = None) -> Reading:
        """What `text` means in a language. `unit` is the unit of a bare number, where one was chosen beside
        the field. Raises BadInput that restates the text and says what is allowed."""
        if self.is_choice:
            return self._read_choice(text)
        if not text.strip():
            if self.empty is not None:
                return Reading(None, Decimal(0), self.unit, False, "")
            raise BadInput(self.name, "Enter a value to see results")
        number, unit = self._split(text, unit or self.unit, lang)
        try:
            read = read_number(number, lang)
        except BadInput:
            raise self._refuse(text) from None
        exact = scaled(read.value, self.scales.get(unit, (1, 0)))
        value: int | float
        if self.kind == "bytes":
            value = to_bytes(read.value, unit)
        elif self.kind == "whole":
            if exact != exact.to_integral_value():
                raise self._refuse(text)
            value = int(exact)
        else:
            value = float(exact)
        if not self.minimum <= value <= self.maximum:
            raise self._refuse(text)
        shortened = self.suffixes and (unit != self.unit or abs(value) >= _MANY)
        spelled = format_number(exact, lang, max_fraction=12) if shortened else ""
        return Reading(value, read.value, unit, read.ambiguous, read.echo, spelled)

    def default_value(self) -> Input:
        """The default as a value."""
        if self.default is None and self.empty is None:
            raise LookupError(f"{self.name} has no default")
        return self.read(self.default or "").value

    def numbers(self, value: Input) -> dict[str, int | float]:
        """What formulas get for a value, by name."""
        if isinstance(value, str | tuple):
            chosen = (value,) if isinstance(value, str) else value
            numbers: dict[str, int | float] = {bound.name: 0 for bound in self.binds}
            for choice in self.choices:
                if choice.value in chosen:
                    numbers.update(choice.numbers)
            return numbers
        if value is None:
            if self.empty is None:
                raise LookupError(f"{self.name} must have a value")
            return {self.name: self.empty}
        return {self.name: value}

    def _split(self, text: str, unit: str, lang: str) -> tuple[str, str]:
        if self.kind == "bytes":
            return split_unit(text, unit)
        number, scale = split_scale(text, self.scales, lang)
        return number, scale or unit

    def _read_choice(self, text: str) -> Reading:
        """A choice's reading, its values in the order of the choices."""
        given = [part.strip().lower() for part in text.split(",") if part.strip()]
        known = {choice.value.lower(): choice.value for choice in self.choices}
        chosen = tuple(value for typed, value in known.items() if typed in given)
        if (not given and self.minimum > 0) or (self.kind == "choice" and not given):
            raise BadInput(self.name, "Choose at least one")
        if not set(given) <= known.keys() or (self.kind == "choice" and len(given) != 1):
            raise self._refuse(text)
        value: Input = chosen[0] if self.kind == "choice" else chosen
        return Reading(value, Decimal(0), self.unit, False, ",".join(chosen))

    def _refuse(self, typed: str) -> BadInput:
        """What a person is told whose text is not allowed."""
        name, typed = self.name, typed.strip()
        values = ", ".join(choice.value for choice in self.choices)
        low, high = self._bounds()
        match self.kind:
            case "choice":
                return BadInput(name, CHOICE, choices=values, typed=typed)
            case "choices":
                return BadInput(name, CHOICES, choices=values, typed=typed)
            case "bytes":
                return BadInput(name, SIZE, minimum=low, maximum=high, unit=self.unit, typed=typed)
            case "seconds":
                return BadInput(name, DURATION, minimum=low, maximum=high, unit=self.unit, typed=typed)
            case "share" if self.unit == "%":
                return BadInput(name, PERCENTAGE, minimum=low, maximum=high, typed=typed)
            case "share":
                return BadInput(name, SHARE, minimum=low, maximum=high, typed=typed)
            case "whole":
                return BadInput(name, WHOLE, minimum=low, maximum=high, typed=typed)
        return BadInput(name, NUMBER, minimum=low, maximum=high, typed=typed)

    def _bounds(self) -> tuple[int | float, int | float]:
        """The smallest and largest value in the unit in which a person is told them."""
        minimum, maximum = (Decimal(str(bound)) for bound in (self.minimum, self.maximum))
        if self.kind == "bytes":
            minimum, maximum = (bound // UNITS[self.unit] for bound in (minimum, maximum))
        elif self.kind in ("share", "seconds"):
            times, power = DURATIONS[self.unit] if self.kind == "seconds" else SHARES["%"]
            minimum, maximum = (bound / times / Decimal(10) ** power for bound in (minimum, maximum))
        return _plain(minimum), _plain(maximum)


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


WHOLE = "must be a whole number from {minimum} to {maximum}; you typed {typed}"
NUMBER = "must be a number from {minimum} to {maximum}; you typed {typed}"
SIZE = "must be a size from {minimum} to {maximum} {unit}; you typed {typed}"
PERCENTAGE = "must be a percentage from {minimum} to {maximum}; you typed {typed}"
SHARE = "must be a percentage from {minimum} % to {maximum} %, or a fraction such as 0.3; you typed {typed}"
DURATION = "must be a duration from {minimum} to {maximum} {unit}; you typed {typed}"
CHOICE = "must be one of {choices}; you typed {typed}"
CHOICES = "must be some of {choices}, with commas between them; you typed {typed}"
