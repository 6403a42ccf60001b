"""Numbers as people type and read them, in any language. `web/static/numbers.js` is the twin that pages use.

Reading accepts every digit, space, apostrophe, comma and minus sign that keyboards and pasted text bring.
What a separator means is decided by its place where the place leaves one meaning ("0,500" is a half
everywhere), and by the language where it does not ("1.000" is 1000 in German, 1 in English); then the
reading is marked as ambiguous, so that the caller can say how it was read.

Writing uses the digits 0-9 in every language. Arabic is read with either kind of digits, but its readers see
these numbers beside code, commands and GPU names, where 0-9 are what one types; and "ar" means different
digits to different browsers, so the choice must be ours for server and page to agree.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import NamedTuple

from batchfit.errors import BadInput

#: The longest text that is read as a number, in characters.
LONGEST = 64
#: The powers of ten between which a number may lie: far beyond any memory, well inside a float.
LARGEST_EXPONENT = 99

EMPTY = "is empty; enter a number such as {example}"
TOO_LONG = "must be a number of at most {limit} characters; you typed {count}"
NOT_A_NUMBER = 'must be a number such as {example}; you typed "{typed}"'
OUT_OF_RANGE = 'is too large or too close to zero; you typed "{typed}"'
_EXAMPLE = Decimal("0.5")


class Symbols(NamedTuple):
    """How a language writes a number."""

    decimal: str
    group: str
    minus: str
    plus: str
    grouping: tuple[int, int]  # digits in the last group, and in those before it
    minimum_grouping: int  # digits that must stand before the first separator for there to be one


class Reading(NamedTuple):
    """A number as it was read."""

    value: Decimal
    #: Whether someone else may have meant another number by the same text.
    ambiguous: bool
    #: The value as it stands in an entry field of the reader's language, and after "read as".
    echo: str

    @property
    def whole(self) -> int | None:
        """The value as an integer, None where it has a fraction."""
        return int(self.value) if self.value == self.value.to_integral_value() else None


_ENGLISH = Symbols(".", ",", "-", "+", (3, 3), 1)
# Babel does not carry CLDR's minimumGroupingDigits; of our languages only Spanish has another than 1.
_MINIMUM_GROUPING = {"es": 2}


@lru_cache(maxsize=64)
def symbols(locale: str) -> Symbols:
    """The symbols of `locale`, a tag such as "en", "pt-BR" or "zh-Hant". "en" needs no Babel."""
    if locale == "en":
        return _ENGLISH
    from babel import Locale

    known = Locale.parse(locale, sep="-")
    names = known.number_symbols["latn"]
    return Symbols(
        names["decimal"],
        names["group"],
        names["minusSign"],
        names["plusSign"],
        known.decimal_formats[None].grouping,
        _MINIMUM_GROUPING.get(locale, 1),
    )


# ---- Reading -------------------------------------------------------------------------------------------

_SPACES = "\t\n\v\f\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_INVISIBLE = (
    "\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # soft hyphen, joiners, directions
)
_SAME = {
    " ": _SPACES,
    "": _INVISIBLE,
    "'": "’‘ʼ＇′`´",
    "-": "‐‑‒–—−⁃˗﹣－➖",
    "+": "＋﹢➕",
    ".": "．。｡﹒",
    ",": "，،﹐､、",
    "_": "＿",
    "e": "EｅＥ",
    "×": "xX*✕·⋅",
}
_ARABIC_DECIMAL, _ARABIC_GROUP = "٫", "٬"
_SUPERSCRIPT = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")


def _expand(ranges: str) -> str:
    """The characters of a set in which "a-c" stands for "abc"."""
    return re.sub(
        r"(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), ranges, flags=re.S
    )


_TRANSLATION = {ord(c): to for to, ranges in _SAME.items() for c in _expand(ranges)}
_SEPARATOR = re.compile(f"[.,' _{_ARABIC_DECIMAL}{_ARABIC_GROUP}]")
_BODY = f"[0-9.,' _{_ARABIC_DECIMAL}{_ARABIC_GROUP}]"
_NUMBER = re.compile(f"([+-]?) ?({_BODY}*[0-9]{_BODY}*?)(?: ?(?:e|× ?10 ?\\^) ?([+-]?[0-9]{{1,4}}))?")


def read_number(text: str, locale: str = "en", field: str = "number") -> Reading:
    """The number that `text` means to a reader of `locale`.

    Raises BadInput, with `field` as its field, where the text is empty, too long, not a number, or a number
    beyond 10^99 or closer to zero than 10^-99.
    """
    plain = _plain(text)
    if not plain:
        raise BadInput(field, EMPTY, example=_EXAMPLE)
    if len(plain) > LONGEST:
        raise BadInput(field, TOO_LONG, limit=LONGEST, count=len(plain))
    found = _NUMBER.fullmatch(plain)
    parts = found and _parts(found[2], symbols(locale), scientific=found[3] is not None)
    if not found or not parts:
        raise BadInput(field, NOT_A_NUMBER, example=_EXAMPLE, typed=_shown(text))
    whole, fraction, ambiguous = parts
    value = Decimal(f"{found[1]}{whole or 0}.{fraction.rstrip('0')}E{found[3] or 0}")
    if not value:
        value = Decimal(0)
    elif abs(value.adjusted()) > LARGEST_EXPONENT:
        raise BadInput(field, OUT_OF_RANGE, typed=_shown(text))
    return Reading(value, ambiguous, entry_text(value, locale))


def _plain(text: str) -> str:
    """`text` with every kind of digit, space and sign in its ASCII form, and superscripts after a "^"."""
    text = re.sub("[⁺⁻]?[⁰¹²³⁴-⁹]+", lambda m: "^" + m[0].translate(_SUPERSCRIPT), text)
    text = text.translate(_TRANSLATION)
    return "".join(str(int(c)) if c.isdecimal() else c for c in text).strip(" ")


def _parts(body: str, names: Symbols, *, scientific: bool) -> tuple[str, str, bool] | None:
    """The digits before and after the decimal separator, and whether that is ambiguous; None for nonsense."""
    separators = _SEPARATOR.findall(body)
    if not separators:
        return body, "", False
    last = separators[-1]
    ambiguous = False
    if last in (".", ",", _ARABIC_DECIMAL) and separators.count(last) == 1:
        head, tail = body.split(last)
        if len(separators) == 1 and last != _ARABIC_DECIMAL:
            ambiguous = _may_group(head, tail, by_four=last == names.group)
        # A thousands separator only where the language has it: French has neither "1.000" nor "1,000", and
        # whoever writes an exponent writes a decimal point.
        if not (ambiguous and last == names.group and len(tail) == 3) or scientific:
            whole = _ungrouped(head)
            return None if whole is None else (whole, tail, ambiguous)
    digits = _ungrouped(body)
    return None if digits is None else (digits, "", ambiguous)


def _may_group(head: str, tail: str, *, by_four: bool) -> bool:
    """Whether a separator between these digits can be one of thousands, or `by_four`, of ten thousands."""
    size = len(tail)
    return (size == 3 or (by_four and size == 4)) and 1 <= len(head) <= size and head[0] != "0"


def _ungrouped(text: str) -> str | None:
    """The digits of a whole number without its thousands separators, None where they stand wrongly."""
    kinds = set(_SEPARATOR.findall(text))
    if not kinds:
        return text
    first, *middle, final = _SEPARATOR.split(text)
    threes = all(len(group) == 3 for group in middle)
    indian = kinds == {","} and len(first) < 3 and all(len(group) == 2 for group in middle)
    regular = 1 <= len(first) <= 3 and first[0] != "0" and len(final) == 3 and (threes or indian)
    if len(kinds) == 1 and kinds != {_ARABIC_DECIMAL} and regular:
        return "".join([first, *middle, final])
    return None


def decimal_text(value: Decimal) -> str:
    """`value` exactly, with a point and no exponent, as URLs and the page's JavaScript carry it: "0.5"."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shown(text: str) -> str:
    """`text` as it can be repeated on any screen: on one line, without control characters, not too long."""
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


