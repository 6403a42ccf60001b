"""A real server, asked for every page of its site map: each answers, in its language, with no text missing."""

from __future__ import annotations

import re
import string
import urllib.request
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from batchfit import calculators
from batchfit.languages import SOURCE, Catalogue, catalogue, direction, languages
from batchfit.scales import DURATIONS
from batchfit.units import UNITS
from batchfit.web.app import create_app
from tests.browser.conftest import Server, serving
from tests.web.html import parse

_MAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
_LINK = "{http://www.w3.org/1999/xhtml}link"

#: English texts that a page asked another language's catalogue for in vain.
_MISSED: list[str] = []


def recording(texts: Catalogue, english: str) -> str:
    """Catalogue.text, which notes what is missing."""
    if texts.texts and english not in texts.texts:
        _MISSED.append(english)
    return texts.texts.get(english, english)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Catalogue, "text", recording)
        with serving(create_app()) as running:
            yield running


def has_words(text: str) -> bool:
    """Whether there is anything to translate beside what is put in; symbols of units are the same everywhere."""
    return text not in {*UNITS, *DURATIONS} and any(
        letter.isalpha() for part, *_ in string.Formatter().parse(text) for letter in part
    )


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as response:
        assert response.status == 200
        return str(response.read().decode())


@pytest.fixture(scope="module")
def entries(server: Server) -> dict[str, dict[str, str]]:
    """The addresses of the map, each with its counterparts by language."""
    root = ElementTree.fromstring(get(f"{server.url}/sitemap.xml"))
    return {
        entry.findtext(f"{_MAP}loc", ""): {
            link.attrib["hreflang"]: link.attrib["href"] for link in entry.findall(_LINK)
        }
        for entry in root.findall(f"{_MAP}url")
    }


def test_the_map_is_complete(server: Server, entries: dict[str, dict[str, str]]) -> None:
    pages = ("", "plan", "accuracy", *calculators.slugs())
    assert set(entries) == {f"{server.url}/{lang}/{page}" for lang in languages() for page in pages}
    for address, alternates in entries.items():
        page = address.removeprefix(server.url).split("/", 2)[2]
        assert set(alternates) == {*languages(), "x-default"}
        assert all(alternates[lang] == f"{server.url}/{lang}/{page}" for lang in languages())
        assert alternates["x-default"] == f"{server.url}/" + (f"en/{page}" if page else "")
    assert f"Sitemap: {server.url}/sitemap.xml" in get(f"{server.url}/robots.txt")


def test_every_page_answers_in_its_language_with_no_text_missing(
    server: Server, entries: dict[str, dict[str, str]]
) -> None:
    for address in entries:
        lang = address.removeprefix(server.url).split("/")[1]
        text = get(address)
        root = parse(text).one("html")
        assert (root.attributes["lang"], root.attributes["dir"]) == (lang, direction(lang)), address
        shown = re.sub(r"<script.*?</script>|data-[a-z-]+=\"[^\"]*\"", "", text, flags=re.S)
        assert not re.search(r"\{[a-z_]+\}", shown), address
        # The page and its head name each other alike.
        links = {
            link.attributes["hreflang"]: link.attributes["href"]
            for link in root.all("link", rel="alternate", hreflang="")
        }
        assert links == entries[address], address
    assert sorted(filter(has_words, set(_MISSED))) == []


def test_a_missing_text_is_noticed(server: Server) -> None:
    before = list(_MISSED)
    assert catalogue("de").text("A text that nobody has translated") == "A text that nobody has translated"
    assert _MISSED[len(before) :] == ["A text that nobody has translated"]
    del _MISSED[len(before) :]
    catalogue(SOURCE).text("English needs none")
    assert before == _MISSED
