"""The calculator's page without JavaScript: inputs, results, errors, languages."""

import json
import re

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from batchfit.cli import cli
from batchfit.languages import languages
from tests.web.html import Page, parse, visible_text

PATH = "gradient-accumulation"
EVERY = list(languages())


def get(client: TestClient, query: str = "", lang: str = "en", status: int = 200) -> Page:
    response = client.get(f"/{lang}/{PATH}?{query}")
    assert response.status_code == status, response.text[:500]
    return Page.of(response.text)


def test_the_defaults_give_32_samples_and_2_gb(client: TestClient) -> None:
    page = get(client)
    assert page.result("effective_batch_size") == "32 samples"
    assert (
        page.reading("effective_batch_size")
        == "4 samples × 8 steps × 1 GPU contribute to each optimizer step."
    )
    assert page.result("activation_memory_bytes") == "2 GB"
    assert page.reading("activation_memory_bytes").startswith("4 samples × 0.5 GB each")
    assert [page.typed(name) for name in ("micro_batch", "accumulation_steps", "replicas")] == ["4", "8", "1"]


def test_a_german_types_a_comma_and_reads_one(client: TestClient) -> None:
    page = get(client, "activation_per_sample=0,75", "de")
    assert page.result("activation_memory_bytes") == "3 GB"
    assert page.typed("activation_per_sample") == "0,75"
    assert "je 0,75 GB" in page.reading("activation_memory_bytes")
    assert page.root.one(data_result="activation_memory_bytes").one(data_also="").text == "= 2,794 GiB"


def test_the_form_sends_what_was_typed_and_the_unit_beside_it(client: TestClient) -> None:
    first = get(client, lang="de")
    query = first.submitted(micro_batch="6", activation_per_sample="1,5", activation_per_sample_unit="GiB")
    page = get(client, query, "de")
    assert page.result("activation_memory_bytes") == "9 GiB"
    assert page.typed("activation_per_sample") == "1,5"
    assert [
        o.text for o in page.root.one("select", name="activation_per_sample_unit").all("option", selected="")
    ] == ["GiB"]


def test_a_unit_that_is_not_offered_is_kept(client: TestClient) -> None:
    page = get(client, "activation_per_sample=512MiB")
    assert page.result("activation_memory_bytes") == "2,048 MiB"
    assert page.typed("activation_per_sample") == "512"
    selected = page.root.one("select", name="activation_per_sample_unit").all("option", selected="")
    assert [option.text for option in selected] == ["MiB"]


def test_the_inverse_shows_steps_drift_and_the_choices_around(client: TestClient) -> None:
    page = get(client, "target_batch=250&replicas=8")
    assert page.result("accumulation_steps") == "8 steps"
    assert page.result("effective_batch_size") == "256 samples"
    assert page.root.one(data_drift_reading="").text.startswith("256 samples instead of 250 samples")
    rows = [[cell.text for cell in row.all("td")] for row in page.root.one(data_choices="").all("tr")]
    assert rows == [["7 steps", "224 samples", "-26"], ["8 steps", "256 samples", "+6"]]
    links = [link.attributes["href"] for link in page.root.one(data_choices="").all("a")]
    assert links == [f"/en/{PATH}?accumulation_steps=7&replicas=8", f"/en/{PATH}?replicas=8"]
    assert "accumulation_steps" not in page.submitted()


def test_a_target_that_is_reached_has_no_drift(client: TestClient) -> None:
    page = get(client, "target_batch=256&replicas=8")
    assert not page.root.one(data_drift="").shown


def test_the_switch_keeps_the_batch_in_both_directions(client: TestClient) -> None:
    page = get(client, "micro_batch=3&accumulation_steps=5")
    there = page.root.one("a", data_backwards="true").attributes["href"]
    assert there == f"/en/{PATH}?micro_batch=3&target_batch=15"
    inverse = Page.of(client.get(there).text)
    assert inverse.result("accumulation_steps") == "5 steps"
    back = inverse.root.one("a", data_backwards="false").attributes["href"]
    assert back == f"/en/{PATH}?micro_batch=3&accumulation_steps=5"


def test_the_switch_is_there_when_a_value_cannot_be_used(client: TestClient) -> None:
    page = get(client, "micro_batch=zero", status=422)
    there = page.root.one("a", data_backwards="true").attributes["href"]
    assert client.get(there).status_code == 422
    assert "target_batch=" in there


def test_an_empty_field_asks_for_a_value(client: TestClient) -> None:
    page = get(client, "micro_batch=")
    assert page.root.one(data_message="").text == "Enter a value to see results"
    assert page.result("effective_batch_size") == "–"


