"""What a link looks like before it is opened: the answer, large, with the picture of it, as a card of 1200 × 630."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

from markupsafe import escape

from batchfit.charts import LIGHT_STYLE, memory_bar, text_length
from batchfit.languages import direction
from batchfit.palette import COLOURS, INTERFACE
from batchfit.web.drawing import draw
from batchfit.web.instrument import Instrument
from batchfit.web.plan_view import PlanView
from batchfit.web.site import translator

WIDTH, HEIGHT = 1200, 630

_MARGIN = 64
_ROOM = WIDTH - 2 * _MARGIN
#: Where the picture begins, and how high it is.
_PICTURE_TOP, _PICTURE_HEIGHT = 438, 144
#: Results that a card has room for, and lines of a text.
_MOST, _LINES = 3, 2
#: Sizes of sentences: beneath figures, at the least, and where there are no figures.
_SMALL, _SMALLEST, _LARGE = 27, 19, 38
#: By how much bold letters are wider than those that lengths are reckoned with.
_BOLD = 1.12

_LIGHT = {name: pair[0] for name, pair in INTERFACE.items()} | COLOURS

#: The fonts of a card, of which the renderer takes the first that the server has. One has to have all letters, Latin
#: ones too: the renderer does not combine fonts well. Those who share characters draw them each in their own way.
_LATIN = ("Noto Sans", "DejaVu Sans", "Liberation Sans", "Arial", "Helvetica")
_FONTS = {
    "ar": ("DejaVu Sans", "Arial", "Tahoma", "Geeza Pro", "Noto Sans Arabic"),
    "ja": ("Noto Sans CJK JP", "Noto Sans JP", "IPAexGothic", "IPAGothic", "Yu Gothic", "Hiragino Sans"),
    "ko": ("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo"),
    "zh-Hans": ("Noto Sans CJK SC", "Noto Sans SC", "WenQuanYi Micro Hei", "Microsoft YaHei", "PingFang SC"),
    "zh-Hant": (
        "Noto Sans CJK TC",
        "Noto Sans TC",
        "WenQuanYi Micro Hei",
        "Microsoft JhengHei",
        "PingFang TC",
    ),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with what stands before and after it, and what it is."""

    number: str
    label: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """What a card shows. `between` stands between the figures; `wrong` says that it does not fit; `picture` is the
    content of an SVG element of `canvas`, in its own units."""

    lang: str
    title: str
    figures: Sequence[Figure] = ()
    between: str = ""
    headline: str = ""
    wrong: bool = False
    lines: Sequence[str] = ()
    picture: str = ""
    canvas: tuple[float, float] = (1, 1)
    style: str = field(default="", repr=False)


def of_calculator(instrument: Instrument) -> Card:
    """A calculator's results, its inputs and its picture."""
    calculator, texts = instrument.calculator, instrument.texts
    title = texts.text(calculator.title)
    if not instrument.values:
        return Card(instrument.lang, title, lines=_wrapped(texts.text(calculator.purpose), _LARGE))
    figures = [
        Figure(found.number, each.label, found.before, found.after)
        for each in instrument.results
        if not each.hidden and (found := each.quantity)
    ]
    inputs = [
        f"{texts.text(each.label)}: {instrument.words[each.name]}" for each in instrument.state.applying
    ]
    card = Card(instrument.lang, title, figures=figures[:_MOST], lines=_packed(inputs))
    picture = instrument.picture
    if picture is None:
        return card
    # Drawn as wide as its height on the card asks for. Its words would be too small there.
    silent = replace(picture, shapes=tuple(each for each in picture.shapes if each.element != "text"))
    width = round(_ROOM * picture.height / _PICTURE_HEIGHT)
    shapes = draw(silent, instrument.values, instrument.words, width, instrument.lang, texts.text)
    return replace(card, picture=shapes, canvas=(width, picture.height), style=_pictures_style())


def of_plan(view: PlanView) -> Card:
    """The planner's best plan with its memory."""
    lang = view.lang
    title = translator(lang)("Batch planner")
    if not view.answered:
        return Card(lang, title)
    situation, state = view.answer.situation, view.state
    model = state.catalogue.find(state.model)
    asked = f"{model.title if model else state.model} · {view.number(view.first_gpus)} × {situation.request.gpu.name}"
    headline = " · ".join(filter(None, (view.effective, view.judgement)))
    plan = view.answer.shown
    bar = memory_bar(plan, lang) if plan else ""
    found = re.fullmatch(r'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>(.*)</svg>', bar, flags=re.S)
    card = Card(
        lang,
        asked,
        figures=[Figure(number, label) for number, label in view.headline],
        between="×",
        headline=headline,
        wrong=view.verdict != "fits",
    )
    if found is None:
        return card
    canvas = float(found[1]), float(found[2])
    return replace(card, picture=f'<g class="bf">{found[3]}</g>', canvas=canvas, style=LIGHT_STYLE)


@cache
def _pictures_style() -> str:
    """The rules that pages have for pictures of calculators, in the colours of light paper."""
    sheet = resources.files("batchfit.web").joinpath("static", "style.css").read_text(encoding="utf-8")
    rules = re.findall(r"^svg \.[^{]+\{[^}]*\}", sheet, flags=re.M)
    return re.sub(r"var\(--([\w-]+)\)", lambda name: _LIGHT[name[1]], "".join(rules))


