"""Pages for those who read text: Markdown twins, llms.txt; and links as QR codes."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from markdown_it import MarkdownIt
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.languages import languages
from batchfit.web.qr import qr_svg
from batchfit.web.state import LONGEST_QUERY
from tests.web.html import parse, visible_text
from tests.web.qr_code import read_svg

PATH = "gradient-accumulation"


@pytest.mark.parametrize("slug", calculators.slugs())
@pytest.mark.parametrize("lang", languages())
def test_the_markdown_says_what_the_page_says(client: TestClient, lang: str, slug: str) -> None:
    page = client.get(f"/{lang}/{slug}").text
    root = parse(page)
    address = root.one("link", rel="alternate", type="text/markdown").attributes["href"]
    response = client.get(address)
    assert response.headers["content-type"].startswith("text/markdown")
    html = MarkdownIt("commonmark").enable("table").render(response.text)
    twin = parse(html)
    assert twin.one("h1").text == root.one("h1").text
    headings = [each.text for each in twin.all("h2")]
    theirs = [each.text for each in root.one("div", class_="prose").all("h2")]
    assert headings == [each for each in theirs if each in headings]
    assert (
        len(headings) >= len(theirs) - 2
    )  # "All calculators", and what to try next where there is nothing yet
    said = visible_text(page)
    for paragraph in twin.all("p")[3:]:
        if not paragraph.all("a"):
            plain = re.sub("[\u2066-\u2069]", "", said)
            assert paragraph.text in plain, paragraph.text
    (data,) = re.findall(r"JSON: http://batchfit\.test(\S+)", response.text)
    assert client.get(data).json()["calculator"] == slug


def test_formulas_and_the_worked_example_are_text(client: TestClient) -> None:
    text = client.get(f"/en/{PATH}.md?micro_batch=8&activation_per_sample=0.25GiB").text
    assert "E = b · a · g\nM = b · A" in text
    assert "E = b · a · g = 8 · 8 · 1 = 64" in text
    assert "M = b · A = 8 · 0.25 GiB = 2 GiB" in text
    assert f"http://batchfit.test/en/{PATH}?micro_batch=8&activation_per_sample=0.25GiB" in text
    assert client.get("/en/nothing.md").status_code == 404
    wrong = client.get(f"/en/{PATH}.md?micro_batch=x")
    assert wrong.status_code == 422
    assert "## Worked example" not in wrong.text


def test_llms_txt_leads_to_everything(client: TestClient) -> None:
    text = client.get("/llms.txt").text
    assert text.startswith("# batchfit\n\n> ")
    links = re.findall(r"http://batchfit\.test(/[\w/.-]+\w)", text)
    assert {f"/en/{slug}.md" for slug in calculators.slugs()} <= set(links)
    for link in links:
        assert client.get(link).status_code == 200, link


@pytest.mark.parametrize("slug", ["plan", *calculators.slugs()])
def test_every_page_has_its_link_as_a_code(client: TestClient, slug: str) -> None:
    for query in ("", "gpus=4" if slug == "plan" else ""):
        root = parse(client.get(f"/ar/{slug}?{query}").text)
        link = root.one("input", id="link").attributes["value"]
        box = root.one("div", data_qr="").attributes
        inline = client.get(f"/ar/{slug}?{query}").text
        (svg,) = re.findall(r"data-qr=.*?(<svg.*?</svg>)", inline, flags=re.S)
        assert read_svg(svg) == link
        response = client.get(f"{box['data-qr']}?{box['data-query']}")
        assert response.headers["content-type"].startswith("image/svg+xml")
        assert read_svg(response.text) == link
        assert "style" not in response.text


def test_codes_are_made_of_our_own_pages_alone(client: TestClient) -> None:
    assert client.get("/qr/en/nothing.svg").status_code == 404
    evil = client.get("/qr/en/plan.svg?url=https://evil.example&gpus=2").text
    assert read_svg(evil).startswith("http://batchfit.test/en/plan?")
    assert "evil" not in read_svg(evil)


def test_the_longest_link_there_can_be_fits_a_code() -> None:
    url = (
        f"https://{'a' * 250}.example/zh-Hant/{PATH}?{urlencode({'a': 'b' * LONGEST_QUERY})[:LONGEST_QUERY]}"
    )
    assert read_svg(qr_svg(url)) == url