@pytest.mark.parametrize("typed", ["2.5", "0", "-1", "four", "1e9", "1048577", "٤٫٥"])
def test_a_wrong_value_is_named_beside_its_field_and_kept(client: TestClient, typed: str) -> None:
    page = get(client, f"micro_batch={typed}&accumulation_steps=16", status=422)
    assert page.error("micro_batch") == f"must be a whole number from 1 to 1,048,576; you typed {typed}"
    assert page.root.one("input", name="micro_batch").attributes["aria-invalid"] == "true"
    assert (page.typed("micro_batch"), page.typed("accumulation_steps")) == (typed, "16")
    assert page.error("accumulation_steps") == ""


def test_a_wrong_size_is_told_the_bounds_in_its_unit(client: TestClient) -> None:
    page = get(client, "activation_per_sample=-1", status=422)
    assert page.error("activation_per_sample") == "must be a size from 0 to 1,000,000 GB; you typed -1"


def test_what_is_ambiguous_is_echoed(client: TestClient) -> None:
    page = get(client, "activation_per_sample=1.000", "de")
    assert page.note("activation_per_sample") == "gelesen als 1000"
    assert page.typed("activation_per_sample") == "1000"
    page = get(client, "activation_per_sample=1.1250", "de")
    assert (page.typed("activation_per_sample"), page.note("activation_per_sample")) == ("1,125", "")
    assert page.result("activation_memory_bytes") == "4,5 GB"


def test_unknown_fields_are_ignored(client: TestClient) -> None:
    assert get(client, "utm_source=x&micro_batch=8").result("effective_batch_size") == "64 samples"


def test_a_repeated_field_is_an_error_that_keeps_what_was_typed(client: TestClient) -> None:
    page = get(client, "micro_batch=6&micro_batch=7&replicas=3", status=400)
    assert page.error("micro_batch") == "was given more than once in the address; give it once"
    assert (page.typed("micro_batch"), page.typed("replicas")) == ("6", "3")


def test_a_repeated_field_that_is_unknown_is_ignored(client: TestClient) -> None:
    get(client, "utm=1&utm=2")


def test_steps_and_target_exclude_each_other(client: TestClient) -> None:
    page = get(client, "target_batch=64&accumulation_steps=2", status=400)
    assert "cannot be given together with Accumulation steps" in page.error("target_batch")


def test_everything_typed_is_escaped(client: TestClient) -> None:
    nasty = '"><script>alert(1)</script>{{7*7}}'
    for lang in EVERY:
        for path in (f"/{lang}/{PATH}", f"/embed/{lang}/{PATH}"):
            response = client.get(path, params={"micro_batch": nasty})
            assert response.status_code == 422
            assert "<script>alert" not in response.text
            assert Page.of(response.text).typed("micro_batch") == nasty[:500]
        for option in ("theme", "accent", "show"):
            refused = client.get(f"/embed/{lang}/{PATH}", params={option: nasty})
            assert refused.status_code == 400
            assert "<script>alert" not in refused.text


@pytest.mark.parametrize("lang", EVERY)
def test_a_page_says_everything_in_its_language(client: TestClient, lang: str) -> None:
    response = client.get(f"/{lang}/{PATH}")
    root = parse(response.text)
    assert root.one("html").attributes["lang"] == lang
    text = visible_text(response.text)
    assert "{" not in text, re.findall(r".{20}\{.{20}", text)
    if lang != "en":
        english = set(parse(client.get(f"/en/{PATH}").text).one("main").text.split())
        shared = english & set(root.one("main").text.split())
        # What is left is names, numbers and formulas.
        assert len(shared) < 0.3 * len(english), sorted(shared)
    alternates = {link.attributes["hreflang"] for link in root.all("link", rel="alternate", hreflang="")}
    assert alternates == {*EVERY, "x-default"}
    assert root.one("link", rel="canonical").attributes["href"] == f"http://batchfit.test/{lang}/{PATH}"


def test_the_language_switch_keeps_the_inputs(client: TestClient) -> None:
    page = get(client, "activation_per_sample=0,75&micro_batch=7", "de")
    english = page.root.one("a", data_language="en").attributes["href"]
    assert english == f"/en/{PATH}?micro_batch=7&activation_per_sample=0.75"
    assert Page.of(client.get(english).text).result("activation_memory_bytes") == "5.25 GB"


def test_the_language_switch_keeps_even_what_is_wrong(client: TestClient) -> None:
    page = get(client, "micro_batch=2.5", status=422)
    german = client.get(page.root.one("a", data_language="de").attributes["href"])
    assert Page.of(german.text).typed("micro_batch") == "2.5"