# ---- Drawing -------------------------------------------------------------------------------------------------


def svg(card: Card) -> str:
    """The card as an SVG image."""
    shapes = [
        f"<style>{card.style}.bf text{{font-size:12px;font-family:{fonts(card.lang)}}}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{_LIGHT["paper"]}"/>',
        f'<rect width="{WIDTH}" height="14" fill="{_LIGHT["wrong" if card.wrong else "answer"]}"/>',
        *_head(card),
        *_figures(card),
        *_sentences(card),
        _picture(card),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{fonts(card.lang)}">'
        f"{''.join(shapes)}</svg>"
    )


def _head(card: Card) -> Iterator[str]:
    yield _text(card, 92, "batchfit", 30, "ink", bold=True)
    yield _text(card, 162, card.title, _fitting(card.title, 50, _ROOM), "ink", bold=True)


def _figures(card: Card) -> Iterator[str]:
    """The figures, side by side; where it reads from right to left, the first stands at the right."""
    if not card.figures:
        return
    room = _ROOM / len(card.figures)
    numbers, units = zip(*(_sizes(each, room - 24) for each in card.figures), strict=True)
    number, unit = min(numbers), min(units)
    for place, each in enumerate(card.figures):
        x = _MARGIN + place * room
        bold = f'<tspan font-weight="700" font-size="{number}">{escape(each.number)}</tspan>'
        yield _placed(card, x, 290, f"{escape(each.before)}{bold}{escape(each.after)}", unit, "answer")
        if card.between and place:
            yield _placed(card, x - 64, 280, escape(card.between), 52, "muted")
        yield _placed(card, x, 338, escape(each.label), _fitting(each.label, 30, room - 24), "muted")


def _sizes(figure: Figure, room: float) -> tuple[int, int]:
    """The sizes of a figure's number and of what stands around it, with which it has room."""
    around = figure.before + figure.after
    unit = _fitting(around, 38, room * 0.5)
    return _fitting(figure.number, 116, room - text_length(around, unit)), unit


def _sentences(card: Card) -> Iterator[str]:
    y, size = (396.0, _SMALL) if card.figures else (250.0, _LARGE)
    if card.headline:
        tone = "wrong" if card.wrong else "ink"
        yield _text(card, y, card.headline, _fitting(card.headline, size + 8, _ROOM), tone, bold=True)
    fitting = min((_fitting(line, size, _ROOM * _BOLD) for line in card.lines), default=size)
    for place, line in enumerate(card.lines):
        yield _text(card, y + place * size * 1.4, line, fitting, "muted")


def _picture(card: Card) -> str:
    if not card.picture:
        return ""
    width, height = card.canvas
    scale = min(_ROOM / width, _PICTURE_HEIGHT / height)
    return f'<g transform="translate({_MARGIN} {_PICTURE_TOP}) scale({scale:.4f})">{card.picture}</g>'


def _text(card: Card, y: float, text: str, size: float, colour: str, *, bold: bool = False) -> str:
    """A line of text from where lines begin."""
    content = f'<tspan font-weight="700">{escape(text)}</tspan>' if bold else escape(text)
    return _placed(card, _MARGIN, y, content, size, colour)


def _placed(card: Card, x: float, y: float, content: str, size: float, colour: str) -> str:
    """Text that begins at x, or, where lines begin at the right, ends as far from there."""
    anchor = ""
    if direction(card.lang) == "rtl":
        x, anchor = WIDTH - x, ' text-anchor="end"'
        # The whole of it reads from right to left, whatever it begins with.
        content = f"\N{RIGHT-TO-LEFT ISOLATE}{content}\N{POP DIRECTIONAL ISOLATE}"
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{_LIGHT[colour]}"{anchor}>{content}</text>'
    )


def _fitting(text: str, size: int, room: float) -> int:
    """The size at which a text has room, that one at most."""
    return min(size, int(room / (text_length(text, 100) / 100 * _BOLD))) if text else size


def _wrapped(text: str, size: int) -> list[str]:
    """A text in lines. Between ideographs, one may end anywhere."""
    pieces = re.findall(r"[\u3000-\u9fff\uff00-\uffef]|[^\s\u3000-\u9fff\uff00-\uffef]+\s*", text)
    return [line.strip() for line in _lines(pieces, "", size)]


def _packed(pairs: Sequence[str]) -> list[str]:
    """What belongs together, as many on a line as have room. Two lines have; what is too much for them is left out."""
    for size in range(_SMALL, _SMALLEST, -1):
        lines = _lines(pairs, " · ", size)
        if len(lines) <= _LINES:
            return lines
    return lines[:_LINES]


def _lines(pieces: Sequence[str], between: str, size: int) -> list[str]:
    lines = [pieces[0]]
    for piece in pieces[1:]:
        longer = lines[-1] + between + piece
        if text_length(longer, size) > _ROOM:
            lines.append(piece)
        else:
            lines[-1] = longer
    return lines


def fonts(lang: str) -> str:
    """The fonts of a language's cards, as SVG names them."""
    return ", ".join(f"'{name}'" for name in _FONTS.get(lang, _LATIN)) + ", sans-serif"
