"""Sharing, embedding and printing of every page that can be shared, in a real browser."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from batchfit import calculators
from tests.browser.calculator import PATH, Calculator
from tests.browser.conftest import Server
from tests.browser.test_access import findings
from tests.browser.test_embed import content_height, expect_fitted, height
from tests.web.qr_code import read_pdf

pytestmark = pytest.mark.browser

SLUGS = ["plan", *calculators.slugs()]
#: The planner's page, and a calculator's.
BOTH = ["plan", PATH]


def opened(page: Page, slug: str, query: str = "", lang: str = "en") -> Page:
    page.goto(f"/{lang}/{slug}" + (f"?{query}" if query else ""))
    page.wait_for_selector("html[data-ready]")
    return page


def link(page: Page) -> str:
    return page.locator("#link").input_value()


def change(page: Page, slug: str) -> str:
    """Changes a value by hand, and gives the query of the new state."""
    name, value = ("gpus", "4") if slug == "plan" else ("micro_batch", "7")
    page.locator(f"#{name}").fill(value)
    query = re.compile(rf"\b{name}={value}\b")
    expect(page.locator("#link")).to_have_value(query)
    return link(page).partition("?")[2]


def open_embed(page: Page) -> Any:
    page.get_by_role("button", name="Embed", exact=True).click()
    preview = page.frame_locator("#embed iframe")
    expect(preview.locator("html[data-ready]")).to_be_attached()
    expect(page.locator("#embed input[type=checkbox]").first).to_be_visible()
    return preview


# ---- The link -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", BOTH)
def test_the_link_follows_what_is_typed_and_opens_the_same_elsewhere(
    page: Page, open_context: Callable[..., BrowserContext], slug: str
) -> None:
    opened(page, slug)
    change(page, slug)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Share").click()
    page.locator("#share").get_by_role("button", name="Copy link").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == link(page)
    shown = page.locator("section.answer").inner_text()
    other = open_context(java_script_enabled=False).new_page()
    other.goto(copied)
    digits = re.compile(r"\d[\d,.]*")
    assert digits.findall(shown)[:4] == digits.findall(other.locator("section.answer").inner_text())[:4]
    x = page.locator("#share a", has_text=re.compile(r"^X$")).get_attribute("href") or ""
    assert "4%20GPUs" in x or "56%20samples" in x.replace("%C2%A0", "%20")


def test_a_link_leaves_out_what_is_as_usual(page: Page) -> None:
    opened(page, "plan", "gpus=8&gpu=h100-80gb&batch=256&seq_len=2048")
    assert link(page).endswith("/en/plan?model=llama-3.1-8b&seq_len=2048")


def test_the_home_page_shares_what_it_shows(page: Page) -> None:
    opened(page, "")
    page.locator("#gpus").fill("4")
    expect(page.locator("#link")).to_have_value(re.compile(r"/en/\?model=[^&]+&gpus=4$"))
    page.wait_for_url(re.compile("gpus=4"))
    page.get_by_role("button", name="Share").click()
    expect(page.locator("#share")).to_be_visible()
    shown = page.locator("[data-sentence]").inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Deutsch").click()
    page.wait_for_selector("html[data-ready][lang=de]")
    expect(page.locator("#gpus")).to_have_value("4")
    page.go_back()
    page.wait_for_selector("html[data-ready][lang=en]")
    expect(page.locator("[data-sentence]")).to_have_text(shown)
    code = open_embed(page)
    expect(code.locator("#gpus")).to_have_value("4")


# ---- The code to embed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", SLUGS)
def test_every_page_can_be_embedded_with_some_inputs_in_another_origin(
    page: Page, elsewhere: Callable[[str], str], server: Server, slug: str
) -> None:
    opened(page, slug)
    preview = open_embed(page)
    boxes = page.locator("#embed input[type=checkbox]")
    names = [box.get_attribute("value") for box in boxes.all()]
    page.locator("[data-embed-option=accent]").select_option("violet")
    for box in boxes.all()[1:]:
        box.uncheck()
    expect(preview.locator("html[data-accent=violet]")).to_be_attached()
    expect(preview.locator("form .field:visible")).to_have_count(1)
    expect(preview.locator(f'[data-field="{names[0]}"]')).to_be_visible()
    code = page.locator("#code").input_value()
    assert f"accent=violet&show={names[0]}" in unescape(code)
    page.goto(elsewhere(f"<!doctype html><title>A course</title><div>{code}</div>"))
    expect_fitted(page)
    page.set_viewport_size({"width": 360, "height": 800})
    expect_fitted(page)
    frame = page.frame_locator("iframe")
    expect(frame.locator("form .field:visible")).to_have_count(1)
    expect(frame.locator("[data-full]")).to_have_attribute("href", re.compile(f"^{server.url}/en/{slug}"))


def test_the_code_is_as_high_as_the_preview(page: Page) -> None:
    opened(page, PATH)
    preview = open_embed(page)
    expect(preview.locator("html[data-ready]")).to_be_attached()
    page.wait_for_timeout(300)
    box = page.locator("#embed iframe").bounding_box()
    assert box
    written = re.search(r'height="(\d+)"', page.locator("#code").input_value())
    assert written
    assert abs(int(written[1]) - box["height"]) < 4


@pytest.mark.parametrize("slug", SLUGS)
def test_without_the_script_the_height_is_about_right(
    page: Page, elsewhere: Callable[[str], str], server: Server, slug: str
) -> None:
    answer = page.request.get(f"{server.url}/oembed?url={server.url}/en/{slug}").json()
    page.goto(elsewhere(f"<!doctype html><title>A course</title>{answer['html']}"))
    page.frames[-1].wait_for_selector("html[data-ready]")
    assert 0.7 < content_height(page) / height(page) < 1.3


@pytest.mark.parametrize("sandbox", ["", "allow-scripts allow-forms"])
def test_the_planner_works_embedded_with_storage_blocked(
    open_context: Callable[..., BrowserContext], elsewhere: Callable[[str], str], server: Server, sandbox: str
) -> None:
    context = open_context()
    context.add_init_script(
        """for (const name of ["localStorage", "sessionStorage", "indexedDB", "caches"]) {
          Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
        }"""
    )
    page = context.new_page()
    attributes = f'sandbox="{sandbox}"' if sandbox else ""
    frame = (
        f'<iframe {attributes} src="{server.url}/embed/en/plan?theme=dark" width="700" height="100"></iframe>'
    )
    page.goto(
        elsewhere(
            f'<!doctype html><title>A course</title>{frame}<script src="{server.url}/embed.js"></script>'
        )
    )
    planner = page.frame_locator("iframe")
    expect(planner.locator("html[data-ready]")).to_be_attached()
    steps = page.evaluate("history.length")
    planner.locator("#gpus").fill("2")
    expect(planner.locator("[data-full]")).to_have_attribute("href", re.compile("gpus=2"))
    planner.locator("#gpu").select_option("h200-141gb")
    expect(planner.locator("[data-full]")).to_have_attribute("href", re.compile("h200-141gb"))
    assert "theme" not in (planner.locator("[data-full]").get_attribute("href") or "")
    # The back button is that of the page around it.
    assert page.evaluate("history.length") == steps
    assert height(page) > 400


@pytest.mark.parametrize("slug", BOTH)
def test_an_embed_works_without_javascript(open_context: Callable[..., BrowserContext], slug: str) -> None:
    page = open_context(java_script_enabled=False).new_page()
    name, value = ("gpus", "2") if slug == "plan" else ("micro_batch", "7")
    page.goto(f"/embed/en/{slug}?show={name}&accent=blue&theme=light")
    page.locator(f"#{name}").fill(value)
    page.locator("button[type=submit]").click()
    assert f"{name}={value}" in page.url
    assert "accent=blue" in page.url
    expect(page.locator("form .field:visible")).to_have_count(1)
    expect(page.locator(".answer")).to_contain_text("2" if slug == "plan" else "56")


# ---- On paper ------------------------------------------------------------------------------------------------


def printed(page: Page, folder: Path) -> tuple[int, str, list[str]]:
    """The number of pages, their text, and what their QR codes say."""
    pdf = folder / "report.pdf"
    page.pdf(path=pdf, format="A4", print_background=True)
    said = subprocess.run(["pdfinfo", pdf], capture_output=True, text=True, check=True).stdout
    text = subprocess.run(["pdftotext", "-raw", pdf, "-"], capture_output=True, text=True, check=True).stdout
    pages = re.search(r"Pages:\s+(\d+)", said)
    assert pages
    return int(pages[1]), text, read_pdf(pdf)


def ask_to_print(page: Page) -> None:
    """Clicks the button, up to where the browser would open its dialog."""
    page.evaluate("window.print = () => { document.body.dataset.asked = ''; }")
    page.get_by_role("button", name="Print report").click()
    expect(page.locator("body[data-asked]")).to_be_attached()


@pytest.mark.parametrize("lang", ["en", "ar", "ja"])
@pytest.mark.parametrize("slug", SLUGS)
def test_the_report_has_few_pages_with_the_link_and_its_code(
    page: Page, tmp_path: Path, slug: str, lang: str
) -> None:
    opened(page, slug, lang=lang)
    page.emulate_media(media="print")
    shown = page.locator("h1, .answer, .inputs, svg >> visible=true")
    assert shown.count() >= 4
    for name in () if slug == "plan" else ("formula", "example", "not-counted"):
        expect(page.locator(f"#{name}")).to_be_visible()
    pages, text, codes = printed(page, tmp_path)
    assert pages <= 2
    assert codes == [link(page)]
    assert link(page) in text.replace("\n", "")


#: A state with the longest numbers, choices and address of the calculator that has most of all.
LONGEST = (
    "model=llama-3.1-70b&parameters=9876543210987&layers=999&hidden_size=131071&key_value_dim=131071"
    "&intermediate_size=524287&vocabulary=2097151&gated=no&precision=bf16-mixed&optimizer=momentum&checkpointing=none"
    "&micro_batch=4095&sequence_length=1048575&sharding=zero3&replicas=1048575"
)


@pytest.mark.parametrize("lang", ["es", "ko", "ja"])
def test_the_report_has_two_pages_whatever_is_given(page: Page, tmp_path: Path, lang: str) -> None:
    opened(page, "llm-training-memory", LONGEST, lang)
    pages, text, _ = printed(page, tmp_path)
    assert pages == 2
    assert "1048575" in text


#: What is shown on paper, in points. Indices and exponents are smaller than what they stand at.
SMALLEST = """() => Math.min(...[...document.querySelectorAll("main *")]
  .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())
    && each.checkVisibility() && !each.closest("math, sub, .unseen, option, noscript"))
  .map((each) => {
    const canvas = each.closest("svg[viewBox]");
    const scale = canvas ? canvas.getBoundingClientRect().width / canvas.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(each).fontSize) * 0.75 * scale;
  }))"""


@pytest.mark.parametrize("slug", SLUGS)
def test_what_is_printed_can_be_read(page: Page, slug: str) -> None:
    page.set_viewport_size({"width": 680, "height": 1000})  # a page without its margins
    opened(page, slug)
    page.emulate_media(media="print")
    assert page.evaluate(SMALLEST) >= 6
    assert page.evaluate("document.documentElement.scrollWidth") <= 680


def test_the_report_has_the_examples_of_the_values_as_they_are_now(page: Page, tmp_path: Path) -> None:
    opened(page, "pipeline-bubble")
    page.locator("#schedule").select_option("gpipe")
    expect(page.locator("[data-cases]").first).to_be_hidden()
    ask_to_print(page)
    for example in page.locator("[data-cases]").all():
        expect(example).to_be_visible()
    text = printed(page, tmp_path)[1]
    assert "schedule=gpipe" in text
    assert "GPipe" in text


@pytest.mark.parametrize("slug", BOTH)
def test_the_code_is_that_of_the_values_as_they_are_now(page: Page, tmp_path: Path, slug: str) -> None:
    opened(page, slug)
    change(page, slug)
    ask_to_print(page)
    assert printed(page, tmp_path)[2] == [link(page)]


def test_the_browser_s_own_print_has_the_new_code_or_none(page: Page, tmp_path: Path) -> None:
    opened(page, PATH)
    change(page, PATH)
    page.keyboard.press("Control")
    expect(page.locator("[data-qr] img")).to_have_js_property("complete", True)
    assert printed(page, tmp_path)[2] == [link(page)]
    change(page, PATH)
    page.locator("#replicas").fill("3")
    assert printed(page, tmp_path)[2] in ([], [link(page)])


def test_without_javascript_the_report_has_the_code_too(
    open_context: Callable[..., BrowserContext], tmp_path: Path, server: Server
) -> None:
    page = open_context(java_script_enabled=False).new_page()
    for slug, query in (("plan", "model=llama-3.1-8b&gpus=4"), (PATH, "micro_batch=9")):
        page.goto(f"/ar/{slug}?{query}")
        (folder := tmp_path / slug).mkdir()
        pages, _, codes = printed(page, folder)
        assert codes == [f"{server.url}/ar/{slug}?{query}"]
        assert pages <= 2


# ---- Bad and slow connections --------------------------------------------------------------------------------


def test_formula_pages_answer_without_a_connection(open_context: Callable[..., BrowserContext]) -> None:
    context = open_context(complaint="ERR_INTERNET_DISCONNECTED")
    page = context.new_page()
    calculator = Calculator.opened(page)
    context.set_offline(True)
    calculator.type("micro_batch", "6")
    calculator.expect_results("48 samples", "3 GB")
    assert link(page).endswith("?micro_batch=6")
    ask_to_print(page)
    expect(page.locator("[data-qr] img")).to_have_count(0)


def test_on_a_slow_connection_the_last_wish_wins(page: Page) -> None:
    opened(page, "plan")
    waiting: list[Route] = []
    page.route("**/en/plan?**", lambda route: waiting.append(route))
    page.locator("#gpus").fill("4")
    expect(page.locator("[data-planner]")).to_have_attribute("data-waiting", "")
    page.locator("#gpus").fill("2")
    page.locator("#gpus").fill("1")
    assert len(waiting) == 1
    waiting[0].continue_()
    for _ in range(50):
        page.wait_for_timeout(100 * (len(waiting) < 2))
    assert len(waiting) == 2
    waiting[1].continue_()
    expect(page.locator("#link")).to_have_value(re.compile("gpus=1$"))
    expect(page.locator("[data-planner]")).not_to_have_attribute("data-waiting", "")


def test_back_and_forward_keep_the_values_of_a_calculator(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.type("micro_batch", "6")
    page.wait_for_url("**?micro_batch=6")
    page.get_by_role("link", name="Deutsch").click()
    page.wait_for_selector("html[data-ready][lang=de]")
    page.go_back()
    page.wait_for_selector("html[data-ready][lang=en]")
    Calculator(page).expect_results("48 samples", "3 GB")
    assert link(page).endswith("/en/gradient-accumulation?micro_batch=6")
    page.go_forward()
    page.wait_for_selector("html[data-ready][lang=de]")
    Calculator(page).expect_results("48 Samples", "3 GB")


# ---- For everybody -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_dialogs_and_embeds(
    open_context: Callable[..., BrowserContext], scheme: Any
) -> None:
    page = open_context(color_scheme=scheme, reduced_motion="reduce").new_page()
    opened(page, "plan")
    open_embed(page)
    assert findings(page) == []
    opened(page, PATH, lang="ar")
    page.locator("[popovertarget=share]").first.click()
    assert findings(page) == []
    for path in (
        "/embed/en/plan?show=batch,gpus&accent=blue",
        f"/embed/ja/{PATH}?accent=magenta",
        f"/embed/ar/{PATH}?show=none&accent=green",
        f"/embed/de/{PATH}?accent=pink",
    ):
        page.goto(path)
        assert findings(page) == [], path


@pytest.mark.parametrize("lang", ["de", "ar", "ja"])
def test_dialogs_and_embeds_on_the_smallest_screen(
    open_context: Callable[..., BrowserContext], lang: str
) -> None:
    page = open_context(viewport={"width": 320, "height": 640}).new_page()
    for slug in BOTH:
        opened(page, slug, lang=lang)
        page.locator("[popovertarget=embed]").first.click()
        expect(page.locator("#embed input[type=checkbox]").first).to_be_visible()
        assert page.locator("#embed").evaluate("panel => panel.scrollWidth - panel.clientWidth") <= 0
        page.goto(f"/embed/{lang}/{slug}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_the_dialog_is_worked_by_keyboard(page: Page) -> None:
    opened(page, PATH)
    button = page.get_by_role("button", name="Embed", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#embed")).to_be_visible()
    expect(page.locator("#embed input[type=checkbox]").first).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(page.locator("#embed input[type=checkbox]").first).to_be_focused()
    page.keyboard.press("Space")
    expect(page.locator("#code")).to_have_value(re.compile("show="))
    # The list is made anew with the preview; whoever stands in it stays there.
    page.wait_for_timeout(500)
    expect(page.locator("#embed input[type=checkbox]").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#embed")).to_be_hidden()
    expect(button).to_be_focused()
