"""Everyone can use it: by keyboard, on a small screen, in the dark, without colours, on paper, without JavaScript."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from batchfit.languages import languages
from tests.browser.calculator import PATH, Calculator

pytestmark = pytest.mark.browser

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def findings(page: Page, within: str = "html") -> list[str]:
    """What axe finds, the serious and the critical, within a part of the page."""
    page.evaluate(AXE)
    results: dict[str, Any] = page.evaluate(
        "(within) => axe.run(within, { resultTypes: ['violations'] })", within
    )
    assert results["passes"], "axe looked at nothing"
    return [
        f"{found['id']}: {node['target']} {node['failureSummary']}"
        for found in results["violations"]
        if found["impact"] in ("serious", "critical", "moderate")
        for node in found["nodes"]
    ]


@pytest.mark.parametrize("lang", languages())
def test_axe_finds_nothing_on_any_page(open_context: Callable[..., BrowserContext], lang: str) -> None:
    page = open_context(reduced_motion="reduce").new_page()
    for path in (
        f"/{lang}/{PATH}",
        f"/embed/{lang}/{PATH}?target_batch=250&replicas=8",
        f"/{lang}/",
        f"/{lang}/nothing",
    ):
        page.goto(path)
        assert findings(page) == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(open_context: Callable[..., BrowserContext], scheme: Any) -> None:
    page = open_context(color_scheme=scheme, reduced_motion="reduce").new_page()
    calculator = Calculator.opened(page, "target_batch=250&replicas=8")
    assert findings(page) == []
    for panel in ("share", "embed"):
        page.locator(f"[popovertarget={panel}]").first.click()
        assert findings(page) == [], panel
        page.keyboard.press("Escape")
    calculator.type("micro_batch", "2.5")
    assert calculator.state == "stale"
    assert findings(page) == []


def test_axe_would_find_something(page: Page) -> None:
    Calculator.opened(page)
    page.evaluate("document.querySelector('label[for=micro_batch]').remove()")
    assert any("micro_batch" in finding for finding in findings(page))


def test_by_keyboard_alone(page: Page) -> None:
    Calculator.opened(page)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        )
        if reached[-1] == "Reset":
            break
    wanted = [
        "micro_batch",
        "I know the steps",
        "I know the effective batch I want",
        "accumulation_steps",
        "replicas",
    ]
    wanted += ["activation_per_sample", "Share", "Print report", "Embed", "Reset"]
    assert [each for each in reached if each in wanted] == wanted
    page.get_by_role("button", name="Share").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#share")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('share').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.locator("#share")).to_be_hidden()
    expect(page.get_by_role("button", name="Share")).to_be_focused()


def test_what_has_focus_can_be_seen(page: Page) -> None:
    Calculator.opened(page)
    for _ in range(40):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        if page.evaluate("document.activeElement === document.body"):
            break
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")[:200]


@pytest.mark.parametrize("lang", languages())
def test_nothing_is_wider_than_the_screen(page: Page, lang: str) -> None:
    big = "micro_batch=1048576&replicas=1048576&accumulation_steps=1048576&activation_per_sample=999999.5"
    for path in (
        f"/{lang}/{PATH}",
        f"/{lang}/{PATH}?{big}",
        f"/{lang}/{PATH}?target_batch=250&replicas=8",
        f"/{lang}/{PATH}?micro_batch=2.5",
        f"/embed/{lang}/{PATH}?{big}",
        f"/{lang}/",
    ):
        page.goto(path)
        for width in (320, 390, 700, 1280):
            page.set_viewport_size({"width": width, "height": 700})
            overflow = page.evaluate(
                """() => [...document.querySelectorAll("main *, header *")]
                  .filter((e) => e.closest("[popover], .formula, .unseen, .skip") === null && e.checkVisibility())
                  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
                  .map((e) => e.outerHTML.slice(0, 120))"""
            )
            assert overflow == [], (path, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


def test_labels_in_the_picture_do_not_run_into_each_other(
    open_context: Callable[..., BrowserContext],
) -> None:
    page = open_context(viewport={"width": 320, "height": 700}).new_page()
    for lang in languages():
        for query in (
            "",
            "accumulation_steps=1048576",
            "accumulation_steps=1",
            "accumulation_steps=2&micro_batch=9",
        ):
            page.goto(f"/{lang}/{PATH}?{query}")
            clashes = page.evaluate(
                """() => {
                  const texts = [...document.querySelectorAll("[data-picture] svg text")];
                  const boxes = texts.filter((text) => text.checkVisibility())
                    .map((text) => [text.textContent, text.getBoundingClientRect()]);
                  const beside = (a, b) => a.right <= b.left || b.right <= a.left;
                  const under = (a, b) => a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
                  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
                    .filter(([, b]) => !beside(a, b) && !under(a, b)).map(([other]) => `${one} / ${other}`));
                }"""
            )
            assert clashes == [], (lang, query)


def test_the_results_stay_in_view_on_a_phone(open_context: Callable[..., BrowserContext]) -> None:
    page = open_context(viewport={"width": 390, "height": 700}).new_page()
    calculator = Calculator.opened(page)
    calculator.field("micro_batch").scroll_into_view_if_needed()
    calculator.type("micro_batch", "6")
    strip = page.locator(".strip")
    expect(strip).to_be_in_viewport()
    assert strip.inner_text().replace("\xa0", " ").split("\n") == ["48 samples", "3 GB"]


def test_the_page_does_not_shift_as_it_loads(page: Page) -> None:
    page.add_init_script(
        """window.shift = 0;
        new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shift += e.value; })
          .observe({ type: "layout-shift", buffered: true });"""
    )
    Calculator.opened(page, "target_batch=250&replicas=8")
    page.wait_for_timeout(300)
    assert page.evaluate("shift") < 0.01


def test_dark_mode_is_dark(open_context: Callable[..., BrowserContext]) -> None:
    def brightness(scheme: Any) -> float:
        page = open_context(color_scheme=scheme).new_page()
        page.goto(f"/en/{PATH}")
        color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(float(part) for part in color.removeprefix("rgb(").rstrip(")").split(",")) / 3

    assert brightness("light") > 240
    assert brightness("dark") < 40


def test_forced_colours_leave_the_picture_and_the_switch_readable(
    open_context: Callable[..., BrowserContext],
) -> None:
    page = open_context(forced_colors="active").new_page()
    Calculator.opened(page)
    colours = page.evaluate(
        """() => ["svg.narrow text", "svg.narrow .axis", ".switch [aria-current]", ".switch a:not([aria-current])"]
          .map((selector) => getComputedStyle(document.querySelector(selector)))
          .map((style) => [style.fill, style.stroke, style.backgroundColor])"""
    )
    text, axis, chosen, other = colours
    assert text[0] == axis[1]
    assert chosen[2] != other[2]


def test_without_javascript_the_form_is_enough(open_context: Callable[..., BrowserContext]) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(f"/de/{PATH}")
    expect(page.locator(".slider").first).to_be_hidden()
    expect(page.get_by_role("button", name="Bericht drucken")).to_be_hidden()
    page.locator("#micro_batch").fill("6")
    page.locator("#activation_per_sample").fill("0,75")
    page.get_by_role("button", name="Berechnen").click()
    calculator = Calculator(page)
    calculator.expect_results("48 Samples", "4,5 GB")
    page.get_by_text("Ich kenne den gewünschten effektiven Batch").click()
    page.locator("#target_batch").fill("50")
    page.get_by_role("button", name="Berechnen").click()
    assert calculator.result("accumulation_steps") == "8 Schritte"
    page.get_by_role("button", name="Teilen").click()
    assert (
        page.locator("#link")
        .input_value()
        .endswith(f"/de/{PATH}?micro_batch=6&target_batch=50&activation_per_sample=0.75")
    )
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Zurücksetzen").click()
    calculator.expect_results("32 Samples", "2 GB")


def _words(pdf: Path, order: str) -> str:
    """A printed page's text with single spaces, in an order that pdftotext knows."""
    printed = subprocess.run(
        ["pdftotext", order, pdf, "-"], check=True, capture_output=True, text=True
    ).stdout
    return " ".join(printed.replace("\xa0", " ").split())


