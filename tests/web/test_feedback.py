"""Feedback as a browser without JavaScript and as a script sends it: what is kept, what is answered, nothing lost."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from starlette.types import Message

from batchfit.languages import languages
from batchfit.web import bodies
from batchfit.web.app import create_app
from batchfit.web.bodies import LARGEST_BODY
from batchfit.web.feedback import Feedback
from batchfit.web.limits import Rates
from batchfit.web.store import Store
from tests.running import run
from tests.web.html import Element, parse
from tests.web.test_app import PATH, every_address

ORIGIN = "http://batchfit.test"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def app_and_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Store]]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('feedback') / 'feedback.db'}")
    with TestClient(create_app(feedback=store), base_url=ORIGIN, follow_redirects=False) as client:
        yield client, store


@pytest.fixture
def asking(app_and_store: tuple[TestClient, Store]) -> TestClient:
    """The app with feedback."""
    return app_and_store[0]


@pytest.fixture
def kept(app_and_store: tuple[TestClient, Store]) -> Kept:
    """What has been kept since the test began."""
    return Kept(app_and_store[1])


class Kept:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._before = {each.id for each in store.between(None, None)}

    def all(self) -> list[Feedback]:
        return [each for each in self._store.between(None, None) if each.id not in self._before]

    def one(self) -> Feedback:
        found = self.all()
        assert len(found) == 1
        return found[0]


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """The app with a database that cannot be reached."""
    file = tmp_path_factory.mktemp("away") / "file"
    file.touch()
    store = Store(f"sqlite:///{file / 'feedback.db'}")
    return TestClient(create_app(feedback=store), base_url=ORIGIN, follow_redirects=False)


def form_of(html: str) -> Element:
    """The form that sends feedback."""
    return parse(html).one("form", class_="feedback", method="post")


def opened(client: TestClient, path: str, answer: str = "") -> Element:
    """The form that the question at the end of a page leads to, by the button of an answer."""
    asking = parse(client.get(path).text).one("form", class_="actions feedback")
    assert [each.attributes["value"] for each in asking.all("button", name="helpful")] == [
        "yes",
        "needs_work",
    ]
    query = {"page": asking.one("input", name="page").attributes["value"], "helpful": answer}
    response = client.get(asking.attributes["action"], params=query, headers={"Referer": ORIGIN + path})
    assert response.status_code == 200
    return form_of(response.text)


def filled(form: Element, **typed: str) -> dict[str, str]:
    """What a browser sends of the form with these fields filled in; a checkbox is ticked by naming it."""
    sent = {}
    for control in form.all(name=""):
        name, kind = control.attributes["name"], control.attributes.get("type")
        if control.tag == "textarea":
            sent[name] = typed.pop(name, control.text)
        elif kind == "radio":
            if control.attributes["value"] == typed.get(name) or (
                name not in typed and "checked" in control.attributes
            ):
                sent[name] = typed.pop(name, control.attributes["value"])
        elif kind == "checkbox":
            if typed.pop(name, None) is not None or "checked" in control.attributes:
                sent[name] = control.attributes["value"]
        else:
            sent[name] = control.attributes["value"]
    assert not typed, f"the form has no {typed}"
    return sent


def send(client: TestClient, form: Element, **typed: str) -> Any:
    headers = {"Origin": ORIGIN, "Referer": ORIGIN + "/de/feedback?page=plan"}
    return client.post(form.attributes["action"], data=filled(form, **typed), headers=headers)


# ---- Without JavaScript -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "plan", PATH])
def test_a_page_asks_and_keeps_the_answer(asking: TestClient, kept: Kept, path: str) -> None:
    answer = send(asking, opened(asking, f"/de/{path}", "yes"))
    assert answer.status_code == 303
    thanks = asking.get(answer.headers["location"])
    assert parse(thanks.text).one("h1").text == "Danke"
    entry = kept.one()
    assert (entry.helpful, entry.text, entry.page, entry.language) == ("yes", "", path or "home", "de")
    assert entry.inputs is None


def test_text_and_inputs_are_kept_and_the_way_back_leads_to_the_values(
    asking: TestClient, kept: Kept
) -> None:
    address = f"/en/{PATH}?micro_batch=6&activation_per_sample=0.75"
    form = opened(asking, address, "needs_work")
    typed = "  Why 0.75?\r\n\r\n<script>alert(1)</script> 😀 \x00\x1b "
    answer = send(asking, form, text=typed, inputs="on")
    entry = kept.one()
    assert entry.text == "Why 0.75?\n\n<script>alert(1)</script> 😀"
    assert entry.inputs == "micro_batch=6&activation_per_sample=0.75"
    thanks = parse(asking.get(answer.headers["location"]).text)
    back = thanks.one("header", class_="intro").one("a")
    assert back.attributes["href"] == address
    assert back.text == "Back to: Gradient accumulation memory"


def test_a_line_s_end_is_one_character(asking: TestClient, kept: Kept) -> None:
    answer = send(asking, opened(asking, "/en/plan", "yes"), text="\r\n" * 999 + "x" + "\r\n" * 1000)
    assert answer.status_code == 303
    assert kept.one().text == "x"


def test_inputs_are_sent_only_with_the_person_s_agreement(asking: TestClient, kept: Kept) -> None:
    form = opened(asking, f"/en/{PATH}?micro_batch=6", "yes")
    assert "inputs" not in filled(form)
    send(asking, form)
    assert kept.one().inputs is None


def test_values_that_a_page_begins_with_are_values(asking: TestClient, kept: Kept) -> None:
    send(asking, opened(asking, f"/en/{PATH}", "yes"), inputs="on")
    assert kept.one().inputs == ""


@pytest.mark.parametrize("path", ["", "plan", PATH])
def test_values_that_nobody_knows_are_not_asked_for(asking: TestClient, kept: Kept, path: str) -> None:
    """A first page has none; which a page had is not known where the browser does not say where it comes from."""
    form = form_of(asking.get(f"/en/feedback?page={path or 'home'}&helpful=yes").text)
    if not path:
        form = opened(asking, "/en/", "yes")
    assert not form.all("input", name="inputs")
    assert send(asking, form).status_code == 303
    assert kept.one().inputs is None


def test_what_cannot_be_kept_comes_back_with_the_reason_beside_it(asking: TestClient, kept: Kept) -> None:
    form = opened(asking, f"/de/{PATH}?micro_batch=6")
    long = "zu lang " * 300
    answer = send(asking, form, text=long, inputs="on")
    assert answer.status_code == 422
    again = form_of(answer.text)
    assert again.one(data_error="helpful").text == "bitte eine der beiden Antworten wählen"
    assert again.one(data_error="text").text == "darf bis zu 2.000 Zeichen haben; dies sind 2.400"
    assert again.one("textarea").attributes["aria-invalid"] == "true"
    assert filled(again)["text"].split() == long.split()
    assert filled(again)["inputs"] == "micro_batch=6"
    assert not kept.all()
    assert send(asking, again, helpful="yes", text="kurz").status_code == 303
    assert (kept.one().text, kept.one().inputs) == ("kurz", "micro_batch=6")


@pytest.mark.parametrize("lang", languages())
def test_while_the_database_is_away_the_text_comes_back(away: TestClient, lang: str) -> None:
    answer = send(away, opened(away, f"/{lang}/plan", "needs_work"), text="bitte <nicht> verlieren")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    again = filled(form_of(answer.text))
    assert (again["text"], again["helpful"]) == ("bitte <nicht> verlieren", "needs_work")
    said = parse(answer.text).one(role="alert").text
    assert said
    assert (said == "Nothing is lost: what you wrote is still here. Send it again in a moment.") == (
        lang == "en"
    )


def test_the_health_check_tells_of_the_database(
    asking: TestClient, away: TestClient, client: TestClient
) -> None:
    states = [each.get("/healthz.json").json()["database"] for each in (asking, away, client)]
    assert states == ["ok", "away", "off"]
    assert away.get("/healthz").text == "ok\n"


def test_the_form_names_its_page(asking: TestClient) -> None:
    root = parse(asking.get(f"/en/feedback?page={PATH}").text)
    assert root.one("input", name="page").attributes["value"] == PATH
    assert root.one("p", class_="purpose").one("a").attributes["href"] == f"/en/{PATH}"
    unknown = form_of(asking.get('/en/feedback?page="><script>').text)
    assert unknown.one("input", name="page").attributes["value"] == "home"


def test_the_way_back_is_not_kept(asking: TestClient, kept: Kept) -> None:
    form = opened(asking, f"/en/{PATH}?micro_batch=6", "yes")
    assert filled(form)["back"] == "micro_batch=6"
    answer = send(asking, form)
    assert answer.headers["location"].endswith(f"/thanks?page={PATH}&micro_batch=6")
    assert kept.one().inputs is None


@pytest.mark.parametrize("query", ["", "page=nothing", "page=//evil.example", "other=plan"])
def test_thanks_are_for_a_page(asking: TestClient, query: str) -> None:
    assert asking.get(f"/en/feedback/thanks?{query}").status_code == 404


def test_the_way_back_stays_on_this_site(asking: TestClient) -> None:
    page = parse(asking.get("/en/feedback/thanks?page=plan&//evil.example").text)
    assert page.one("header", class_="intro").one("a").attributes["href"].startswith("/en/plan?")


def test_pages_do_not_ask_where_the_owner_does_not_want_it(client: TestClient) -> None:
    for path in ("/en/", "/en/plan", f"/en/{PATH}"):
        assert "feedback" not in client.get(path).text
    assert client.get("/en/feedback").status_code == 404
    assert client.post("/en/feedback.json", json={}).status_code in (404, 405)
    assert "/{lang}/feedback.json" not in client.get("/openapi.json").json()["paths"]


def test_embeds_and_errors_do_not_ask(asking: TestClient) -> None:
    for path in (f"/embed/en/{PATH}", "/en/nothing"):
        assert "feedback" not in asking.get(path).text


@pytest.mark.parametrize("lang", languages())
def test_the_first_page_stays_under_60_kb_with_it(asking: TestClient, lang: str) -> None:
    html = asking.get(f"/{lang}/{PATH}").text
    addresses = every_address(asking, html)
    assert any("feedback" in address for address in addresses)
    total = len(gzip.compress(html.encode(), 9))
    total += sum(int(asking.get(address).headers["content-length"]) for address in addresses)
    assert total < 60_000


# ---- Scripts ------------------------------------------------------------------------------------------------


def test_a_script_is_told_what_it_wants_to_know(asking: TestClient, kept: Kept) -> None:
    name = "8f14e45f-ceea-467f-a8b4-3c4d5e6f7a8b"
    for _ in range(2):
        answer = asking.post("/ja/feedback.json", json={"helpful": "yes", "page": "plan", "id": name})
        thanks = "ありがとうございます。フィードバックを保存しました。"
        assert (answer.status_code, answer.json()) == (201, {"id": name, "message": thanks})
    assert kept.one().language == "ja"
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [
        (
            {},
            {
                "helpful": "choose one of the two answers",
                "page": "must be the name of a page of this site; you gave –",
            },
        ),
        ({"helpful": "maybe", "page": "plan"}, {"helpful": "must be yes or needs_work; you gave maybe"}),
        ({"helpful": True, "page": "plan"}, {"helpful": "must be a text; you gave true"}),
        (
            {"helpful": "yes", "page": "plan", "helpfull": "no"},
            {"helpfull": "is no field of feedback; its fields are helpful, text, page, inputs, id"},
        ),
        ({"helpful": "yes", "page": "plan", "id": ""}, {"id": "must be a UUID or be left out; you gave –"}),
        (
            {"helpful": "yes", "page": "plan", "text": "\x07" * 2001},
            {"text": "can have up to 2,000 characters; this has 2,001"},
        ),
        ({"helpful": "yes", "page": "plan", "id": "7"}, {"id": "must be a UUID or be left out; you gave 7"}),
        (
            {"helpful": "yes", "page": "../plan"},
            {"page": "must be the name of a page of this site; you gave ../plan"},
        ),
        (
            {"helpful": "yes", "page": "plan", "inputs": "x" * 3000},
            {"inputs": "can have up to 2,048 characters; this has 3,000"},
        ),
        (["yes"], {"body": 'must be a JSON object; you gave ["yes"]'}),
    ],
)
def test_a_script_s_mistake_is_named(
    asking: TestClient, kept: Kept, sent: Any, wrong: dict[str, str]
) -> None:
    answer = asking.post("/en/feedback.json", json=sent)
    assert answer.status_code == (400 if "body" in wrong else 422)
    assert {each["field"]: each["message"] for each in answer.json()["errors"]} == wrong
    assert not kept.all()


def test_while_the_database_is_away_a_script_may_come_again(away: TestClient) -> None:
    answer = away.post("/de/feedback.json", json={"helpful": "yes", "page": "plan"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["errors"][0]["message"].startswith(
        "Die Rückmeldung konnte gerade nicht gespeichert werden. "
    )


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/xml", ""])
def test_only_forms_and_json_are_read(asking: TestClient, kind: str) -> None:
    for path in ("/en/feedback", "/en/feedback.json"):
        assert (
            asking.post(path, content=b"helpful=yes&page=plan", headers={"Content-Type": kind}).status_code
            == 415
        )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["helpful", "text", "page", "inputs", "id"])
LIKELY = st.sampled_from(["yes", "needs_work", "plan", "home", "\ud800", "\x00", "a" * 2001])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(FIELDS | st.text(max_size=8), LIKELY | ANYTHING, max_size=6) | ANYTHING,
    st.binary(max_size=40),
)
def test_nothing_sent_is_a_fault_of_ours(asking: TestClient, sent: Any, raw: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert asking.post("/en/feedback.json", content=json.dumps(sent), headers=headers).status_code < 500
    assert asking.post("/ar/feedback.json", content=raw, headers=headers).status_code < 500
    assert asking.post("/en/feedback", content=raw, headers=FORM).status_code < 500
    if isinstance(sent, dict):
        pairs = {str(name): str(value) for name, value in sent.items()}
        body = urlencode(pairs, errors="surrogatepass")
        assert asking.post("/ko/feedback", content=body, headers=FORM).status_code < 500


# ---- Who may send, how much, how often ----------------------------------------------------------------------

RIGHT = {"helpful": "yes", "page": "plan"}


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),  # no browser: those tell where a page's request comes from
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": ORIGIN}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": ORIGIN}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://other.batchfit.test"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "http://batchfit.test.evil.example"}, False),
        ({"Origin": "http://batchfit.test:8443"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
    ],
)
def test_only_our_own_pages_may_send(
    asking: TestClient, kept: Kept, headers: dict[str, str], allowed: bool
) -> None:
    form = asking.post("/de/feedback", data=RIGHT, headers=headers)
    data = asking.post("/de/feedback.json", json=RIGHT, headers=headers)
    assert (form.status_code, data.status_code) == ((303, 201) if allowed else (403, 403))
    assert len(kept.all()) == (2 if allowed else 0)
    if not allowed:
        assert parse(form.text).one("h1").text == "Das wurde von einer anderen Website gesendet"
        assert data.json()["errors"][0]["message"] == "Das wurde von einer anderen Website gesendet"


def test_reading_is_allowed_from_everywhere(asking: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://other.example"}
    assert asking.get(f"/en/{PATH}.json", headers=headers).status_code == 200


def test_the_address_that_people_are_told_is_ours_too(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'feedback.db'}")
    app = create_app(public_url="https://fit.example", feedback=store)
    with TestClient(app, base_url="http://10.0.0.7:8000", follow_redirects=False) as behind:
        assert (
            behind.post("/en/feedback", data=RIGHT, headers={"Origin": "https://fit.example"}).status_code
            == 303
        )
        assert (
            behind.post("/en/feedback", data=RIGHT, headers={"Origin": "https://fat.example"}).status_code
            == 403
        )


def test_a_body_beyond_the_limit_is_turned_away(asking: TestClient, kept: Kept) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    answer = asking.post("/de/feedback", content=b"x" * (LARGEST_BODY + 1), headers=FORM)
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert parse(answer.text).one("h1").text == "Das ist zu groß"
    assert asking.post("/de/feedback", content=chunks(), headers=FORM).status_code == 413
    lying = asking.post("/de/feedback", content=b"x", headers=FORM | {"Content-Length": "9" * 30})
    assert lying.status_code == 413
    assert (
        asking.post("/de/feedback", content=b"x", headers=FORM | {"Content-Length": "-1"}).status_code == 400
    )
    assert not kept.all()


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[TestClient]:
    store = Store(f"sqlite:///{tmp_path / 'feedback.db'}")
    rates = Rates(answers="4/second", feedback="3/hour")
    with TestClient(
        create_app(feedback=store, rates=rates), base_url=ORIGIN, follow_redirects=False
    ) as client:
        yield client


def test_feedback_has_a_rate_and_the_text_is_not_lost(limited: TestClient) -> None:
    for _ in range(3):
        assert limited.post("/de/feedback", data=RIGHT).status_code == 303
    answer = limited.post("/de/feedback", data=RIGHT | {"text": "noch da"})
    assert answer.status_code == 429
    assert 3500 < int(answer.headers["retry-after"]) <= 3600
    root = parse(answer.text)
    assert root.one("h1").text == "Aus diesem Netzwerk kamen zu viele Anfragen"
    assert root.one(role="alert").text == "Bitte in 60 Minuten erneut versuchen."
    assert root.one("textarea").text == "noch da"
    data = limited.post("/de/feedback.json", json=RIGHT)
    assert data.status_code == 429
    assert data.headers["retry-after"]
    assert "60 Minuten" in data.json()["errors"][0]["message"]


def test_a_body_that_does_not_arrive_is_given_up(asking: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LONGEST_ARRIVAL", 0.05)
    headers = {"host": "batchfit.test", "content-type": FORM["Content-Type"], "content-length": "100"}
    sent: list[Message] = []

    async def nothing_more() -> Message:
        await asyncio.sleep(10)
        raise AssertionError("it was waited for")

    async def note(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/de/feedback",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    run(asking.app(scope, nothing_more, note))  # type: ignore[arg-type]
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert "Die Anfrage kam zu langsam an" in sent[1]["body"].decode()
