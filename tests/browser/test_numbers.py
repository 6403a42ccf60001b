"""The digits of a number stay on one line, however long it is and however narrow the page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from batchfit import calculators
from batchfit.languages import languages
from batchfit.numbers import symbols
from tests.browser.numbers import BROKEN, long_numbers

pytestmark = pytest.mark.browser

WIDTHS = (320, 390, 700, 900, 1200, 1400)
#: Calculators with the longest results: these in every language, the others in English.
LONG = ("compute-optimal-model-size", "trainable-epochs")
PAGES = [
    *(("en", slug) for slug in calculators.slugs()),
    *((lang, slug) for lang in languages() if lang != "en" for slug in LONG),
]


@pytest.mark.parametrize(("lang", "slug"), PAGES)
def test_no_number_is_broken(page: Page, lang: str, slug: str) -> None:
    page.goto(f"/{lang}/{slug}?{long_numbers(calculators.load(slug))}")
    page.wait_for_selector("html[data-ready]")
    assert page.locator("[data-instrument]").get_attribute("data-state") == "good"
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(BROKEN, symbols(lang).group) == [], width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = page.evaluate(
            """() => [...document.querySelectorAll(".answer .number")]
              .filter((number) => number.checkVisibility())
              .filter((number) => {
                const [inner, outer] = [number, number.closest(".follow")].map((each) => each.getBoundingClientRect());
                return inner.left < outer.left - 1 || inner.right > outer.right + 1;
              })
              .map((number) => number.textContent)"""
        )
        assert outside == [], width


def test_a_broken_number_would_be_found(page: Page) -> None:
    slug = "trainable-epochs"
    page.goto(f"/en/{slug}?{long_numbers(calculators.load(slug))}")
    page.evaluate(
        """() => Object.assign(document.querySelector(".value .number").style, {
          display: "inline-block", width: "3ch", whiteSpace: "normal", overflowWrap: "anywhere" })"""
    )
    assert page.evaluate(BROKEN, ",") != []