def test_questions_are_structured_data_too(client: TestClient) -> None:
    page = get(client)
    data = json.loads(str(page.root.one("script", type="application/ld+json").children[0]))
    shown = [summary.text for summary in page.root.all("summary")]
    assert data["@type"] == "FAQPage"
    assert [question["name"] for question in data["mainEntity"]] == shown
    assert len(shown) >= 5
    assert all(question["acceptedAnswer"]["text"].startswith("<p>") for question in data["mainEntity"])


def test_the_page_shows_formula_example_picture_and_what_comes_next(client: TestClient) -> None:
    page = get(client, "micro_batch=2&activation_per_sample=0.25")
    assert [math.text for math in page.root.all("math", display="block")] == ["E=b⋅a⋅g", "M=b⋅A"]
    worked = [div.text.replace(" ", "") for div in page.root.all(data_worked="")]
    assert worked == ["E=b⋅a⋅g=2⋅8⋅1=16", "M=b⋅A=2⋅0.25GB=0.5GB"]
    for svg in page.root.one("figure").all("svg"):
        assert svg.attributes["aria-labelledby"] == page.root.one("figcaption").attributes["id"]
        assert len(svg.all("polygon", class_="activations")) == 8
        assert [text.text for text in svg.all("text", class_="peak-label")] == ["peak: 0.5 GB"]
    assert "would take 4 GB of activations" in page.root.one("figcaption").text
    following = page.root.one("section", aria_labelledby="next")
    links = [link.attributes["href"] for link in following.all("a")]
    assert links == ["/en/llm-training-memory", "/en/lora-parameters"]


def test_many_steps_are_shown_as_the_first_few_and_the_last(client: TestClient) -> None:
    page = get(client, "accumulation_steps=1000")
    for svg in page.root.one("figure").all("svg"):
        numbers = [text.text for text in svg.all("text", class_="centred")]
        assert numbers[:3] == ["1", "2", "3"]
        assert numbers[-1] == "1,000"
        assert len(numbers) <= 11
        assert len(svg.all("circle")) == 6


def test_the_json_twin_is_what_the_command_prints(client: TestClient) -> None:
    for query, options in (
        ("", []),
        (
            "replicas=4&activation_per_sample=0.5GiB",
            ["--replicas", "4", "--activation-per-sample", "0.5GiB"],
        ),
        ("target_batch=250&replicas=8", ["--target-batch", "250", "--replicas", "8"]),
    ):
        twin = client.get(f"/en/{PATH}.json?{query}")
        command = CliRunner().invoke(cli, ["calc", PATH, *options, "--json"])
        assert twin.json() == json.loads(command.stdout)
        assert list(twin.json()["outputs"]) == list(json.loads(command.stdout)["outputs"])


def test_the_json_twin_says_what_is_wrong(client: TestClient) -> None:
    wrong = client.get(f"/de/{PATH}.json?micro_batch=2,5&replicas=0")
    assert wrong.status_code == 422
    assert wrong.json()["errors"] == [
        {
            "field": "micro_batch",
            "message": "muss eine ganze Zahl von 1 bis 1.048.576 sein; eingegeben wurde 2,5",
        },
        {"field": "replicas", "message": "muss eine ganze Zahl von 1 bis 1.048.576 sein; eingegeben wurde 0"},
    ]
    repeated = client.get(f"/en/{PATH}.json?micro_batch=2&micro_batch=2")
    assert (repeated.status_code, repeated.json()["errors"][0]["field"]) == (400, "micro_batch")


def test_the_link_to_share_is_short_and_complete(client: TestClient) -> None:
    page = get(client, "activation_per_sample=0.5&micro_batch=4&accumulation_steps=9")
    link = page.root.one("input", id="link").attributes["value"]
    assert link == f"http://batchfit.test/en/{PATH}?accumulation_steps=9"
    x = next(a for a in page.root.all("a", data_pattern="") if a.text == "X").attributes["href"]
    assert "url=http%3A%2F%2Fbatchfit.test%2Fen%2Fgradient-accumulation%3Faccumulation_steps%3D9" in x
    assert "text=36%20samples%20per%20optimizer%20step" in x.replace("%C2%A0", "%20")
    shown = page.root.one("div", id="share").text
    assert "whoever opens it sees them" in shown


def test_the_code_to_embed_holds_the_state(client: TestClient) -> None:
    page = get(client, "micro_batch=2&replicas=2")
    code = parse(page.root.one("textarea", id="code").text)
    frame = code.one("iframe").attributes
    assert frame["src"] == f"http://batchfit.test/embed/en/{PATH}?micro_batch=2&replicas=2"
    assert frame["title"] == "Gradient accumulation memory"
    assert code.one("script").attributes["src"] == "http://batchfit.test/embed.js"
