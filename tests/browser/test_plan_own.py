"""A model of one's own in a real browser: dropped, pasted, kept in the tab, traced; and measured points."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from batchfit.web import plan_trace
from batchfit.web.app import create_app
from batchfit.web.plan_trace import Step
from tests.browser.conftest import Server, serving
from tests.browser.test_access import findings
from tests.planning.decoder import SMALL, decoder
from tests.web.catalogue import LLAMA, catalogue_in, profiles

pytestmark = pytest.mark.browser

MINE = decoder(replace(SMALL, name="mine")).to_json()
CONFIG = {"model_type": "llama", "hidden_size": 64, "vocab_size": 512, "num_hidden_layers": 2}
ASKED = f"model={LLAMA}&gpu=h100-80gb&gpus=8&batch=256"
# An answer that a value cannot be used has the status 422, which consoles report.
DROP = """(form, [name, text]) => {
    const files = new DataTransfer();
    files.items.add(new File([text], name, { type: "application/json" }));
    form.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app with a small catalogue, which traces."""
    with (
        catalogue_in(tmp_path_factory.mktemp("catalogue"), profiles()),
        serving(create_app(allow_trace=True)) as running,
    ):
        yield running


def opened(page: Page, query: str = ASKED, lang: str = "en") -> Page:
    page.goto(f"/{lang}/plan?{query}")
    expect(page.locator("html[data-ready]")).to_be_attached()
    return page


def sentence(page: Page, text: str) -> None:
    expect(page.locator("[data-sentence]")).to_contain_text(text)


def test_a_profile_that_is_dropped_plans_at_once_and_stays_in_the_tab(page: Page, tmp_path: Path) -> None:
    opened(page)
    page.locator("form").evaluate(DROP, ["P.json", MINE])
    sentence(page, "of mine at 4,096 tokens")
    expect(page).to_have_url(re.compile("from=own"))
    assert "batchfit_profile" not in page.url
    expect(page.get_by_label("Your own model")).to_be_checked()
    expect(page.locator("#share")).to_contain_text("Your model is in no link")
    # Every control goes on answering, and a reload finds the model again.
    page.locator("#batch").fill("512")
    expect(page.locator(".product")).to_have_text("= 512 samples")
    page.locator("section[aria-labelledby=plans] tbody button").nth(1).click()
    expect(page).to_have_url(re.compile("micro_batch="))
    sentence(page, "of mine")
    page.reload()
    sentence(page, "of mine")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("micro_batch,")
    # Another tab has no model; the way back leads to the one before.
    page.go_back()
    page.go_back()
    page.go_back()
    sentence(page, "llama-3.1-8b")
    expect(page.locator("#share")).not_to_contain_text("Your model is in no link")
    other = page.context.browser.new_page() if page.context.browser else page
    other.goto(page.url.split("?")[0] + "?from=own")
    expect(other.locator(".answer .message:visible")).to_contain_text("Paste, choose or drop your model")
    other.close()


def test_a_file_is_chosen_by_keyboard_and_pasted(page: Page, tmp_path: Path) -> None:
    opened(page)
    page.get_by_label("Known model").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("config.json or batchfit profile")).to_be_visible()
    path = tmp_path / "P.json"
    path.write_text(MINE)
    page.locator("[data-file]").set_input_files(path)
    sentence(page, "of mine")
    page.locator("#own").fill("{")
    expect(page.locator("#own-error")).to_contain_text("is not JSON")
    expect(page.locator("#own")).to_have_attribute("aria-invalid", "true")
    path.write_text(" " * 1_000_001)
    page.locator("[data-file]").set_input_files(path)
    expect(page.locator("#own-error")).to_have_text("must be at most 1,000,000 characters")


def test_a_config_is_traced_with_progress(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    go_on: list[bool] = []

    async def traced(config: dict[str, Any]) -> AsyncGenerator[Step, None]:
        assert config == CONFIG
        yield Step(0.25, "bf16, checkpointing none")
        while not go_on:
            await asyncio.sleep(0.02)
        yield Step(1.0, profiles=(json.loads(MINE),))

    monkeypatch.setattr(plan_trace, "_traced", traced)
    opened(page, "from=own")
    page.locator("#own").fill(json.dumps(CONFIG))
    page.get_by_role("button", name="Trace it here").click()
    expect(page.locator("[data-tracing-what]")).to_have_text("bf16, checkpointing none")
    assert page.get_by_role("progressbar").get_attribute("value") == "0.25"
    assert findings(page) == []
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-tracing]")).to_be_hidden()
    page.get_by_role("button", name="Trace it here").click()
    expect(page.locator("[data-tracing-what]")).to_be_visible()
    go_on.append(True)
    sentence(page, "of mine")
    expect(page.locator("[data-tracing]")).to_be_hidden()


def test_measured_points_answer_while_one_types_and_stand_in_the_address(page: Page) -> None:
    opened(page, "gpu=h100-80gb&gpus=8&batch=256")
    page.get_by_label("Measured points").check()
    expect(page.locator(".answer .message:visible")).to_contain_text("Give two measured points")
    for number, (batch, peak) in enumerate((("4", "12 GB"), ("8", "14 GB")), 1):
        page.get_by_label(f"Micro-batch size, point {number}").fill(batch)
        page.get_by_label(f"Peak memory, point {number}").fill(peak)
    sentence(page, "of measured")
    expect(page).to_have_url(re.compile("points=4:12GB,8:14GB"))
    expect(page.locator("#command")).to_have_value(
        re.compile("batchfit calibrate --point 4:12GB --point 8:14GB")
    )
    assert findings(page) == []
    page.goto(page.url.replace("/en/", "/de/"))
    expect(page.locator("[name=point2_peak]")).to_have_value("14 GB")
    page.get_by_label("Bekanntes Modell").check()
    sentence(page, LLAMA)


def test_without_javascript(open_context: Callable[..., BrowserContext]) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto("/en/plan?from=points")
    for name, value in (
        ("point1_batch", "4"),
        ("point1_peak", "12"),
        ("point2_batch", "8"),
        ("point2_peak", "14"),
    ):
        page.locator(f"[name={name}]").fill(value)
    page.get_by_role("button", name="Plan", exact=True).click()
    sentence(page, "of measured")
    assert "points=4:12GB,8:14GB" in page.url
    page.get_by_label("Your own model").check()
    page.locator("#own").fill(MINE)
    page.get_by_role("button", name="Plan", exact=True).click()
    sentence(page, "of mine")
    page.locator("#batch").fill("512")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator(".product")).to_have_text("= 512 samples")
    sentence(page, "of mine")
    page.get_by_role("button", name="deepspeed").click()
    sentence(page, "of mine")
    expect(page.locator(".tabs [aria-current]")).to_have_text("deepspeed")
    page.locator("#batch").fill("256")
    page.locator("#batch").press("Enter")
    expect(page.locator(".product")).to_have_text("= 256 samples")
    row = page.locator("section[aria-labelledby=plans] tbody button").nth(1)
    factors = row.inner_text()
    row.click()
    sentence(page, "of mine")
    expect(page.locator("section[aria-labelledby=plans] tbody button")).to_have_text([factors])
    page.get_by_role("button", name="Deutsch").click()
    sentence(page, "von mine")
    expect(page.locator("section[aria-labelledby=plans] tbody button")).to_have_text([factors])
    page.get_by_role("button", name="English").click()
    file = {
        "name": "p.json",
        "mimeType": "application/json",
        "buffer": MINE.replace("mine", "filed").encode(),
    }
    page.locator("[type=file]").set_input_files(file)  # type: ignore[arg-type]
    page.get_by_role("button", name="Plan", exact=True).click()
    sentence(page, "of filed")
    expect(page.locator(".tabs [aria-current]")).to_have_text("deepspeed")


def test_another_framework_keeps_the_model(page: Page) -> None:
    page.goto("/en/plan?from=own")
    page.wait_for_selector("html[data-ready]")
    page.locator("#own").fill(MINE)
    sentence(page, "of mine")
    page.get_by_role("button", name="deepspeed").click()
    expect(page.locator(".tabs [aria-current]")).to_have_text("deepspeed")
    sentence(page, "of mine")
    page.locator("#batch").fill("512")
    expect(page.locator(".product")).to_have_text("= 512 samples")
    expect(page.locator(".tabs [aria-current]")).to_have_text("deepspeed")


@pytest.mark.parametrize("lang", ["de", "ar", "ja"])
@pytest.mark.parametrize("source", ["own", "points"])
def test_on_the_smallest_screen(open_context: Callable[..., BrowserContext], lang: str, source: str) -> None:
    page = open_context(viewport={"width": 320, "height": 640}).new_page()
    page.goto(f"/{lang}/plan?from={source}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert findings(page) == []
