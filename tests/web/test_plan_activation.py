"""The chooser that fills in a calculator's activation per sample, and the page about accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from urllib.parse import parse_qsl, urlsplit

import pytest
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.accuracy import kinds
from batchfit.languages import languages
from batchfit.web.app import create_app
from tests.web.catalogue import GPT2, LLAMA, catalogue_in, profiles
from tests.web.html import Element, parse
from tests.web.tiny import CALCULATOR as TINY

KEPT = "to=gradient-accumulation&micro_batch=4&accumulation_steps=16&replicas=8"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with (
        catalogue_in(tmp_path_factory.mktemp("catalogue"), profiles()),
        TestClient(create_app(), base_url="http://batchfit.test", follow_redirects=False) as client,
    ):
        yield client


def chosen(client: TestClient, query: str, status: int = 200, lang: str = "en") -> Element:
    response = client.get(f"/{lang}/plan/activation?{query}")
    assert response.status_code == status, response.text
    return parse(response.text)


def back(root: Element) -> tuple[str, dict[str, str]]:
    """Where the answer leads."""
    (link,) = root.one(data_live="answer").all("a")
    found = urlsplit(link.attributes["href"])
    return found.path, dict(parse_qsl(found.query))


def test_the_calculator_leads_there_and_back_with_its_values(client: TestClient) -> None:
    form = parse(client.get("/en/gradient-accumulation?replicas=8").text).one("form")
    (button,) = form.all("button", name="to")
    assert button.attributes["formaction"] == "/en/plan/activation"
    # Enter presses the first button of a form, which stays the form's own.
    assert "formaction" not in form.all("button")[0].attributes
    root = chosen(
        client,
        f"{KEPT}&model={LLAMA}&seq_len=2048&checkpointing=full&activation_per_sample=9&activation_per_sample_unit=MB",
    )
    path, pairs = back(root)
    assert path == "/en/gradient-accumulation"
    a = Decimal(pairs.pop("activation_per_sample"))
    assert pairs == {"micro_batch": "4", "accumulation_steps": "16", "replicas": "8"}
    (profile,) = (
        each
        for each in profiles()[LLAMA]
        if each.settings["checkpointing"] == "full"
        and each.settings["precision"] == "bf16"
        and not each.settings["lora"]
    )
    assert a * 10**9 == pytest.approx(profile.activation_at(2048), rel=1e-3)
    assert "Llama 3.1 8B at 2,048 tokens" in root.one(data_sentence="").text
    assert "full checkpointing" in root.one(data_sentence="").text
    filled = parse(client.get(f"{path}?activation_per_sample={a}").text)
    assert filled.one("input", name="activation_per_sample").attributes["value"] == str(a)


def test_what_was_typed_in_a_language_goes_back_in_it(client: TestClient) -> None:
    root = chosen(client, "micro_batch=1.024&target_batch=&model=gpt2", lang="de")
    path, pairs = back(root)
    assert path == "/de/gradient-accumulation"
    assert pairs["micro_batch"] == "1.024"
    sent = {each.attributes["name"] for each in root.one("form").all("input", type="hidden")}
    assert sent == {"to", "micro_batch", "target_batch"}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("model=unknown", "model"),
        (f"model={LLAMA}&seq_len=99999999", "seq_len"),
        (f"model={GPT2}&checkpointing=full", "checkpointing"),
        (f"model={LLAMA}&precision=fp8", "precision"),
    ],
)
def test_what_cannot_be_found_is_said_at_its_field(client: TestClient, query: str, field: str) -> None:
    root = chosen(client, query, 422)
    assert root.one(id=f"{field}-error").shown
    assert not root.one(data_live="answer").all("a")


def test_only_calculators_that_ask_for_it_are_led_back_to(client: TestClient) -> None:
    for to in ("../evil", "plan", "//evil.example", ""):
        assert back(chosen(client, f"to={to}&model=gpt2"))[0] == "/en/gradient-accumulation"
    many = "&".join(f"x{number}={number}" for number in range(60))
    assert len(back(chosen(client, many))[1]) < 30


def test_it_is_there_only_where_a_calculator_asks_for_it(client: TestClient) -> None:
    gradient = calculators.load("gradient-accumulation")
    # `client` is asked for so that the apps here find its catalogue.
    with TestClient(create_app([TINY], ahead=True), base_url="http://batchfit.test") as without:
        for query in ("", f"?{KEPT}", f"?to={TINY.slug}"):
            assert without.get(f"/en/plan/activation{query}").status_code == 404
        for page in ("", TINY.slug, "plan"):
            assert "plan/activation" not in without.get(f"/en/{page}").text
    other = replace(gradient, slug="gathering", related=())
    with TestClient(create_app([TINY, other]), base_url="http://batchfit.test") as renamed:
        assert "plan/activation" in renamed.get("/en/gathering").text
        assert back(chosen(renamed, f"{KEPT}&model=gpt2"))[0] == "/en/gathering"
        assert back(chosen(renamed, f"to={TINY.slug}&model=gpt2"))[0] == "/en/gathering"


@pytest.mark.parametrize("lang", languages())
def test_the_page_about_accuracy(client: TestClient, lang: str) -> None:
    root = parse(client.get(f"/{lang}/accuracy").text)
    rows = root.one("table").all("tr")[1:]
    assert len(rows) == len(kinds())
    assert [row.all("td")[0].text for row in rows] == [str(kind.runs) for kind in kinds()]
    assert len(client.get(f"/{lang}/accuracy.json").json()["memory"]) == len(kinds())
    assert f"/{lang}/accuracy</loc>" in client.get("/sitemap.xml").text


def test_a_number_opens_to_how_far_off_such_ones_were(client: TestClient) -> None:
    root = parse(client.get(f"/en/plan?model={LLAMA}&gpu=h100-80gb&gpus=8&batch=256").text)
    (link,) = root.one("section", class_="worked").all("a", href="/en/accuracy")
    assert link.text == "How far off predictions are"
    said = [
        each.text
        for each in root.all("p", class_="worked-more")
        if "published runs of this kind" in each.text
    ]
    several = next(kind for kind in kinds() if (kind.trained, kind.gpus) == ("full", "several"))
    assert said[0].startswith(f"On {several.runs} published runs of this kind (all weights, several GPUs)")
