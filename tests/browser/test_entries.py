"""What stands in the entry fields of a page: readable, exact, and all of it in sight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.browser

SLUG = "compute-optimal-model-size"
#: The entry fields of which only a part is seen.
CLIPPED = """() => [...document.querySelectorAll(".entry input")]
  .filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth)
  .map((box) => `${box.name}: ${box.value}`)"""


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    return page


def test_a_number_of_many_zeros_stays_readable_whatever_writes_it(page: Page) -> None:
    box = opened(page, f"/en/{SLUG}").locator("#flops")
    assert box.input_value() == "5.76e23"
    page.locator('[data-slider="flops"]').fill("10")
    assert box.input_value() == "5e23"
    box.fill("1234567000000000000000")
    assert box.input_value() == "1234567000000000000000"
    page.wait_for_timeout(300)
    assert page.url.endswith("?flops=1234567000000000000000")
    page.reload()
    assert box.input_value() == "1.234567e21"
    opened(page, page.locator('[data-language="de"]').first.evaluate("link => link.href"))
    assert box.input_value() == "1,234567e21"
    assert page.locator("#flops-note").is_hidden()
    page.locator('[data-slider="flops"]').fill("11")
    assert box.input_value() == "7,5e23"
    page.locator("[data-reset]").click()
    assert box.input_value() == "5,76e23"


def test_an_arrow_key_stops_at_the_smallest_number(page: Page) -> None:
    box = opened(page, "/en/gradient-noise-scale?small_squared_norm=0.005").locator("#small_squared_norm")
    box.press("ArrowDown")
    assert float(box.input_value()) == 1e-30
    assert page.locator("#small_squared_norm-error").is_hidden()


@pytest.mark.parametrize("width", [320, 390, 900, 1280])
def test_a_box_is_as_wide_as_what_stands_in_it(
    open_context: Callable[..., BrowserContext], width: int
) -> None:
    page = open_context(viewport={"width": width, "height": 700}).new_page()
    for lang in ("en", "de", "ar", "ja"):
        for address in (
            f"/{lang}/{SLUG}?flops=1234567890123450",
            f"/embed/{lang}/{SLUG}?flops=1234567890123450",
            f"/{lang}/gradient-accumulation?target_batch=1099511627776",
            f"/{lang}/gradient-accumulation?activation_per_sample=0.123456789012GiB",
            f"/{lang}/plan?gpus=1,2,4,8,16,32,64,128",
            f"/{lang}/trainable-epochs?dataset_tokens=1234567890123K",
        ):
            opened(page, address)
            assert page.evaluate(CLIPPED) == [], address
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
    box = page.locator("#dataset_tokens")
    narrow = box.evaluate("box => box.getBoundingClientRect().width")
    box.fill("9")
    assert box.evaluate("box => box.getBoundingClientRect().width") < narrow
    # No number is longer than a field is wide, but what is typed may be.
    box.fill("9" * 60)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
