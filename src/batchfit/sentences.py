"""Sentences that a computation answers with: English text that knows what it was made from, so that a page can say
it in another language and a program can print it as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from batchfit.bidi import isolated
from batchfit.languages import SOURCE, catalogue
from batchfit.numbers import format_number
from batchfit.units import format_bytes


class Size(int):
    """Bytes in a sentence: "61.27 GiB"."""


class Code(str):
    """A piece of a program in a sentence: a command, a call, a key with its value. It is the same in every language."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """A count with what is counted: ("{n} step", "{n} steps"), of which each language has its forms."""

    one: str
    many: str
    number: int


@dataclass(frozen=True, slots=True)
class Rounded:
    """A number with just so many decimals, or with `significant` digits at most."""

    number: float
    decimals: int = 0
    significant: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A share as a percentage, to whole ones unless `decimals` are asked for: 0.153 is "15%"."""

    share: float
    decimals: int = 0


class Sentence(str):
    """An English text with its template, which is the key of the catalogues, and what was put in: numbers, sizes,
    counts, names, other sentences."""

    template: str
    params: dict[str, object]

    def __new__(cls, template: str, **params: object) -> Sentence:
        """The template with the params put in, as English has them."""
        filled = template.format(**{name: said(value, SOURCE) for name, value in params.items()})
        made = super().__new__(cls, filled if params else template)
        made.template, made.params = template, params
        return made


def in_language(text: str, lang: str) -> str:
    """A sentence in a language; any other text as it stands."""
    if lang == SOURCE or not isinstance(text, Sentence):
        return str(text)
    template = catalogue(lang).text(text.template)
    return template.format(**{name: said(value, lang) for name, value in text.params.items()})


def listed(texts: Iterable[str], lang: str) -> str:
    """Texts one after another, with the comma of a language between them."""
    return _between(catalogue(lang).text("{one}, {other}")).join(texts)


def parted(texts: Iterable[str], lang: str) -> str:
    """Longer texts one after another, with the semicolon of a language between them."""
    return _between(catalogue(lang).text("{one}; {other}")).join(texts)


def _between(pair: str) -> str:
    return pair.removeprefix("{one}").removesuffix("{other}")


def is_translated(text: str, lang: str) -> bool:
    """Whether a text can be read in the language: it is English, or made here from a template."""
    return lang == SOURCE or isinstance(text, Sentence)


def size(count: int, lang: str) -> str:
    """Bytes as a language writes them, in the largest binary unit that leaves 1 or more."""
    number, _, unit = format_bytes(count).partition(" ")
    text = number if lang == SOURCE else format_number(Decimal(number.replace(",", "")), lang)
    return f"{text} {unit}"


def percent(share: float, lang: str, decimals: int = 0) -> str:
    """A share as a percentage, as a language writes it."""
    if lang == SOURCE:
        return f"{share:.{decimals}%}"
    from babel.numbers import format_percent

    return format_percent(
        round(share, decimals + 2),
        locale=lang.replace("-", "_"),
        decimal_quantization=False,
        numbering_system="latn",
    )


def said(value: object, lang: str) -> str:
    """What was put into a sentence, as it stands in one of that language."""
    if isinstance(value, Sentence):
        return in_language(value, lang)
    if isinstance(value, Size):
        return isolated(size(value, lang), lang)
    if isinstance(value, Counted):
        form = catalogue(lang).count(value.one, value.many, value.number)
        return form.format(n=format_number(value.number, lang))
    if isinstance(value, Rounded):
        return _rounded(value, lang)
    if isinstance(value, Share):
        return percent(value.share, lang, value.decimals)
    if isinstance(value, int) and not isinstance(value, bool):
        return format_number(value, lang)
    return isolated(str(value), lang)


def _rounded(value: Rounded, lang: str) -> str:
    if value.significant is not None:
        return format_number(value.number, lang, significant=value.significant)
    return format_number(value.number, lang, min_fraction=value.decimals, max_fraction=value.decimals)
