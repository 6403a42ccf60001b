"""Bytes as people write them: GB is 10^9, GiB is 2^30, and the two are never mixed up."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal

from batchfit.errors import BadInput
from batchfit.numbers import read_number

#: Every unit by name, in bytes. Decimal units first: they are what a bare "K", "M", "G" means.
UNITS: dict[str, int] = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}

_EXACT = Context(prec=200)  # more digits than anyone may type, so that rounding happens once

#: Units by what people type, in any case. French counts octets: "Go" is GB.
_BY_LOWER = (
    {name.lower(): name for name in UNITS}
    | {name.lower().replace("b", "o"): name for name in UNITS}
    | dict.fromkeys(("byte", "bytes", "octet", "octets"), "B")
)


def to_bytes(number: Decimal, unit: str) -> int:
    """`number` of `unit` in whole bytes, halves to even. 0.5 and "GB" give 500000000."""
    return int(_EXACT.multiply(number, UNITS[unit]).to_integral_value(rounding=ROUND_HALF_EVEN))


def split_unit(text: str, default: str) -> tuple[str, str]:
    """The number's text and its unit: "0.5GiB" gives ("0.5", "GiB"); a bare number gets `default`.

    The number is not read here, since how depends on the language. A unit that is not known stays part of
    the number's text, where the reader will name it.
    """
    found = re.fullmatch(r"\s*(.*?)\s*([A-Za-z]+)\s*", text)
    if found and (unit := _BY_LOWER.get(found[2].lower())):
        return found[1], unit
    return text.strip(), default


def parse_bytes(text: str, *, default: str = "GB", field: str = "bytes") -> int:
    """Bytes in `text`: "0.5GB", "512 MiB", "80GiB"; a bare number is in `default`.

    Raises BadInput where the text is not a number with a unit we know.
    """
    number, unit = split_unit(text, default)
    try:
        value = read_number(number).value
    except BadInput:
        raise BadInput(
            field, "must be a size such as 0.5GB or 512MiB; you typed {typed}", typed=repr(text)
        ) from None
    return to_bytes(value, unit)


def format_bytes(count: int, unit: str | None = None) -> str:
    """`count` bytes in `unit`, or in the largest binary unit that leaves a number of 1 or more: "67.46 GiB".

    Numbers are shown with four significant digits at most, and the unit is always there.
    """
    if unit is None:
        unit = next((u for u in ("TiB", "GiB", "MiB", "KiB") if abs(count) >= UNITS[u]), "B")
    value = count / UNITS[unit]
    if value == int(value) and abs(value) < 10_000:
        return f"{int(value)} {unit}"
    digits = max(0, 3 - len(str(int(abs(value)))) + 1)
    text = f"{value:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
