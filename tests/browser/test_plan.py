"""The planner in a real browser: it answers while one types, and the address always says what is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from batchfit.languages import languages
from batchfit.web.app import create_app
from tests.browser.conftest import Server, serving
from tests.browser.test_access import findings
from tests.web.catalogue import GPT2, LLAMA, catalogue_in, profiles

pytestmark = pytest.mark.browser

ASKED = f"model={LLAMA}&gpu=h100-80gb&gpus=8&batch=256&seq_len=4096"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app with a small catalogue."""
    with catalogue_in(tmp_path_factory.mktemp("catalogue"), profiles()), serving(create_app()) as running:
        yield running


def opened(page: Page, query: str = ASKED, lang: str = "en") -> Page:
    page.goto(f"/{lang}/plan?{query}")
    expect(page.locator("html[data-ready]")).to_be_attached()
    return page


def product(page: Page) -> str:
    return page.locator(".product").inner_text()


def test_it_answers_while_one_types_and_the_address_follows(page: Page) -> None:
    opened(page)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.locator("#batch").fill("512")
    expect(page.locator(".product")).to_have_text("= 512 samples")
    assert "batch=512" in page.url
    assert len([url for url in requests if "/plan" in url]) == 1
    page.locator("#gpu").select_option("a100-80gb")
    expect(page.locator("#link")).to_have_value(re.compile("gpu=a100-80gb"))
    assert "gpu=a100-80gb" in page.url
    page.reload()
    assert product(page) == "= 512 samples"
    # What is announced is the sentence, once a person has stopped typing.
    page.locator("#batch").fill("640")
    expect(page.locator("[data-announcement]")).to_contain_text("= 640 samples")


def test_back_and_forward(page: Page) -> None:
    opened(page)
    page.locator("#gpu").select_option("h200-141gb")
    expect(page).to_have_url(re.compile("gpu=h200-141gb"))
    page.locator("#batch").press("End")
    page.locator("#batch").press_sequentially("0")
    expect(page.locator(".product")).to_have_text("= 2,560 samples")
    page.go_back()
    expect(page.locator(".product")).to_have_text("= 256 samples")
    expect(page.locator("#batch")).to_have_value("256")
    page.go_back()
    expect(page.locator("#gpu")).to_have_value("h100-80gb")
    page.go_forward()
    expect(page.locator("#gpu")).to_have_value("h200-141gb")


def test_what_depends_on_the_model_changes_with_it(page: Page) -> None:
    opened(page)
    expect(page.locator("[data-slider]")).to_be_visible()
    page.locator("[data-filter=model]").fill("gpt small")
    expect(page.locator("#model")).to_have_value(GPT2)
    expect(page.locator("[data-slider]")).to_be_hidden()
    expect(page.locator("#precision option")).to_have_text(["as usual: bf16-mixed", "bf16-mixed"])
    page.locator("[data-filter=model]").fill("")
    expect(page.locator("#model option")).to_have_count(2)


def test_the_slider_goes_through_the_model_s_lengths(page: Page) -> None:
    opened(page)
    page.locator("[data-slider]").evaluate("slider => { slider.value = slider.max; }")
    page.locator("[data-slider]").dispatch_event("input")
    expect(page.locator("#seq_len")).to_have_value("16384")
    expect(page.locator("[data-sentence]")).to_contain_text("16,384 tokens")


def test_a_wrong_value_is_told_and_nothing_is_lost(page: Page) -> None:
    opened(page)
    page.locator("#seq_len").fill("many")
    expect(page.locator("#seq_len-error")).to_have_text("must be a whole number of 1 or more; you gave many")
    expect(page.locator("#seq_len")).to_have_attribute("aria-invalid", "true")
    assert findings(page) == []
    page.locator("#seq_len").fill("2048")
    expect(page.locator("[data-sentence]")).to_contain_text("2,048 tokens")
    expect(page.locator("#seq_len-error")).to_be_hidden()


def test_links_of_the_answer_change_it_in_place(page: Page) -> None:
    opened(page)
    page.locator("details[data-key=parts] summary").click()
    page.get_by_role("link", name="deepspeed").click()
    expect(page.locator("#ready")).to_have_value(re.compile("train_micro_batch_size_per_gpu"))
    assert page.locator("details[data-key=parts]").get_attribute("open") is not None
    page.locator("#gpus").fill("4")
    expect(page).to_have_url(re.compile("gpus=4.*emit=deepspeed"))


