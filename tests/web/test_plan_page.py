"""The planner's page as a browser without JavaScript meets it, and its twins."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from batchfit import frameworks
from batchfit.cli import cli
from batchfit.gpus import load_gpus
from batchfit.languages import languages
from batchfit.planning.request import MOST_GPUS as PLANNED_GPUS
from batchfit.sentences import Counted, Rounded, Sentence, Share, Size, in_language
from batchfit.web.app import create_app
from batchfit.web.plan_state import DEFAULTS, MOST_GPUS, NAMES
from tests.web.catalogue import GPT2, LLAMA, catalogue_in, profiles
from tests.web.html import Element, parse

ASKED = f"model={LLAMA}&gpu=h100-80gb&gpus=8&batch=256&seq_len=4096"
NOTHING_FITS = f"model={LLAMA}&gpu=rtx-4090&gpus=1&batch=256&seq_len=4096"


def app_of(folder: Any, contents: Any, **more: str) -> Iterator[TestClient]:
    with (
        catalogue_in(folder, contents, **more),
        TestClient(create_app(), base_url="http://batchfit.test", follow_redirects=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    yield from app_of(tmp_path_factory.mktemp("catalogue"), profiles())


def page(client: TestClient, query: str, status: int = 200, lang: str = "en") -> Element:
    response = client.get(f"/{lang}/plan?{query}")
    assert response.status_code == status, response.text
    return parse(response.text)


def asked_by(address: str) -> dict[str, str]:
    """What an address asks, with what it leaves out since it is as usual."""
    return DEFAULTS | dict(parse_qsl(urlsplit(address).query))


def error(root: Element, name: str) -> str:
    message = root.one(id=f"{name}-error")
    return message.text if message.shown else ""


def command(*words: str, status: int = 0) -> Any:
    """What the command prints with --json."""
    result = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


# ---- The answer ---------------------------------------------------------------------------------------------


def test_the_page_shows_the_command_s_best_plan(client: TestClient) -> None:
    words = ["plan", LLAMA, "--gpu", "h100-80gb", "--gpus", "8", "--batch", "256", "--seq-len", "4096"]
    best = command(*words)["plans"][0]
    root = page(client, ASKED)
    factors = [each.text for each in root.one(class_="factors").all("b")]
    assert factors == [str(best[name]) for name in ("micro_batch", "accumulation_steps", "replicas")]
    assert root.one(data_sentence="").text == command(*words)["sentence"]
    first = root.one("section", aria_labelledby="plans").all("tr")[1]
    assert first.all("th")[0].text == " × ".join(factors)


@pytest.mark.parametrize(
    "query",
    [
        ASKED,
        NOTHING_FITS,
        f"model={LLAMA}&gpu=a100-80gb&gpus=1,2,4,8&batch=4M-tokens&seq_len=8192",
        f"model={LLAMA}&gpu=h100-80gb&gpus=512&batch=16M-tokens&seq_len=8192",
        f"model={LLAMA}&gpu=h100-80gb&gpus=8&batch=250&tolerance=5%25&sharding=fsdp&top=3",
        f"model={LLAMA}&gpu=h100-80gb&gpus=8&batch=256&lora=16&emit=deepspeed",
        f"model={GPT2}&gpu=rtx-4090&gpus=1&batch=64&micro_batch=8&headroom=2GiB",
    ],
)
def test_the_json_twin_is_what_the_command_prints(client: TestClient, query: str) -> None:
    shown = page(client, query)
    words = shlex.split(shown.one("input", id="command").attributes["value"])[1:]
    twin = client.get(f"/de/plan.json?{query}")
    expected = command(*words, status=0 if twin.json()["plans"] else 3)
    assert twin.json() == expected
    asked = dict(parse_qsl(query))
    given_words = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    assert given_words == asked.keys() - {"model"}


def test_where_nothing_fits_the_nearest_plan_and_what_to_change_are_shown(client: TestClient) -> None:
    root = page(client, NOTHING_FITS)
    assert root.one("p", class_="verdict none").text.startswith("✗ does not fit: ")
    assert "do not fit on 1 × rtx-4090" in root.one(data_sentence="").text
    assert root.one("section", aria_labelledby="nearest").all("tr")
    advice = root.one("ul", class_="advice")
    assert advice.text.startswith("With LoRA of rank 16 it fits: ")
    for link in advice.all("a"):
        assert client.get(link.attributes["href"]).status_code == 200
    assert not root.all(id="ready")


def test_every_link_of_an_answer_leads_to_one(client: TestClient) -> None:
    root = page(client, ASKED)
    links = {link.attributes["href"] for link in root.one(data_live="rest").all("a")}
    assert len(links) > 40
    for href in sorted(links)[::7]:
        assert client.get(href).status_code == 200, href


def test_a_plan_of_the_table_opens_alone(client: TestClient) -> None:
    row = page(client, ASKED).one("section", aria_labelledby="plans").all("tr")[3]
    alone = page(client, urlsplit(row.one("a").attributes["href"]).query)
    rows = alone.one("section", aria_labelledby="plans").all("tr")
    assert len(rows) == 2
    assert rows[1].one("a").text == row.one("a").text


def test_memory_is_drawn_and_told_as_a_table(client: TestClient) -> None:
    root = page(client, ASKED)
    plan = client.get(f"/en/plan.json?{ASKED}").json()["plans"][0]
    drawn = {
        shape.attributes["class"] for shape in root.one("figure", class_="picture memory-bar").all("rect")
    }
    named = [each.one("rect").attributes["class"] for each in root.all("svg", class_="bf swatch")]
    assert set(named) == drawn
    assert {part for part, size in plan["parts_bytes"].items() if size} <= drawn
    assert "style" not in {name for each in root.all() for name in each.attributes}


def test_activations_are_told_by_kind(client: TestClient) -> None:
    plan = client.get(f"/en/plan.json?{ASKED}").json()["plans"][0]
    assert sum(plan["activations"].values()) == plan["parts_bytes"]["activations"]
    rows = page(client, ASKED).one("details", data_key="parts").all("tr", class_="within")
    names = [row.one("th").text.strip() for row in rows]
    assert {"attention", "MLP", "logits and loss"} <= set(names)
    (row,) = csv.DictReader(io.StringIO(client.get(f"/en/plan.csv?{ASKED}&top=1").text))
    assert {name: int(row[f"activations_{name}"]) for name in plan["activations"]} == plan["activations"]
    assert "logits and loss" in client.get(f"/en/plan/memory.svg?{ASKED}").text


def test_every_number_opens_to_how_it_comes_about(client: TestClient) -> None:
    plan = client.get(f"/en/plan.json?{ASKED}").json()["plans"][0]
    numbers = [each.text for each in page(client, ASKED).all("p", class_="worked-numbers")]
    factors = f"{plan['micro_batch']} × {plan['accumulation_steps']} × {plan['replicas']} = 256"
    assert numbers[0] == factors
    assert len(numbers) == 6
    for text in numbers:
        assert " = " in text


def test_the_same_batch_on_other_numbers_of_gpus(client: TestClient) -> None:
    rows = page(client, ASKED).one("section", aria_labelledby="counts").all("tr")[1:]
    assert [row.all("td")[0].text for row in rows] == ["2", "4", "8", "16", "32"]
    for row in rows:
        gpus = row.all("td")[0].text
        alone = client.get(f"/en/plan.json?{ASKED.replace('gpus=8', f'gpus={gpus}')}&replicas={gpus}").json()
        best = alone["plans"][0]
        expected = f"{best['micro_batch']} × {best['accumulation_steps']} × {best['replicas']}"
        assert row.one("th").text == expected


def test_the_cards_it_fits_on_are_those_the_planner_says(client: TestClient) -> None:
    asked = f"model={GPT2}&gpus=1&batch=8&micro_batch=4"
    linked = {
        asked_by(link.attributes["href"])["gpu"]
        for link in page(client, f"{asked}&gpu=h100-80gb").one("dl", class_="by-memory").all("a")
    }
    assert linked
    for gpu in load_gpus()[::9]:
        answer = client.get(f"/en/plan.json?{asked}&gpu={gpu.id}").json()
        if gpu.supports_bf16:
            assert (gpu.id in linked) == any(plan["verdict"] == "fits" for plan in answer["plans"]), gpu.id


@pytest.mark.parametrize("framework", frameworks.names())
def test_settings_of_every_framework_are_there_to_copy(client: TestClient, framework: str) -> None:
    query = f"{ASKED}&emit={framework}"
    emitted = client.get(f"/en/plan.json?{query}").json()["emitted"]
    root = page(client, query)
    assert root.one("textarea", id="ready")._raw() == emitted["text"]
    assert root.one("nav", class_="tabs").one("a", aria_current="true").text == framework


def test_settings_are_said_in_the_language_of_the_page(client: TestClient) -> None:
    query = f"{ASKED}&emit=deepspeed"
    emitted = client.get(f"/de/plan.json?{query}").json()["emitted"]
    assert emitted == client.get(f"/en/plan.json?{query}").json()["emitted"]
    root = page(client, query, lang="de")
    text = root.one("textarea", id="ready")._raw()
    assert "geschrieben von batchfit" in text
    said = [item.text for item in root.one("ul", class_="small-print").all("li")]
    assert "model: Das Trainingsskript lädt es." in said
    assert [item.all("code")[0].text for item in root.one("ul", class_="small-print").all("li")] == [
        note.partition(":")[0] for note in emitted["notes"]
    ]


def test_downloads(client: TestClient) -> None:
    rows = list(csv.DictReader(io.StringIO(client.get(f"/en/plan.csv?{ASKED}").text)))
    plans = client.get(f"/en/plan.json?{ASKED}").json()["plans"]
    assert [int(row["peak_allocated_bytes"]) for row in rows] == [
        each["peak_allocated_bytes"] for each in plans
    ]
    for name in ("memory", "micro-batch", "pareto"):
        response = client.get(f"/en/plan/{name}.svg?{ASKED}")
        assert response.headers["content-disposition"] == f'attachment; filename="{name}.svg"'
        ElementTree.fromstring(response.text)
        said = ElementTree.fromstring(client.get(f"/de/plan/{name}.svg?{ASKED}").text).attrib["aria-label"]
        assert said.startswith("Speicher"), said
    assert client.get(f"/en/plan/other.svg?{ASKED}").status_code == 404
    assert client.get("/en/plan.csv?batch=x").status_code == 422


# ---- What is asked ------------------------------------------------------------------------------------------


def test_the_form_sends_what_it_shows(client: TestClient) -> None:
    root = page(client, f"{ASKED}&lora=16&sharding=fsdp&micro_batch=4&interconnect=400Gb/s&top=3")
    sent = {}
    for control in root.one("form").all(name=""):
        if control.attributes.get("type") == "radio" and "checked" not in control.attributes:
            continue
        chosen = [option for option in control.all("option") if "selected" in option.attributes]
        value = chosen[0].attributes["value"] if control.tag == "select" and chosen else ""
        sent[control.attributes["name"]] = value or control.attributes.get("value", "")
    assert sent["trained"] == "lora16"
    again = client.post("/en/plan", data=sent, follow_redirects=True)
    assert (
        parse(again.text).one("input", id="command").attributes["value"]
        == (root.one("input", id="command").attributes["value"])
    )


@pytest.mark.parametrize(
    ("typed", "lang", "batch"),
    [
        ("batch=1.024", "de", "1024"),
        ("batch=1,024", "en", "1024"),
        ("batch=1,5M&batch_unit=tokens", "de", "1.5M-tokens"),
        ("batch=4M-tokens", "ja", "4M-tokens"),
        ("batch=16M-tokens", "en", "16M-tokens"),  # more tokens than there may be samples
        ("batch=٢٥٦", "ar", "256"),
        ("batch=512+samples", "en", "512"),
    ],
)
def test_numbers_are_read_as_the_language_writes_them(
    client: TestClient, typed: str, lang: str, batch: str
) -> None:
    root = page(client, f"model={LLAMA}&{typed}", lang=lang)
    address = root.one("div", data_planner="").attributes["data-address"]
    assert asked_by(address)["batch"] == batch


def test_a_model_may_be_called_by_its_alias(client: TestClient) -> None:
    root = page(client, "model=hf:meta-llama/llama-3.1-8b")
    assert root.one("option", value=LLAMA).attributes["selected"] == ""


@pytest.mark.parametrize(
    ("query", "field", "complaint"),
    [
        ("batch=abc", "batch", "must be a number of samples such as 256"),
        ("batch=0", "batch", "must be a number of samples such as 256"),
        ("gpus=0", "gpus", "must be a whole number of 1 or more; you gave 0"),
        ("gpus=99999999", "gpus", f"must be at most {MOST_GPUS:,}; you gave 99,999,999"),
        ("gpus=1,2,3,4,5,6,7,8,9,10,11,12,13", "gpus", "must be at most 12 numbers; you gave 13"),
        ("gpu=rtx-9090", "gpu", "must be a GPU of the catalogue"),
        ("seq_len=2.5", "seq_len", "must be a whole number of 1 or more; you gave 2.5"),
        ("seq_len=9999999", "seq_len", "must be between 512 and 16,384 tokens"),
        ("trained=lora", "trained", "must be full, or LoRA with its rank"),
        ("trained=lora7", "trained", "7 is not among this model's profiles"),
        ("precision=int4", "precision", "int4 is not among this model's profiles"),
        ("sharding=zero9", "sharding", "must be one of none, ddp"),
        ("headroom=lots", "headroom", "must be a size such as"),
        ("tolerance=200%25", "tolerance", "must be a share such as"),
        ("batch=9999999&tolerance=90%25", "tolerance", "leaves"),
        ("model=no-such", "model", "must be a model of the catalogue"),
        ("gpus=15120&batch=7207200", "gpus", "leaves"),
    ],
)
def test_a_wrong_value_is_named_beside_its_field_and_nothing_is_lost(
    client: TestClient, query: str, field: str, complaint: str
) -> None:
    others = f"optimizer=adamw&micro_batch=2&{query}"
    root = page(client, others, 422)
    assert error(root, field).startswith(complaint)
    assert root.one(id=field).attributes["aria-invalid"] == "true"
    kept = dict(parse_qsl(urlsplit(root.one("div", data_planner="").attributes["data-address"]).query))
    for name, value in parse_qsl(others):
        assert kept[name].replace("-tokens", "") == value
    data = client.get(f"/en/plan.json?{others}")
    assert data.status_code == 422
    assert [each["field"] for each in data.json()["errors"]] == [field]


def test_a_field_given_twice_is_an_error_and_unknown_ones_are_ignored(client: TestClient) -> None:
    assert error(page(client, "gpus=8&gpus=4", 400), "gpus").startswith("was given more than once")
    assert client.get("/en/plan.json?gpus=8&gpus=4").status_code == 400
    assert page(client, f"{ASKED}&utm_source=x&utm_source=y")


def test_what_the_form_does_not_show_is_complained_of_too(client: TestClient) -> None:
    root = page(client, "top=1000", 422)
    assert "top: must be at most 100; you gave 1,000" in root.one(data_live="answer").text


def test_nothing_typed_gets_into_the_page_as_markup(client: TestClient) -> None:
    evil = quote('"><script>alert(1)</script><svg onload=x>')
    for name in (*NAMES, "trained", "batch_unit"):
        response = client.get(f"/en/plan?{name}={evil}")
        assert "<script>alert" not in response.text, name
        assert "<svg onload" not in response.text, name
        parse(response.text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*NAMES, "trained", "batch_unit"]),
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(
                ["8", "1,2", "none", "lora16", "fsdp", "5%", "2GiB", "4M-tokens", "1e9", "-1", "9" * 30]
            ),
        ),
        max_size=4,
    )
)
def test_no_address_is_too_odd(client: TestClient, fields: dict[str, str]) -> None:
    for path in ("/en/plan", "/ar/plan.json"):
        response = client.get(path, params=fields)
        assert response.status_code in (200, 422), response.text


def test_the_page_allows_no_more_gpus_than_the_planner() -> None:
    assert MOST_GPUS <= PLANNED_GPUS


# ---- Where it stands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", languages())
def test_the_planner_comes_first_on_the_home_page(client: TestClient, lang: str) -> None:
    root = parse(client.get(f"/{lang}/").text)
    assert root.one("form").attributes["action"] == f"/{lang}/plan"
    assert root.one(data_sentence="").text
    sent = {name.attributes["name"] for name in root.one("form").all(name="")}
    assert sent == {"model", "batch", "batch_unit", "gpu", "gpus"}


def test_the_home_page_has_a_state_too(client: TestClient) -> None:
    query = "model=llama-3.1-8b&gpu=h200-141gb&gpus=4&batch=512"
    root = parse(client.get(f"/en/?{query}").text)
    assert root.one(data_sentence="").text == page(client, query).one(data_sentence="").text
    assert root.one("input", id="gpus").attributes["value"] == "4"
    shared = root.one("input", id="link").attributes["value"]
    assert shared.startswith("http://batchfit.test/en/?")
    assert asked_by(shared) == dict(parse_qsl(query))
    assert root.one("link", rel="canonical").attributes["href"] == "http://batchfit.test/en/"
    for link in root.one("ul", class_="languages").all("a"):
        assert asked_by(link.attributes["href"]) == dict(parse_qsl(query))
    assert client.get("/en/?gpus=none").status_code == 422


def test_what_the_home_page_does_not_ask_for_is_the_planner_s(client: TestClient) -> None:
    for query in ("model=llama-3.1-8b&precision=bf16", "points=4:12GB,8:14GB", "from=own"):
        response = client.get(f"/de/?{query}", follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (307, f"/de/plan?{query}")


@pytest.mark.parametrize("lang", languages())
def test_the_state_goes_into_every_language(client: TestClient, lang: str) -> None:
    root = page(client, ASKED, lang=lang)
    for link in root.one("ul", class_="languages").all("a"):
        assert asked_by(link.attributes["href"]) == dict(parse_qsl(ASKED))
    if lang != "en":
        sentence = root.one(data_sentence="").text
        assert "which fits" not in sentence
        english = {each.text for each in root.all(lang="en")}
        assert not any("micro-batch" in text for text in english)


def test_an_empty_catalogue_is_said(tmp_path_factory: pytest.TempPathFactory) -> None:
    for client in app_of(tmp_path_factory.mktemp("empty"), {}):
        root = page(client, "")
        assert root.one("p", class_="empty").text.startswith("There are no models to plan with yet")
        assert not root.all("form")
        assert client.get("/en/plan.json").status_code == 422
        assert not parse(client.get("/en/").text).all("form")
        assert page(client, ASKED, 422)


def test_a_title_of_the_catalogue_is_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    for client in app_of(tmp_path_factory.mktemp("odd"), {GPT2: profiles()[GPT2]}, title="<b>"):
        assert page(client, "").one("option", value=GPT2)


def test_a_sentence_is_english_text_that_other_languages_can_say() -> None:
    steps = Counted("{n} accumulation step", "{n} accumulation steps", 2)
    said = Sentence(
        "{change} it fits: {plan}.",
        change=Sentence("On {gpus} GPUs", gpus=1024),
        plan=Sentence("{a}", a=steps),
    )
    assert said == "On 1,024 GPUs it fits: 2 accumulation steps."
    assert in_language(said, "de") == "Auf 1.024 GPUs passt es: 2 Akkumulationsschritte."
    numbers = Sentence(
        "{size} {share} {rounded}", size=Size(3 * 2**29), share=Share(0.153), rounded=Rounded(2, 2)
    )
    assert numbers == "1.5 GiB 15% 2.00"
    assert in_language(numbers, "de") == "1,5 GiB 15\N{NO-BREAK SPACE}% 2,00"
    assert in_language("as it stands", "de") == "as it stands"
