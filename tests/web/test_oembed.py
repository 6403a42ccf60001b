"""oEmbed: the link of every page gives the code that embeds it."""

from __future__ import annotations

from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.languages import languages
from tests.web.html import parse

HOST = "http://batchfit.test"
PAGES = ["plan", *calculators.slugs()]


def asked(client: TestClient, url: str, **more: Any) -> Any:
    return client.get(f"/oembed?{urlencode({'url': url, **more})}")


@pytest.mark.parametrize("lang", languages())
@pytest.mark.parametrize("slug", PAGES)
def test_every_page_names_the_code_that_embeds_it(client: TestClient, lang: str, slug: str) -> None:
    root = parse(client.get(f"/{lang}/{slug}").text)
    for kind, media in (("application/json", "application/json"), ("text/xml", "text/xml")):
        link = root.one("link", rel="alternate", type=f"{kind}+oembed").attributes["href"]
        response = client.get(link)
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] == media
        if media == "text/xml":
            answer = {each.tag: each.text or "" for each in ElementTree.fromstring(response.content)}
        else:
            answer = response.json()
        assert (answer["version"], answer["type"]) == ("1.0", "rich")
        assert answer["provider_url"] == f"{HOST}/"
        assert int(answer["width"]) > 0
        assert int(answer["height"]) > 0
        frame = parse(str(answer["html"])).one("iframe").attributes
        assert (frame["width"], frame["height"]) == (str(answer["width"]), str(answer["height"]))
        assert frame["src"].partition("?")[0] == f"{HOST}/embed/{lang}/{slug}"
        assert client.get(frame["src"]).status_code == 200


def test_the_state_of_the_link_is_embedded_and_defaults_are_left_out(client: TestClient) -> None:
    url = f"{HOST}/de/gradient-accumulation?micro_batch=8&replicas=1&activation_per_sample=0.75GiB"
    answer = asked(client, url).json()
    frame = parse(answer["html"]).one("iframe").attributes
    assert (
        frame["src"] == f"{HOST}/embed/de/gradient-accumulation?micro_batch=8&activation_per_sample=0.75GiB"
    )
    assert answer["title"].startswith("64 Samples")
    assert parse_qsl(urlsplit(answer["thumbnail_url"]).query) == parse_qsl(urlsplit(frame["src"]).query)
    assert (answer["thumbnail_width"], answer["thumbnail_height"]) == (1200, 630)


def test_an_embed_s_own_link_keeps_its_options(client: TestClient) -> None:
    url = f"{HOST}/embed/en/gradient-accumulation?theme=dark&accent=blue&show=micro_batch,replicas"
    assert f'src="{url.replace("&", "&amp;")}"' in asked(client, url).json()["html"]
    assert asked(client, f"{HOST}/embed/en/gradient-accumulation?accent=red").status_code == 400


def test_no_larger_than_asked_for(client: TestClient) -> None:
    url = f"{HOST}/en/gradient-accumulation"
    usual = asked(client, url).json()
    small = asked(client, url, maxwidth=300, maxheight=200).json()
    assert (small["width"], small["height"]) == (300, 200)
    assert "thumbnail_url" not in small
    narrow = asked(client, url, maxwidth=400).json()
    assert narrow["height"] > usual["height"]
    large = asked(client, url, maxwidth=5000, maxheight=5000).json()
    assert (large["width"], large["height"]) == (usual["width"], usual["height"])
    for wrong in ("0", "-1", "wide", "1e9"):
        refused = asked(client, url, maxwidth=wrong)
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == "maxwidth"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://elsewhere.test/en/plan",
        "http://batchfit.test:81/en/plan",
        "http://batchfit.test@elsewhere.test/en/plan",
        "ftp://batchfit.test/en/plan",
        "//batchfit.test/en/plan",
        "/en/plan",
        f"{HOST}/",
        f"{HOST}/embed/en/",
        f"{HOST}/xx/",
        f"{HOST}/xx/plan",
        f"{HOST}/en/nothing",
        f"{HOST}/en/plan.json",
        f"{HOST}/static/style.css",
        "http://[::1",
    ],
)
def test_only_links_to_our_pages(client: TestClient, url: str) -> None:
    response = asked(client, url)
    assert response.status_code == 404
    assert response.json() == {"errors": [{"message": "Not Found"}]}


def test_the_home_page_embeds_its_planner(client: TestClient) -> None:
    root = parse(client.get("/de/?gpus=4").text)
    (link,) = root.all("link", type="application/json+oembed")
    answer = client.get(link.attributes["href"].removeprefix(HOST)).json()
    assert f"{HOST}/embed/de/plan?model=llama-3.1-8b&amp;gpus=4" in answer["html"]
    assert answer["title"] == root.one("meta", property="og:description").attributes["content"]


def test_behind_a_server_that_speaks_https_for_us(client: TestClient) -> None:
    assert asked(client, "https://batchfit.test/en/plan").status_code == 200


def test_an_unknown_format_is_not_implemented(client: TestClient) -> None:
    assert asked(client, f"{HOST}/en/plan", format="yaml").status_code == 501


def test_nothing_in_a_link_gets_into_the_code(client: TestClient) -> None:
    nasty = '"><script>alert(1)</script>'
    url = f"{HOST}/en/gradient-accumulation?{urlencode({'micro_batch': nasty})}"
    for wanted in ("json", "xml"):
        text = asked(client, url, format=wanted).text
        assert "<script" not in unescape(unescape(text))
