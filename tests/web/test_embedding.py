"""Embeds and their options: language, theme, accent, the inputs that are shown."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.calculator import Calculator
from batchfit.languages import languages
from batchfit.palette import ACCENTS, INTERFACE
from batchfit.web import embedding
from batchfit.web.plan_state import NAMES
from tests.web.html import Element, Page, parse

PATH = "gradient-accumulation"
ALL = [calculators.load(slug) for slug in calculators.slugs()]


def held(root: Element) -> set[str]:
    return {field.attributes["data-field"] for field in root.all(data_held="")}


def fields(root: Element) -> set[str]:
    return {field.attributes["data-field"] for field in root.all(data_field="")}


@pytest.mark.parametrize("calculator", ALL, ids=lambda each: each.slug)
def test_every_input_of_every_calculator_can_be_shown_alone(
    client: TestClient, calculator: Calculator
) -> None:
    together = {calculator.inverse.solved, calculator.inverse.given.name} if calculator.inverse else set()
    every = {field.name for field in calculator.all_fields} | {preset.name for preset in calculator.presets}
    for name in every:
        root = parse(client.get(f"/embed/en/{calculator.slug}?show={name}").text)
        assert fields(root) == every
        assert held(root) == every - (together if name in together else {name})
    assert held(parse(client.get(f"/embed/en/{calculator.slug}?show=none").text)) == every
    assert held(parse(client.get(f"/embed/en/{calculator.slug}").text)) == set()


def test_inputs_of_the_planner(client: TestClient) -> None:
    every = fields(parse(client.get("/embed/en/plan").text))
    assert {"model", "gpu", "gpus", "batch", "seq_len"} <= every
    root = parse(client.get("/embed/de/plan?show=batch,gpus&gpu=a100-80gb&theme=light").text)
    assert held(root) == every - {"batch", "gpus"}
    # What is held is sent all the same, and so are the options.
    sent = {each.attributes["name"] for each in root.one("form").all(name="")}
    assert {"model", "gpu", "show", "theme"} <= sent
    assert root.one("option", value="a100-80gb").attributes["selected"] == ""
    for link in root.one("div", data_planner="").all("a"):
        if "data-full" not in link.attributes:
            assert link.attributes["href"].startswith("/embed/de/plan?")


def test_links_within_an_embed_keep_its_options(client: TestClient) -> None:
    page = Page.of(client.get(f"/embed/en/{PATH}?theme=dark&accent=violet&show=replicas,target_batch").text)
    for link in page.root.one(class_="switch").all("a"):
        assert link.attributes["href"].endswith("theme=dark&accent=violet&show=replicas,target_batch")
    assert page.root.one(data_full="").attributes["href"] == f"http://batchfit.test/en/{PATH}"
    assert page.submitted().startswith("theme=dark&accent=violet&show=replicas%2Ctarget_batch&")
    html = page.root.one("html").attributes
    assert (html["data-theme"], html["data-accent"]) == ("dark", "violet")


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("accent=pink", "accent: must be one of teal, blue, violet, magenta, green, graphite; you gave pink"),
        ("accent=%23ff0000", "accent: must be one of"),
        ("show=micro_batch,nothing", "none; you gave nothing"),
        ("show=micro_batch&show=replicas", "show: was given more than once"),
    ],
)
@pytest.mark.parametrize("slug", [PATH, "plan"])
def test_what_is_not_allowed_is_refused(client: TestClient, slug: str, query: str, complaint: str) -> None:
    if slug == "plan":
        query = query.replace("micro_batch", "batch")
    response = client.get(f"/embed/en/{slug}?{query}")
    assert response.status_code == 400
    assert complaint in parse(response.text).one("main").text
    assert "frame-ancestors *" in response.headers["content-security-policy"]


def test_no_input_is_called_like_an_option() -> None:
    names = {field.name for each in ALL for field in each.all_fields} | set(NAMES)
    assert names.isdisjoint(embedding.NAMES)
    assert embedding.NONE not in names


@pytest.mark.parametrize("slug", ["plan", *calculators.slugs()])
@pytest.mark.parametrize("lang", languages())
def test_the_code_has_the_page_s_title_in_every_language(client: TestClient, slug: str, lang: str) -> None:
    root = parse(client.get(f"/{lang}/{slug}").text)
    code = parse(root.one("textarea", id="code").text).one("iframe").attributes
    assert code["title"] == root.one("h1").text


# ---- Colours ------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_can_fail() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < 4.5


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("accent", ACCENTS)
def test_accents_can_be_read(accent: str, paper: int) -> None:
    colour = ACCENTS[accent][paper]
    for under in ("paper", "panel"):
        assert contrast(colour, INTERFACE[under][paper]) >= 4.5
    assert contrast(INTERFACE["on-answer"][paper], colour) >= 4.5


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_text_can_be_read(paper: int) -> None:
    for text in ("ink", "muted", "answer", "wrong"):
        for under in ("paper", "panel"):
            assert contrast(INTERFACE[text][paper], INTERFACE[under][paper]) >= 4.5
    assert contrast(INTERFACE["edge"][paper], INTERFACE["paper"][paper]) >= 3


def test_the_accents_are_those_offered(client: TestClient) -> None:
    options = parse(client.get("/en/plan").text).one("select", data_embed_option="accent").all("option")
    assert [option.attributes["value"] or "teal" for option in options] == list(ACCENTS)