def test_where_the_server_is_out_of_reach_that_is_said(open_context: Callable[..., BrowserContext]) -> None:
    context = open_context(complaint="ERR_INTERNET_DISCONNECTED")
    page = opened(context.new_page())
    context.set_offline(True)
    page.locator("#gpus").fill("4")
    expect(page.locator("[data-unreached-message]")).to_contain_text("The server cannot be reached")
    context.set_offline(False)
    page.locator("#gpus").fill("2")
    expect(page.locator("[data-unreached-message]")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_context: Callable[..., BrowserContext], scheme: Any) -> None:
    page = open_context(color_scheme=scheme, reduced_motion="reduce").new_page()
    for lang, query in (("en", ASKED), ("ar", f"model={LLAMA}&gpu=rtx-4090&gpus=1")):
        opened(page, query, lang)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert findings(page) == [], lang
    page.goto("/de/")
    assert findings(page) == []


def test_axe_finds_nothing_among_inputs_in_any_language(open_context: Callable[..., BrowserContext]) -> None:
    page = open_context(reduced_motion="reduce").new_page()
    ways = {
        "a known model, and what cannot be used": f"model={LLAMA}&gpu=h100-80gb&gpus=none&batch=0&tolerance=many",
        "one's own model": "from=own&gpu=rtx-4090&gpus=1&batch=64",
        "measured points": "from=points&gpu=rtx-4090&gpus=1&batch=64",
    }
    for lang in languages():
        for way, query in ways.items():
            page.goto(f"/{lang}/plan?{query}")
            page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            assert findings(page, "#asked") == [], (lang, way)


@pytest.mark.parametrize("lang", ["de", "ar", "ja"])
def test_on_the_smallest_screen(open_context: Callable[..., BrowserContext], lang: str) -> None:
    page = open_context(viewport={"width": 320, "height": 640}).new_page()
    for path in (f"/{lang}/plan?{ASKED}", f"/{lang}/plan?model={LLAMA}&gpu=rtx-4090&gpus=1", f"/{lang}/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
    page.goto(f"/{lang}/plan?{ASKED}")
    expect(page.locator(".strip")).to_be_in_viewport()


def test_nothing_moves_by_itself(page: Page) -> None:
    page.add_init_script(
        "window.shifted = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) "
        "if (!each.hadRecentInput) shifted += each.value; }).observe({ type: 'layout-shift', buffered: true });"
    )
    opened(page)
    page.wait_for_timeout(500)
    assert page.evaluate("shifted") < 0.01


def test_it_prints(page: Page) -> None:
    opened(page)
    page.emulate_media(media="print")
    for hidden in (".tabs", ".downloads", ".filter", ".slider", ".strip"):
        expect(page.locator(hidden).first).to_be_hidden()
    expect(page.locator("#plans")).to_be_visible()
    assert len(page.pdf(format="A4")) > 10_000


def test_the_activation_per_sample_is_found_and_filled_in(page: Page) -> None:
    page.goto("/en/gradient-accumulation?accumulation_steps=16")
    expect(page.locator("#accumulation_steps")).to_have_value("16")
    page.locator("#replicas").fill("8")
    # Enter goes on computing here; only the button leads away.
    page.locator("#replicas").press("Enter")
    page.get_by_role("button", name="Find the activation per sample of a model").click()
    expect(page.locator("html[data-ready]")).to_be_attached()
    page.locator("#model").select_option(LLAMA)
    page.locator("#checkpointing").select_option("full")
    expect(page.locator("[data-sentence]")).to_contain_text("full checkpointing")
    expect(page).to_have_url(re.compile("checkpointing=full"))
    assert findings(page) == []
    size = page.locator(".factor b").inner_text()
    page.get_by_role("link", name="in the calculator").click()
    expect(page.locator("#activation_per_sample")).to_have_value(size.partition("\N{NO-BREAK SPACE}")[0])
    expect(page.locator("#accumulation_steps")).to_have_value("16")
    expect(page.locator("#replicas")).to_have_value("8")


@pytest.mark.parametrize("lang", ["en", "ar"])
def test_the_page_about_accuracy(open_context: Callable[..., BrowserContext], lang: str) -> None:
    page = open_context(viewport={"width": 320, "height": 640}).new_page()
    page.goto(f"/{lang}/accuracy")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert findings(page) == []


def test_the_shelf_is_searched_as_one_types(page: Page) -> None:
    page.goto("/en/")
    search, entries = page.get_by_role("searchbox", name="Search calculators"), page.locator(".shelf li")
    everything = entries.count()
    search.fill("lora rank")
    expect(entries.filter(visible=True)).to_have_count(1)
    expect(entries.filter(visible=True)).to_contain_text("LoRA parameters")
    expect(page.locator(".shelf").filter(visible=True)).to_have_count(1)
    search.fill("no such thing")
    expect(entries.filter(visible=True)).to_have_count(0)
    search.fill("")
    expect(entries.filter(visible=True)).to_have_count(everything)
