"""Typing, reading, sharing, resetting: the calculator's page in a real browser."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from batchfit.languages import languages
from batchfit.web.app import create_app
from tests.browser.calculator import PATH, Calculator
from tests.browser.conftest import Server, serving
from tests.web.tiny import CALCULATOR as TINY

pytestmark = pytest.mark.browser


def address_of(page: Page) -> str:
    """The page's address, once it has followed what was typed."""
    page.wait_for_timeout(300)
    address: str = page.evaluate("location.href")
    return address


def query_of(page: Page) -> dict[str, str]:
    """The state in the page's address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address_of(page)).query).items()}


def test_results_follow_each_key(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.expect_results("32 samples", "2 GB")
    calculator.type("micro_batch", "12")
    calculator.expect_results("96 samples", "6 GB")
    assert (
        calculator.reading("effective_batch_size")
        == "12 samples × 8 steps × 1 GPU contribute to each optimizer step."
    )
    calculator.type("replicas", "64")
    calculator.expect_results("6,144 samples", "6 GB")
    calculator.type("activation_per_sample", "0.25")
    calculator.expect_results("6,144 samples", "3 GB")
    page.select_option("select[name=activation_per_sample_unit]", "GiB")
    calculator.expect_results("6,144 samples", "3 GiB")
    assert query_of(page) == {"micro_batch": "12", "replicas": "64", "activation_per_sample": "0.25GiB"}


def test_the_four_figures_are_the_server_s(page: Page, server: Server) -> None:
    for query, typed in (
        ("", {}),
        ("replicas=4&activation_per_sample=0.5GiB", {"replicas": "4", "activation_per_sample": "0.5GiB"}),
        ("target_batch=250&replicas=8", {"replicas": "8", "target_batch": "250"}),
    ):
        calculator = Calculator.opened(page)
        if "target_batch" in typed:
            page.get_by_text("I know the effective batch I want").click()
        for name, text in typed.items():
            calculator.type(name, text)
        outputs = json.loads(page.request.get(f"/en/{PATH}.json?{query}").text())["outputs"]
        unit = 2**30 if "GiB" in query else 10**9
        assert calculator.result("effective_batch_size") == f"{outputs['effective_batch_size']} samples"
        assert (
            calculator.result("activation_memory_bytes").split()[0]
            == f"{outputs['activation_memory_bytes'] / unit:g}"
        )
        assert query_of(page) == {name: values[0] for name, values in parse_qs(query).items()}


def shown(page: Page) -> dict[str, object]:
    """All that changes with the inputs, as it stands in the page."""
    found: dict[str, object] = page.evaluate(
        """() => {
          const plain = (element) => element.textContent.replace(/[ \\n]+/g, " ");
          const text = (selector) => [...document.querySelectorAll(selector)].map(plain);
          const attributes = (shape) => [...shape.attributes].map((a) => `${a.name}=${a.value}`).sort();
          const shapes = (svg) => [...svg.children]
            .map((shape) => [shape.tagName, ...attributes(shape), shape.textContent].join(" "));
          return {
            results: text("[data-result]"),
            hidden: [...document.querySelectorAll("[data-result]")].map((e) => e.hidden),
            strip: text("[data-strip]"),
            caption: text("[data-caption]"),
            worked: text("[data-worked]"),
            pictures: [...document.querySelectorAll("[data-picture] svg")].map(shapes),
            choices: [...document.querySelectorAll("[data-choices] a")].map((a) => a.getAttribute("href")),
            drift: document.querySelector("[data-drift]").hidden || text("[data-drift-reading]"),
            link: document.getElementById("link").value,
            code: document.getElementById("code").value,
            shares: [...document.querySelectorAll("[data-pattern]")].map((a) => a.href),
            languages: [...document.querySelectorAll("[data-language]")].map((a) => a.href),
            switches: [...document.querySelectorAll("[data-backwards]")].map((a) => a.getAttribute("aria-current")),
          };
        }"""
    )
    return found


def states(count: int) -> list[dict[str, str]]:
    draw = random.Random(7)
    found: list[dict[str, str]] = [
        {},
        {"accumulation_steps": "1"},
        {"micro_batch": "1", "accumulation_steps": "2"},
    ]
    for _ in range(count):
        state = {name: str(int(2 ** draw.uniform(0, 12))) for name in ("micro_batch", "replicas")}
        state["activation_per_sample"] = draw.choice(
            ["0.5", "0.1250", "2GiB", "640MiB", "0", "0.333333", "1234.5"]
        )
        other = draw.choice(["accumulation_steps", "target_batch"])
        state[other] = str(int(2 ** draw.uniform(0, 14)))
        found.append(state)
    return found


@pytest.mark.parametrize("lang", languages())
def test_what_the_script_shows_is_what_the_server_would_send(
    page: Page, open_context: Callable[..., BrowserContext], lang: str
) -> None:
    """Pictures, sentences, numbers, links: typed in the browser, and opened from their address without JavaScript."""
    plain = open_context(java_script_enabled=False).new_page()
    calculator = Calculator.opened(page, lang=lang)
    for state in states(8):
        page.locator("[data-reset]").click()
        if "target_batch" in state:
            page.locator('[data-backwards="true"]').click()
        for name, text in state.items():
            calculator.field(name).fill(text.replace(".", ",") if lang == "de" else text)
        plain.goto(page.locator("#link").input_value())
        assert shown(page) == shown(plain), state


def test_an_empty_field_asks_for_a_value(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.type("micro_batch", "")
    expect(page.locator("[data-message]")).to_have_text("Enter a value to see results")
    assert calculator.state == "empty"
    assert calculator.result("effective_batch_size") == "–"
    expect(calculator.error("micro_batch")).to_be_hidden()
    calculator.type("micro_batch", "2")
    calculator.expect_results("16 samples", "1 GB")
    expect(page.locator("[data-message]")).to_have_text("")


def test_a_wrong_value_keeps_the_last_good_result_marked_stale(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.type("micro_batch", "6")
    calculator.type("micro_batch", "2.5")
    expect(calculator.error("micro_batch")).to_have_text(
        "must be a whole number from 1 to 1,048,576; you typed 2.5"
    )
    expect(page.locator("[data-message]")).to_contain_text("Not up to date")
    assert calculator.state == "stale"
    assert calculator.field("micro_batch").get_attribute("aria-invalid") == "true"
    # "2" and "2." on the way were good, so theirs is the last.
    calculator.expect_results("16 samples", "1 GB")
    assert query_of(page) == {"micro_batch": "2"}
    calculator.type("micro_batch", "3")
    assert calculator.state == "good"
    expect(calculator.error("micro_batch")).to_be_hidden()
    assert calculator.field("micro_batch").get_attribute("aria-invalid") is None


def test_a_page_opened_with_a_wrong_value_recovers(page: Page) -> None:
    calculator = Calculator.opened(page, "micro_batch=x&replicas=2")
    assert calculator.state == "empty"
    calculator.type("micro_batch", "4")
    calculator.expect_results("64 samples", "2 GB")
    assert query_of(page) == {"replicas": "2"}


def test_what_is_ambiguous_is_echoed(page: Page) -> None:
    calculator = Calculator.opened(page, lang="de")
    calculator.type("activation_per_sample", "1.000")
    expect(page.locator("#activation_per_sample-note")).to_have_text("gelesen als 1000")
    calculator.expect_results("32 Samples", "4.000 GB")
    calculator.type("activation_per_sample", "0,75")
    expect(page.locator("#activation_per_sample-note")).to_be_hidden()
    calculator.expect_results("32 Samples", "3 GB")


def test_what_the_server_echoed_stays_until_one_types(page: Page) -> None:
    calculator = Calculator.opened(page, "activation_per_sample=1.000", "de")
    expect(page.locator("#activation_per_sample-note")).to_have_text("gelesen als 1000")
    assert query_of(page) == {"activation_per_sample": "1000"}
    calculator.type("activation_per_sample", "1000")
    expect(page.locator("#activation_per_sample-note")).to_be_hidden()


def test_a_unit_typed_into_the_field_is_chosen_beside_it(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.type("activation_per_sample", "0.5 gib")
    assert page.locator("select[name=activation_per_sample_unit]").input_value() == "GiB"
    calculator.expect_results("32 samples", "2 GiB")
    calculator.type("activation_per_sample", "1")
    calculator.expect_results("32 samples", "4 GiB")


def test_the_answer_is_spoken_only_once_typing_stops(page: Page) -> None:
    calculator = Calculator.opened(page)
    page.evaluate(
        """() => {
          window.spoken = [];
          new MutationObserver(() => spoken.push(document.querySelector("[role=status]").textContent))
            .observe(document.querySelector("[role=status]"), { childList: true, characterData: true, subtree: true });
        }"""
    )
    calculator.type("micro_batch", "128")
    assert page.evaluate("spoken") == []
    expect(page.get_by_role("status")).not_to_have_text("")
    assert [text.replace("\xa0", " ") for text in page.evaluate("spoken")] == [
        "1,024 samples per optimizer step; 64 GB of activations on each GPU, however many steps are accumulated."
    ]


def test_the_inverse_finds_the_steps_and_the_choices_around(page: Page) -> None:
    calculator = Calculator.opened(page, "replicas=8")
    page.get_by_text("I know the effective batch I want").click()
    expect(calculator.field("accumulation_steps")).to_be_hidden()
    assert calculator.field("target_batch").input_value() == "256"
    expect(page.locator("[data-drift]")).to_be_hidden()
    calculator.type("target_batch", "250")
    assert calculator.result("accumulation_steps") == "8 steps"
    rows = [row.inner_text().split("\t") for row in page.locator("[data-choices] tr").all()]
    assert rows == [["7 steps", "224 samples", "-26"], ["8 steps", "256 samples", "+6"]]
    assert query_of(page) == {"replicas": "8", "target_batch": "250"}
    page.get_by_role("link", name="7 steps").click()
    page.wait_for_selector("html[data-ready]")
    Calculator(page).expect_results("224 samples", "2 GB")
    assert query_of(page) == {"replicas": "8", "accumulation_steps": "7"}


def test_the_switch_goes_back_with_the_steps_found(page: Page) -> None:
    calculator = Calculator.opened(page, "target_batch=250&replicas=8")
    page.get_by_text("I know the steps").click()
    assert calculator.field("accumulation_steps").input_value() == "8"
    expect(calculator.field("target_batch")).to_be_hidden()
    calculator.expect_results("256 samples", "2 GB")
    assert query_of(page) == {"replicas": "8"}


def test_a_shared_link_opens_the_same_state_in_another_language(
    page: Page, open_context: Callable[..., BrowserContext]
) -> None:
    calculator = Calculator.opened(page)
    calculator.type("micro_batch", "6")
    calculator.type("activation_per_sample", "1.125")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Share").click()
    expect(page.locator("#share")).to_contain_text("whoever opens it sees them")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == address_of(page)
    other = open_context(locale="de-DE").new_page()
    other.goto(link.replace("/en/", "/de/"))
    german = Calculator(other)
    german.expect_results("48 Samples", "6,75 GB")
    assert german.field("activation_per_sample").input_value() == "1,125"


def test_the_language_switch_keeps_what_was_typed(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.type("micro_batch", "5")
    page.get_by_role("link", name="Deutsch").click()
    page.wait_for_selector("html[data-ready]")
    assert page.url.endswith(f"/de/{PATH}?micro_batch=5")
    calculator.expect_results("40 Samples", "2,5 GB")
    page.goto("/")
    assert page.url.endswith("/de/")


def test_reset_brings_the_defaults_back(page: Page) -> None:
    calculator = Calculator.opened(page, "target_batch=250&replicas=8&activation_per_sample=2GiB")
    page.get_by_role("link", name="Reset").click()
    calculator.expect_results("32 samples", "2 GB")
    assert query_of(page) == {}
    assert [
        calculator.field(name).input_value() for name in ("micro_batch", "accumulation_steps", "replicas")
    ] == ["4", "8", "1"]


def test_arrow_keys_step_and_sliders_jump(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.field("micro_batch").focus()
    for key in ("ArrowUp", "ArrowUp", "PageUp", "ArrowDown"):
        page.keyboard.press(key)
    assert calculator.field("micro_batch").input_value() == "15"
    for _ in range(3):
        page.keyboard.press("PageDown")
    assert calculator.field("micro_batch").input_value() == "1"
    calculator.field("activation_per_sample").focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    assert calculator.field("activation_per_sample").input_value() == "0.8"
    slider = page.locator('[data-slider="replicas"]')
    box = slider.bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    assert calculator.field("replicas").input_value() == "512"
    calculator.expect_results("4,096 samples", "0.8 GB")


def test_sliders_follow_what_is_typed(page: Page) -> None:
    calculator = Calculator.opened(page)
    slider = page.locator('[data-slider="micro_batch"]')
    before = int(slider.input_value())
    calculator.type("micro_batch", "64")
    assert int(slider.input_value()) > before
    calculator.type("micro_batch", "100000")
    assert slider.input_value() == slider.get_attribute("max")


def test_it_goes_on_answering_without_a_network(page: Page) -> None:
    calculator = Calculator.opened(page)
    page.context.set_offline(True)
    calculator.type("micro_batch", "7")
    calculator.expect_results("56 samples", "3.5 GB")
    page.context.set_offline(False)


def test_going_back_and_forward_keeps_form_and_results_together(page: Page) -> None:
    calculator = Calculator.opened(page)
    calculator.type("micro_batch", "9")
    page.get_by_role("link", name="Calculators").first.click()
    page.go_back()
    page.wait_for_selector("html[data-ready]")
    assert calculator.field("micro_batch").input_value() == "9"
    calculator.expect_results("72 samples", "4.5 GB")


def test_it_answers_within_a_frame(page: Page) -> None:
    """The whole update after a key, drawing included, in a fraction of the 16 ms between two frames."""
    Calculator.opened(page)
    times = page.evaluate(
        """() => {
          const box = document.getElementById("accumulation_steps");
          return Array.from({ length: 60 }, (_, i) => {
            box.value = String(i + 2);
            const before = performance.now();
            box.dispatchEvent(new Event("input", { bubbles: true }));
            return performance.now() - before;
          });
        }"""
    )
    assert sorted(times)[len(times) // 2] < 16


def test_a_new_calculator_answers_as_one_types(page: Page) -> None:
    """One without a picture, without an inverse and without prose."""
    with serving(create_app([TINY])) as server:
        page.goto(f"{server.url}/en/{TINY.slug}?replicas=7")
        page.wait_for_selector("html[data-ready]")
        calculator = Calculator(page)
        assert calculator.result("effective_batch_size") == "42 samples"
        calculator.type("micro_batch", "10")
        assert calculator.result("effective_batch_size") == "210 samples"
        assert query_of(page) == {"micro_batch": "10", "replicas": "7"}
        page.locator("[data-reset]").click()
        assert calculator.result("effective_batch_size") == "30 samples"
        assert server.faults == []
