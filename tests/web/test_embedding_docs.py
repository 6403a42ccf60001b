"""docs/embedding.md is true: its addresses answer, and it names every option there is."""

import re
from html import unescape
from pathlib import Path

from starlette.testclient import TestClient

from batchfit.languages import languages
from batchfit.palette import ACCENTS
from batchfit.web.embedding import NAMES, NONE, THEMES

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text()
SITE = "https://fit.example"


def test_every_address_answers(client: TestClient) -> None:
    shown = {unescape(url).rstrip(".,") for url in re.findall(r'https://fit\.example(/[^\s"`\')]+)', PAGE)}
    addresses = {url for url in shown if url not in ("/*",)}
    assert any("oembed?" in url for url in addresses)
    assert any("/og/" in url for url in addresses)
    for url in addresses - {"/oembed"}:
        # oEmbed knows only links to the site that is asked.
        address = url.replace("https%3A%2F%2Ffit.example", "http%3A%2F%2Fbatchfit.test")
        assert client.get(address).status_code == 200, url
    for url in re.findall(r"`(/[a-z][^`]*\.(?:svg|txt))`", PAGE):
        assert client.get(url).status_code == 200, url


def test_it_names_every_option() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, flags=re.M))
    assert set(rows) == set(NAMES)
    assert set(re.findall(r"`(\w+)`", rows["theme"])) == set(THEMES)
    assert re.findall(r"`(\w+)`", rows["accent"]) == list(ACCENTS)
    assert f"`{NONE}`" in rows["show"]
    (tags,) = re.findall(r"`/embed/de/\.\.\.`: (.+?) \|", PAGE)
    assert set(tags.split(", ")) == set(languages())
