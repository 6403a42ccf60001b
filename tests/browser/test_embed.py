"""The calculator in other people's pages, on another origin."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.calculator import PATH, Calculator
from tests.browser.conftest import Server

pytestmark = pytest.mark.browser


def code_to_embed(page: Page, query: str = "") -> str:
    Calculator.opened(page, query)
    page.get_by_role("button", name="Embed").click()
    return page.locator("#code").input_value()


def height(page: Page) -> float:
    box = page.locator("iframe").bounding_box()
    assert box
    return box["height"]


def content_height(page: Page) -> float:
    found: float = page.frames[-1].evaluate("document.querySelector('main').getBoundingClientRect().height")
    return found


def expect_fitted(page: Page) -> None:
    page.frames[-1].wait_for_selector("html[data-ready]")
    page.wait_for_timeout(200)
    assert abs(height(page) - content_height(page)) < 2


def test_the_code_makes_a_calculator_that_fits_its_content(
    page: Page, elsewhere: Callable[[str], str], server: Server
) -> None:
    code = code_to_embed(page, "micro_batch=2")
    page.goto(elsewhere(f"<!doctype html><title>A course</title><h1>A course</h1><div>{code}</div>"))
    calculator = Calculator(page.frame_locator("iframe"))
    calculator.expect_results("16 samples", "1 GB")
    expect_fitted(page)
    before = height(page)
    calculator.within.get_by_text("I know the effective batch I want").click()
    calculator.type("target_batch", "1001")
    expect_fitted(page)
    assert height(page) > before + 50
    page.set_viewport_size({"width": 360, "height": 800})
    expect_fitted(page)
    link = calculator.within.get_by_role("link", name="by batchfit")
    expect(link).to_have_attribute("href", f"{server.url}/en/{PATH}?micro_batch=2&target_batch=1001")


def test_options_are_previewed_and_end_up_in_the_code(page: Page, server: Server) -> None:
    code_to_embed(page, "micro_batch=3")
    panel = page.locator("#embed")
    panel.get_by_label("Language").select_option("de")
    panel.get_by_label("Colours").select_option("dark")
    address = f"{server.url}/embed/de/{PATH}?micro_batch=3&theme=dark"
    assert f'src="{address}"' in unescape(page.locator("#code").input_value())
    preview = page.frame_locator("#embed iframe")
    expect(preview.locator("html[data-theme=dark]")).to_be_attached()
    Calculator(preview).expect_results("24 Samples", "1,5 GB")
    expect(preview.get_by_role("link", name="von batchfit")).to_be_attached()


@pytest.mark.parametrize("sandbox", ["", "allow-scripts allow-forms"])
def test_it_works_with_storage_blocked(
    open_context: Callable[..., BrowserContext], elsewhere: Callable[[str], str], server: Server, sandbox: str
) -> None:
    context = open_context()
    context.add_init_script(
        """for (const name of ["localStorage", "sessionStorage", "indexedDB", "caches"]) {
          Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
        }
        Object.defineProperty(Document.prototype, "cookie", {
          get() { throw new DOMException("blocked", "SecurityError"); },
          set() { throw new DOMException("blocked", "SecurityError"); },
        });"""
    )
    page = context.new_page()
    attributes = f'sandbox="{sandbox}"' if sandbox else ""
    address = f"{server.url}/embed/en/{PATH}"
    frame = f'<iframe {attributes} src="{address}" width="700" height="100" style="border:0"></iframe>'
    script = f'<script src="{server.url}/embed.js" async></script>'
    page.goto(elsewhere(f"<!doctype html><title>A course</title>{frame}{script}"))
    calculator = Calculator(page.frame_locator("iframe"))
    expect_fitted(page)
    calculator.type("micro_batch", "5")
    calculator.expect_results("40 samples", "2.5 GB")


def test_only_the_embed_can_be_framed(
    open_context: Callable[..., BrowserContext], elsewhere: Callable[[str], str], server: Server
) -> None:
    page = open_context(complaint="frame-ancestors 'none'").new_page()
    frames = "".join(
        f'<iframe name="f{i}" src="{server.url}{path}"></iframe>'
        for i, path in enumerate((f"/embed/en/{PATH}", f"/en/{PATH}", "/en/", "/en/nothing"))
    )
    page.goto(elsewhere(f"<!doctype html><title>A course</title>{frames}"))
    loaded = [frame.evaluate("document.querySelectorAll('main').length") for frame in page.frames[1:]]
    assert loaded == [1, 0, 0, 0]


def test_other_frames_cannot_resize_themselves(
    page: Page, elsewhere: Callable[[str], str], server: Server
) -> None:
    message = "parent.postMessage({ type: &quot;batchfit:height&quot;, height: 5000 }, &quot;*&quot;)"
    page.goto(
        elsewhere(
            f'<!doctype html><title>A course</title><script src="{server.url}/embed.js"></script>'
            f'<iframe srcdoc="<script>{message}</script>" height="300"></iframe>'
        )
    )
    page.wait_for_timeout(200)
    assert height(page) < 400