# ---- Writing -------------------------------------------------------------------------------------------

_EXACT = Context(prec=1000)


def entry_text(value: Decimal, locale: str = "en") -> str:
    """`value` as it stands in an entry field: exactly, without thousands separators. Zeros at the end of a number so
    large that nobody counts them are given by a power of ten: "5.76e23"."""
    names = symbols(locale)
    text = decimal_text(value)
    if abs(value) >= ASTRONOMIC and text.endswith("0"):
        power = value.adjusted()
        text = f"{decimal_text(value.scaleb(-power, _EXACT))}e{power}"
    return text.replace(".", names.decimal).replace("-", names.minus)


def format_number(
    value: int | float | Decimal,
    locale: str = "en",
    *,
    min_fraction: int = 0,
    max_fraction: int = 3,
    significant: int | None = None,
    grouping: bool = True,
    plus: bool = False,
) -> str:
    """`value` as `locale` writes it: at most `max_fraction` decimals, at least `min_fraction`.

    With `plus`, a number above zero has its sign too. With `significant`, that many significant digits at most,
    whatever the decimals. Halves are rounded away from zero, on the shortest decimal that stands for a float, and zero
    has no sign: so does the page.
    Raises ValueError for infinity and NaN.
    """
    exact = _exact(value)
    if not exact.is_finite():
        raise ValueError(f"cannot write {value} as a number")
    names = symbols(locale)
    last = -max_fraction if significant is None else exact.adjusted() - significant + 1
    rounded = exact.quantize(Decimal(1).scaleb(last), ROUND_HALF_UP, _EXACT)
    whole, _, fraction = f"{abs(rounded):f}".partition(".")
    fraction = fraction.rstrip("0")
    if significant is None:
        fraction = fraction.ljust(min_fraction, "0")
    sign = names.minus if rounded < 0 else names.plus if plus and rounded > 0 else ""
    whole = _grouped(whole, names) if grouping else whole
    return f"{sign}{whole}{names.decimal if fraction else ''}{fraction}"


