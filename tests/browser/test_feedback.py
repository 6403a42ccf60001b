"""Feedback in a real browser: in place, by keyboard, while the database is away, on any screen, without JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from batchfit.languages import languages
from batchfit.web.app import create_app
from batchfit.web.feedback import Feedback
from batchfit.web.store import Store
from tests.browser.calculator import PATH
from tests.browser.conftest import Server, serving
from tests.browser.test_access import findings

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("feedback")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """The app with feedback, in place of the one without."""
    with serving(create_app(feedback=Store(f"sqlite:///{folder / 'data' / 'feedback.db'}"))) as running:
        yield running


@pytest.fixture
def kept(folder: Path) -> Callable[[], list[Feedback]]:
    def read() -> list[Feedback]:
        store = Store(f"sqlite:///{folder / 'data' / 'feedback.db'}")
        try:
            return list(store.between(None, None))
        finally:
            store.close()

    return read


def test_it_is_sent_in_place_with_the_values_of_the_moment(
    page: Page, kept: Callable[[], list[Feedback]]
) -> None:
    page.goto(f"/en/{PATH}?micro_batch=4")
    page.wait_for_url(f"**/en/{PATH}")  # a value that the page begins with is left out of its address
    page.get_by_role("button", name="Needs work").click()
    expect(page.get_by_label("What helped")).to_be_focused()
    expect(page.get_by_label("Needs work")).to_be_checked()
    page.get_by_label("What helped").fill("Größer?\nالخط 文字")
    page.get_by_label("Send the values").check()
    page.locator("#micro_batch").fill("6")
    page.wait_for_url("**micro_batch=6*")
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_role("status").filter(has_text="Thank you")).to_be_focused()
    expect(page.get_by_label("Needs work")).to_be_hidden()
    assert page.url.endswith("micro_batch=6")
    entry = kept()[-1]
    assert (entry.helpful, entry.text, entry.page) == ("needs_work", "Größer?\nالخط 文字", PATH)
    assert entry.inputs == "micro_batch=6"


def test_values_that_a_page_begins_with_can_be_sent(page: Page, kept: Callable[[], list[Feedback]]) -> None:
    page.goto(f"/en/{PATH}")
    page.get_by_role("button", name="Yes").click()
    page.get_by_label("Send the values").check()
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_text("Thank you")).to_be_visible()
    assert kept()[-1].inputs == ""


def test_by_keyboard_alone(page: Page, kept: Callable[[], list[Feedback]]) -> None:
    page.goto("/en/plan")
    page.get_by_role("button", name="Yes").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("What helped")).to_be_focused()
    page.keyboard.type("Good.")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Send the values")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Thank you")).to_be_focused()
    assert (kept()[-1].text, kept()[-1].inputs) == ("Good.", None)


def test_a_text_too_long_stays_with_the_reason_beside_it(page: Page) -> None:
    page.goto(f"/en/{PATH}")
    page.get_by_role("button", name="Yes").click()
    field = page.get_by_label("What helped")
    field.fill("x" * 2001)
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_text("can have up to 2,000 characters; this has 2,001")).to_be_visible()
    expect(field).to_be_focused()
    assert field.get_attribute("aria-invalid") == "true"
    assert findings(page) == []
    field.fill("x" * 2000)
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_text("Thank you")).to_be_visible()


@pytest.mark.parametrize("how", ["away", "offline"])
def test_what_was_typed_stays_until_it_has_been_kept(
    open_context: Callable[..., BrowserContext], kept: Callable[[], list[Feedback]], how: str
) -> None:
    complaint = "status of 503" if how == "away" else "ERR_INTERNET_DISCONNECTED"
    context = open_context(complaint=complaint)
    page = context.new_page()
    page.goto(f"/en/{PATH}")
    before = len(kept())
    said = {"errors": [{"message": "The database is away."}]}

    def fail(route: Route) -> None:
        if how == "away":
            route.fulfill(status=503, json=said)
        else:
            route.abort("internetdisconnected")

    page.route("**/feedback.json", fail)
    page.get_by_role("button", name="Yes").click()
    page.get_by_label("What helped").fill("do not lose me")
    page.get_by_role("button", name="Send feedback").click()
    wanted = "The database is away." if how == "away" else "Nothing is lost: what you wrote is still here."
    expect(page.locator("[data-outcome]")).to_contain_text(wanted)
    expect(page.get_by_label("What helped")).to_have_value("do not lose me")
    assert len(kept()) == before
    page.unroute("**/feedback.json")
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_text("Thank you")).to_be_visible()
    assert [each.text for each in kept()[before:]] == ["do not lose me"]


def test_an_answer_that_got_lost_makes_no_second_entry(
    open_context: Callable[..., BrowserContext], kept: Callable[[], list[Feedback]]
) -> None:
    page = open_context(complaint="ERR_FAILED").new_page()
    page.goto(f"/en/{PATH}")
    before = len(kept())

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/feedback.json", lose_the_answer)
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("button", name="Send feedback").click()
    expect(page.locator("[data-outcome]")).to_contain_text("Nothing is lost")
    page.unroute("**/feedback.json")
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_text("Thank you")).to_be_visible()
    assert len(kept()) == before + 1


def test_without_javascript(
    open_context: Callable[..., BrowserContext], kept: Callable[[], list[Feedback]]
) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(f"/de/{PATH}?micro_batch=6")
    page.get_by_role("button", name="Geht besser").click()
    expect(page.get_by_label("Geht besser")).to_be_checked()
    page.get_by_label("Was hat geholfen").fill("zu lang " * 300)
    page.get_by_label("Die Werte auf dieser Seite mitsenden").check()
    page.get_by_role("button", name="Rückmeldung senden").click()
    expect(page.get_by_text("darf bis zu 2.000 Zeichen haben")).to_be_visible()
    page.get_by_label("Was hat geholfen").fill("kürzer")
    page.get_by_role("button", name="Rückmeldung senden").click()
    expect(page.get_by_role("heading", name="Danke")).to_be_visible()
    assert (kept()[-1].text, kept()[-1].inputs) == ("kürzer", "micro_batch=6")


def test_nothing_is_left_behind_in_the_browser(page: Page) -> None:
    page.goto(f"/en/{PATH}")
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_text("Thank you")).to_be_visible()
    assert page.context.cookies() == []
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0


def test_other_people_s_pages_cannot_send(
    open_context: Callable[..., BrowserContext],
    server: Server,
    elsewhere: Callable[[str], str],
    kept: Callable[[], list[Feedback]],
) -> None:
    page = open_context().new_page()
    before = len(kept())
    page.goto(
        elsewhere(
            f'<!doctype html><title>x</title><form method="post" action="{server.url}/de/feedback">'
            '<input name="helpful" value="yes"><input name="page" value="plan"><button>win</button></form>'
        )
    )
    page.get_by_role("button", name="win").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Das wurde von einer anderen Website gesendet")
    assert len(kept()) == before


@pytest.mark.parametrize("lang", languages())
def test_it_fits_and_axe_finds_nothing(open_context: Callable[..., BrowserContext], lang: str) -> None:
    schemes: list[tuple[Any, str]] = [("light", f"/{lang}/{PATH}"), ("dark", f"/{lang}/feedback?page=plan")]
    for scheme, path in schemes:
        page = open_context(color_scheme=scheme, reduced_motion="reduce").new_page()
        page.goto(path)
        if "feedback" not in path:
            page.locator("button[name=helpful]").last.click()
        expect(page.locator("form.feedback textarea")).to_be_visible()
        for width in (320, 1280):
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        assert findings(page) == [], path


def test_where_the_form_cannot_be_had_its_own_page_is(open_context: Callable[..., BrowserContext]) -> None:
    page = open_context(complaint="ERR_FAILED").new_page()
    page.goto(f"/en/{PATH}")
    page.route("**/static/feedback-form*", lambda route: route.abort())
    page.get_by_role("button", name="Yes").click()
    page.wait_for_url("**/en/feedback?page=*")
    expect(page.get_by_label("Yes")).to_be_checked()


def test_it_moves_nothing_as_it_loads(page: Page) -> None:
    page.add_init_script(
        """window.shift = 0;
        new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shift += e.value; })
          .observe({ type: "layout-shift", buffered: true });"""
    )
    page.goto(f"/en/{PATH}")
    page.locator(".feedback").scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    assert page.evaluate("shift") < 0.01
