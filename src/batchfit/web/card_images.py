"""Cards as PNG images. Drawing one takes some 50 ms of a core, so they are kept, and drawn one at a time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from batchfit.languages import SOURCE, catalogue
from batchfit.web.cards import Card, fonts, svg
from batchfit.web.stored import Stored

#: Images kept at most; each takes 30 to 70 kB.
KEPT = 128
#: How many may wait to be drawn; whoever comes then is told to come back.
WAITING = 4

_HEADERS = {"Cache-Control": "public, max-age=86400"}
_BUSY = {"Retry-After": "2", "Cache-Control": "no-store"}

#: A character that no font has; a text in every language, and how many of its letters are tried.
_UNASSIGNED = "\U0009ff00"
_SAMPLE, _LETTERS = "Micro-batch size", 3


class CardImages:
    """The images drawn last, by what they show."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], Stored] = OrderedDict()
        self._drawing = threading.Lock()
        self._waiting = threading.BoundedSemaphore(WAITING)

    def respond(self, key: tuple[str, ...], card: Callable[[str], Card], asked: Headers) -> Response:
        """The image of a card, drawn if need be. `card` makes it, in the language given."""
        image = self._kept.get(key)
        if image is None:
            if not self._waiting.acquire(blocking=False):
                return PlainTextResponse("Too many pictures are being drawn.\n", 503, _BUSY)
            try:
                image = self._drawn(key, card)
            finally:
                self._waiting.release()
        return image.respond(asked)

    def _drawn(self, key: tuple[str, ...], card: Callable[[str], Card]) -> Stored:
        with self._drawing:
            if key not in self._kept:
                begun = time.monotonic()
                self._kept[key] = Stored(_in_language(card, key[0]), "image/png", headers=_HEADERS)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
                # The renderer holds up everything else in this process: as long again belongs to others.
                time.sleep(time.monotonic() - begun)
            self._kept.move_to_end(key)
            return self._kept[key]


def _in_language(card: Callable[[str], Card], lang: str) -> bytes:
    """The image in a language; in English where this machine's fonts cannot write it."""
    if can_write(lang):
        with suppress(Undrawable):
            return _png(svg(card(lang)))
    return _png(svg(card(SOURCE)))


def available() -> bool:
    """Whether images can be drawn: the renderer is there."""
    return find_spec("resvg_py") is not None


@cache
def can_write(lang: str) -> bool:
    """Whether this machine's fonts have the language's letters."""
    letters = sorted({letter for letter in catalogue(lang).text(_SAMPLE) if letter.isalpha()})
    step = max(1, len(letters) // _LETTERS)
    missing = _letter(_UNASSIGNED, lang)
    return all(_letter(letter, lang) != missing for letter in letters[::step])


def _letter(letter: str, lang: str) -> bytes:
    return _png(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" font-family="{fonts(lang)}">'
        f'<text y="24" font-size="24">{letter}</text></svg>'
    )


class Undrawable(Exception):
    """The renderer has given up."""


def _png(image: str) -> bytes:
    import resvg_py

    try:
        return resvg_py.svg_to_bytes(svg_string=image)
    except BaseException as fault:
        # What goes wrong in Rust is no Exception to Python. Seen where a text's letters come from two fonts.
        if type(fault).__name__ != "PanicException":
            raise
        raise Undrawable(str(fault)) from None
