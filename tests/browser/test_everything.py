"""A calculator with everything, in a browser: what the script shows is what the server would have sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from batchfit.languages import languages
from batchfit.web.app import create_app
from tests.browser.conftest import Server, serving
from tests.browser.test_access import findings
from tests.everything import CALCULATOR

pytestmark = pytest.mark.browser

#: Everything that a person sees of results, sections and worked examples, in order.
SHOWN = """() => [...document.querySelectorAll("[data-result], [data-section], [data-worked]")]
  .filter((part) => !part.closest("[hidden]"))
  .flatMap((part) => [...part.querySelectorAll(
    "svg[data-width] > *, td, th, mn, mtext, [data-part], .section-cards span, [data-number], [data-also], " +
    "[data-before], [data-after], [data-reading]")])
  .map((each) => [each.className.baseVal ?? each.className, each.hidden ?? false,
    ...["x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "points"]
      .map((name) => each.getAttribute(name)),
    each.textContent.replaceAll("\\u00a0", " ").trim()].join("|"))"""


@pytest.fixture(scope="module")
def everything() -> Iterator[Server]:
    with serving(create_app([CALCULATOR])) as running:
        yield running
    assert running.faults == []


def opened(page: Page, server: Server, query: str = "", lang: str = "en") -> Page:
    page.goto(f"{server.url}/{lang}/{CALCULATOR.slug}?{query}")
    page.wait_for_selector("html[data-ready]")
    return page


def served(page: Page, server: Server) -> list[str]:
    """What the server sends for the address that a page has come to."""
    browser = page.context.browser
    assert browser
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(page.url)
    shown: list[str] = plain.evaluate(SHOWN)
    context.close()
    return shown


@pytest.mark.parametrize("lang", languages())
def test_the_script_shows_what_the_server_sends(page: Page, everything: Server, lang: str) -> None:
    opened(page, everything, "budget=5K", lang)
    page.locator("#precision").select_option("fp32")
    page.locator("[value=q][type=checkbox]").uncheck()
    for name, text in (("parameters", "13B"), ("shard", "30 %"), ("step_time", "2 min"), ("warmup", "250")):
        page.locator(f"#{name}").fill(text)
    page.wait_for_url("**warmup=250**")
    shown = page.evaluate(SHOWN)
    assert len(shown) > 400
    assert shown == served(page, everything)
    assert page.locator("#step_time").input_value() == "2 min"
    assert page.locator("[name=step_time_unit]").input_value() == "min"


def test_a_preset_fills_fields_which_can_then_be_changed(page: Page, everything: Server) -> None:
    opened(page, everything)
    page.locator("#preset-model").select_option("llama-3.1-8b")
    expect(page.locator("#parameters")).to_have_value("8030261248")
    expect(page.locator("#parameters-note")).to_have_text("read as 8,030,261,248")
    page.wait_for_url("**?model=llama-3.1-8b")
    page.locator("#layers").fill("5")
    page.wait_for_url("**?model=llama-3.1-8b&layers=5")
    assert page.evaluate(SHOWN) == served(page, everything)
    page.get_by_role("link", name="Reset").click()
    expect(page.locator("#parameters")).to_have_value("7B")
    page.wait_for_url(f"**/{CALCULATOR.slug}")


def test_a_preset_comes_and_goes_with_what_it_fills(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/en/compute-optimal-model-size?gpu=a100-80gb")
    page.wait_for_selector("html[data-ready]")
    card = page.locator("#preset-gpu")
    expect(card).to_be_hidden()
    usual = page.locator("[data-result]").all_inner_texts()
    page.locator("#budget_in").select_option("gpu-hours")
    expect(card).to_be_visible()
    expect(page.locator("#peak_tflops")).to_have_value("989")
    card.select_option("a100-80gb")
    expect(page.locator("#peak_tflops")).to_have_value("312")
    page.wait_for_url("**?gpu=a100-80gb&budget_in=gpu-hours")
    results = page.locator("[data-result]").all_inner_texts()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(card).to_have_value("a100-80gb")
    assert page.locator("[data-result]").all_inner_texts() == results != usual
    page.locator("#budget_in").select_option("flops")
    expect(card).to_be_hidden()
    page.wait_for_url("**/compute-optimal-model-size")
    assert page.locator("[data-result]").all_inner_texts() == usual


def test_what_does_not_go_together_is_told_at_once(page: Page, everything: Server) -> None:
    opened(page, everything)
    page.locator("#warmup").fill("1001")
    expect(page.locator("#warmup-error")).to_have_text("must be at most 1,000")
    expect(page.locator("[data-instrument]")).to_have_attribute("data-state", "stale")
    page.locator("#steps").fill("2000")
    expect(page.locator("#warmup-error")).to_be_hidden()


def test_no_box_ticked_asks_for_one(page: Page, everything: Server) -> None:
    opened(page, everything)
    for box in page.locator("[data-field=modules] [type=checkbox]").all():
        box.uncheck()
    expect(page.locator("[data-instrument]")).to_have_attribute("data-state", "empty")
    expect(page.locator(".sections")).to_be_hidden()


def test_arrow_keys_keep_a_suffix(page: Page, everything: Server) -> None:
    opened(page, everything)
    page.locator("#parameters").press("ArrowUp")
    expect(page.locator("#parameters")).to_have_value("8B")
    expect(page.locator("#parameters-note")).to_have_text("read as 8,000,000,000")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("lang", ["en", "ar"])
def test_axe_finds_nothing(
    open_context: Callable[..., BrowserContext], everything: Server, lang: str, scheme: Any
) -> None:
    page = open_context(color_scheme=scheme, reduced_motion="reduce").new_page()
    opened(page, everything, "budget=5K", lang)
    assert findings(page) == []


@pytest.mark.parametrize("lang", languages())
def test_nothing_is_wider_than_the_smallest_screen(
    open_context: Callable[..., BrowserContext], everything: Server, lang: str
) -> None:
    page = open_context(viewport={"width": 320, "height": 700}).new_page()
    opened(page, everything, "budget=5K", lang)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_field_that_does_not_apply_is_hidden_at_once(
    page: Page, open_context: Callable[..., BrowserContext]
) -> None:
    page.goto("/en/pipeline-bubble")
    page.wait_for_selector("html[data-ready]")
    chunks = page.locator("[data-field=chunks]")
    expect(chunks).to_be_hidden()
    page.locator("#schedule").select_option("interleaved")
    expect(chunks).to_be_visible()
    page.locator("#chunks").fill("x")
    expect(page.locator("#chunks-error")).to_be_visible()
    page.locator("#schedule").select_option("gpipe")
    expect(chunks).to_be_hidden()
    expect(page.locator("[data-instrument]")).to_have_attribute("data-state", "good")
    page.wait_for_url("**/pipeline-bubble?schedule=gpipe")
    plain = open_context(java_script_enabled=False).new_page()
    plain.goto("/en/pipeline-bubble?schedule=interleaved&chunks=4")
    expect(plain.locator("#chunks")).to_have_value("4")
    plain.locator("#schedule").select_option("zb-h1")
    plain.locator("button[type=submit]").first.click()
    expect(plain.locator("[data-field=chunks]")).to_be_hidden()
    plain.goto("/embed/ar/gradient-noise-scale?measured_by=runs")
    expect(plain.locator("[data-field=small_batch]")).to_be_hidden()
    expect(plain.locator("fieldset:visible")).to_have_count(3)
    expect(plain.locator("#first_batch")).to_be_visible()