def _grouped(digits: str, names: Symbols) -> str:
    primary, secondary = names.grouping
    if len(digits) < primary + names.minimum_grouping:
        return digits
    groups = [digits[-primary:]]
    rest = digits[:-primary]
    while rest:
        groups.append(rest[-secondary:])
        rest = rest[:-secondary]
    return names.group.join(reversed(groups))


#: From the one on, and under the other, digits are counted in powers of ten: 6.72 × 10²³.
ASTRONOMIC = 10**15
_MICROSCOPIC = Decimal(1).scaleb(-6)
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_figure(value: int | float | Decimal, locale: str = "en", *, plus: bool = False) -> str:
    """A result of any size: with three decimals at most, or four significant digits below 1; what is very large or
    very small as a number times a power of ten."""
    if power := format_power(value, locale, plus=plus):
        return power
    exact = _exact(value)
    significant = 4 if 0 < abs(exact) < 1 else None
    return format_number(exact, locale, significant=significant, plus=plus)


def format_power(value: int | float | Decimal, locale: str = "en", *, plus: bool = False) -> str:
    """What is very large or very small as a number of four significant digits times a power of ten: "6.72 × 10²³".
    Empty for what is neither."""
    exact = _exact(value)
    if not exact or _MICROSCOPIC <= abs(exact) < ASTRONOMIC:
        return ""
    power = exact.adjusted()
    digits = exact.scaleb(-power, _EXACT)
    if abs(digits.quantize(Decimal("0.001"), ROUND_HALF_UP)) == 10:
        digits, power = digits / 10, power + 1
    return (
        f"{format_number(digits, locale, significant=4, plus=plus)} × 10{str(power).translate(_SUPERSCRIPTS)}"
    )


def _exact(value: int | float | Decimal) -> Decimal:
    """The shortest decimal that stands for a float."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def format_percent(value: int | float, locale: str = "en", *, plus: bool = False) -> str:
    """A fraction in percent, without the sign: four significant digits at most below 1000, so 0.1795 is "17.95"."""
    exact = _exact(value).scaleb(2, _EXACT)
    if power := format_power(exact, locale, plus=plus):
        return power
    if abs(exact) < 1000:
        return format_number(exact, locale, significant=4, plus=plus)
    return format_number(exact, locale, max_fraction=0, plus=plus)


@lru_cache(maxsize=64)
def percent_sign(locale: str) -> str:
    """What stands after a percentage, with the space where a language has one."""
    if locale == "en":
        return "%"
    from babel import Locale

    pattern: str = Locale.parse(locale, sep="-").percent_formats[None].pattern
    return pattern[pattern.rindex("0") + 1 :]


class Magnitude(NamedTuple):
    """How a language shortens numbers from a power of ten on: what stands after the number of 10^`divisor` that it has,
    "Mrd." for thousand millions. None of our languages tells one from many here."""

    power: int
    divisor: int
    suffix: str


_ENGLISH_MAGNITUDES = tuple(
    Magnitude(power, power - power % 3, "MBT"[power // 3 - 2]) for power in range(6, 15)
)


_ENGLISH_POWERS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}


@lru_cache(maxsize=64)
def magnitudes(locale: str) -> tuple[Magnitude, ...]:
    """How a language shortens millions and more, the smallest first."""
    if locale == "en":
        return _ENGLISH_MAGNITUDES
    from babel import Locale

    patterns = Locale.parse(locale, sep="-").compact_decimal_formats["short"]["other"]
    by_power = ((power, patterns[str(10**power)]) for power in range(6, 15))
    return tuple(
        Magnitude(power, power - pattern.int_prec[0] + 1, pattern.suffix[0].replace("'", ""))
        for power, pattern in by_power
    )


@lru_cache(maxsize=64)
def powers(locale: str) -> dict[str, int]:
    """The words that stand behind a number for a power of ten in a language, in lower case and without a full stop:
    {"mio": 6, "millionen": 6, ...}, {"万": 4, "億": 8, ...}. They are those of CLDR's compact forms, short and long."""
    if locale == "en":
        return _ENGLISH_POWERS
    from babel import Locale

    found = {}
    for style in Locale.parse(locale, sep="-").compact_decimal_formats.values():
        for patterns in style.values():
            for number, pattern in patterns.items():
                word = " ".join(pattern.suffix[0].replace("'", "").replace(".", "").lower().split())
                if word and not pattern.prefix[0]:
                    found[word] = len(number) - pattern.int_prec[0]
    return found


def format_compact(value: int | float, locale: str = "en") -> str:
    """A number from a million on, shortened to three significant digits as a language does: "8.03B", "8,03 Mrd.".
    Empty where it is smaller, or so large that it is written as a power of ten anyway."""
    exact = _exact(value)
    if not 10**6 <= abs(exact) < ASTRONOMIC:
        return ""
    found = next(each for each in reversed(magnitudes(locale)) if 10**each.power <= abs(exact))
    return format_number(exact.scaleb(-found.divisor, _EXACT), locale, significant=3) + found.suffix