def test_the_printed_report(page: Page, tmp_path: Path) -> None:
    calculator = Calculator.opened(page, lang="de")
    calculator.type("micro_batch", "6")
    calculator.type("activation_per_sample", "0,75")
    page.evaluate("document.querySelector('[data-printed]').textContent = ''")
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    text = _words(tmp_path / "report.pdf", "-layout")
    for wanted in (
        "Gradient-Accumulation-Speicher",
        "Mikro-Batch-Größe",
        "0,75 GB",
        "48 Samples",
        "6 Samples × je 0,75 GB",
        "4,5 GB",
        "Spitze: 4,5 GB",
        "Optimizer-Schritt",
        "6 ⋅ 8 ⋅ 1 = 48",
        "Was nicht mitgezählt wird",
    ):
        assert wanted in text, wanted
    # A long address is broken into lines, which stand beside the introduction: read as they were written.
    assert page.evaluate("location.href") in _words(tmp_path / "report.pdf", "-raw").replace(" ", "")
    now = page.evaluate("new Intl.DateTimeFormat('de', { dateStyle: 'long' }).format(new Date())")
    assert f"Gedruckt: {now}" in text
    assert "Teilen" not in text
    assert "Fragen und Antworten" not in text


@pytest.mark.parametrize(
    "query", ["", "target_batch=250&replicas=8", "accumulation_steps=1000&micro_batch=100"]
)
def test_the_printed_report_takes_two_pages_at_most(page: Page, tmp_path: Path, query: str) -> None:
    for lang in languages():
        Calculator.opened(page, query, lang)
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        command = ["pdfinfo", str(tmp_path / "report.pdf")]
        about = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert int(about.partition("Pages:")[2].split()[0]) <= 2, lang


def test_the_print_button_prints(page: Page) -> None:
    page.add_init_script("window.print = () => { window.printed = (window.printed ?? 0) + 1; };")
    Calculator.opened(page)
    page.get_by_role("button", name="Print report").click()
    assert page.evaluate("printed") == 1
