"""Pictures for link previews, in every language and state."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.languages import languages
from batchfit.palette import COLOURS, INTERFACE
from batchfit.web import card_images, cards
from batchfit.web.card_images import CardImages
from batchfit.web.cards import Card
from batchfit.web.instrument import Instrument
from batchfit.web.shelf import Shelf
from batchfit.web.state import read_state
from tests.web.html import parse

#: Pages by the name in their addresses; the home page has none.
SLUGS = ["", "plan", *calculators.slugs()]
LARGEST = 100_000


def card(slug: str, query: list[tuple[str, str]], lang: str = "en") -> Card:
    shelf = Shelf()
    return cards.of_calculator(
        Instrument(read_state(shelf.calculators[slug], lang, query), shelf.pictures[slug])
    )


@pytest.mark.parametrize("slug", SLUGS)
def test_every_page_has_a_picture_of_its_state(client: TestClient, slug: str) -> None:
    for lang in languages():
        root = parse(client.get(f"/{lang}/{slug}").text)
        tags = {
            each.attributes["property"]: each.attributes["content"] for each in root.all("meta", property="")
        }
        assert tags["og:image"].startswith(f"http://batchfit.test/og/{lang}/{slug or 'plan'}.png")
        assert tags["og:image:alt"]
        assert root.one("meta", name="twitter:card").attributes["content"] == "summary_large_image"
        response = client.get(tags["og:image"])
        assert response.headers["content-type"] == "image/png"
        assert response.content[:8] == b"\x89PNG\r\n\x1a\n"
        size = struct.unpack(">II", response.content[16:24])
        assert size == (int(tags["og:image:width"]), int(tags["og:image:height"])) == (1200, 630)
        assert len(response.content) < LARGEST
        assert response.headers["cross-origin-resource-policy"] == "cross-origin"


def test_the_picture_shows_the_state_and_is_kept(client: TestClient) -> None:
    usual, other = (
        client.get(f"/og/en/gradient-accumulation.png{query}") for query in ("", "?micro_batch=8")
    )
    assert usual.content != other.content
    same = client.get("/og/en/gradient-accumulation.png?micro_batch=8&replicas=1&unknown=1")
    assert same.headers["etag"] == other.headers["etag"]
    again = client.get("/og/en/gradient-accumulation.png", headers={"If-None-Match": usual.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/og/en/nothing.png").status_code == 404
    # A state that cannot be computed has a picture of the page, and no answer.
    assert client.get("/og/en/gradient-accumulation.png?micro_batch=x").status_code == 200


def test_the_answer_is_in_it_in_the_page_s_language() -> None:
    image = cards.svg(
        card("gradient-accumulation", [("micro_batch", "8"), ("activation_per_sample", "0.75")], "de")
    )
    for text in (">64<", "Samples", "Effektive Batch-Größe", "Aktivierung pro Sample: 0,75"):
        assert text in image, text
    for colour in (COLOURS["activations"], COLOURS["gradients"], INTERFACE["answer"][0]):
        assert colour in image
    assert "var(" not in image


def test_right_to_left_text_begins_at_the_right() -> None:
    image = cards.svg(card("gradient-accumulation", [], "ar"))
    assert 'x="1136"' in image
    assert image.count("\N{RIGHT-TO-LEFT ISOLATE}") == image.count("<text")


@pytest.mark.parametrize("slug", calculators.slugs())
def test_everything_has_room(slug: str) -> None:
    for lang in languages():
        shown = card(slug, [], lang)
        assert shown.figures
        assert len(shown.figures) <= 3
        assert len(shown.lines) <= 2


def test_what_is_typed_is_escaped() -> None:
    nasty = Card("en", '<script>&"', lines=["<b>"])
    image = cards.svg(nasty)
    assert "<script>" not in image
    assert "<b>" not in image


# ---- Where something is missing or too much -------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The languages that cards were made in; nothing is drawn."""
    made: list[str] = []
    monkeypatch.setattr(card_images, "_png", lambda image: image.encode())
    return made


def made_in(made: list[str]) -> Callable[[str], Card]:
    def make(lang: str) -> Card:
        made.append(lang)
        return Card(lang, "A title")

    return make


def test_without_fonts_for_a_language_the_picture_is_in_english(
    drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_images, "can_write", lambda lang: lang != "ja")
    images = CardImages()
    for lang in ("ja", "ko"):
        images.respond((lang, "plan", ""), made_in(drawn), Headers())
    assert drawn == ["en", "ko"]


def test_letters_that_no_font_has_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        card_images, "_letter", lambda letter, lang: letter.encode() if letter < "\u3000" else b""
    )
    monkeypatch.setattr(card_images, "_UNASSIGNED", "\u3042")
    card_images.can_write.cache_clear()
    assert [lang for lang in languages() if not card_images.can_write(lang)] == [
        "ja",
        "ko",
        "zh-Hans",
        "zh-Hant",
    ]
    card_images.can_write.cache_clear()


def test_where_the_renderer_gives_up_the_picture_is_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(image: str) -> bytes:
        if "'DejaVu Sans', 'Arial'" in image:
            raise card_images.Undrawable
        return image.encode()

    monkeypatch.setattr(card_images, "_png", draw)
    monkeypatch.setattr(card_images, "can_write", lambda lang: True)
    made: list[str] = []
    CardImages().respond(("ar", "plan", ""), made_in(made), Headers())
    assert made == ["ar", "en"]


def test_a_panic_in_the_renderer_is_no_end_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(**_: object) -> bytes:
        raise PanicException("removal index")

    monkeypatch.setattr("resvg_py.svg_to_bytes", panic)
    with pytest.raises(card_images.Undrawable):
        card_images._png("<svg/>")


def test_without_the_renderer_pages_announce_no_picture(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_images, "find_spec", lambda name: None)
    root = parse(client.get("/en/gradient-accumulation?micro_batch=3").text)
    assert not root.all("meta", property="og:image")
    assert root.one("meta", name="twitter:card").attributes["content"] == "summary"
    assert client.get("/og/en/gradient-accumulation.png?micro_batch=3").status_code == 404
    assert "thumbnail_url" not in client.get("/oembed?url=http://batchfit.test/en/plan").json()


def test_only_so_many_are_kept(drawn: list[str]) -> None:
    images = CardImages()
    make = made_in(drawn)
    for number in range(card_images.KEPT + 1):
        images.respond(("en", "plan", str(number)), make, Headers())
    before = len(drawn)
    images.respond(("en", "plan", str(card_images.KEPT)), make, Headers())
    assert len(drawn) == before
    images.respond(("en", "plan", "0"), make, Headers())
    assert len(drawn) == before + 1


def test_only_so_many_wait(drawn: list[str]) -> None:
    images, go = CardImages(), threading.Event()

    def slow(lang: str) -> Card:
        go.wait(10)
        return Card(lang, "A title")

    def ask(number: int) -> None:
        answers.append(images.respond(("en", "plan", str(number)), slow, Headers()).status_code)

    answers: list[int] = []
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(card_images.WAITING)]
    for thread in threads:
        thread.start()
    deadline = threading.Event()
    while images._waiting._value and not deadline.wait(0.01):
        pass
    refused = images.respond(("en", "plan", "more"), slow, Headers())
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    go.set()
    for thread in threads:
        thread.join(10)
    assert answers == [200] * card_images.WAITING
