"""A calculator with everything on its page, and that a new calculator is one file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.calculator import Curve
from batchfit.cli import cli
from batchfit.languages import languages
from batchfit.web.app import create_app
from batchfit.web.state import read_state
from tests.everything import CALCULATOR
from tests.web.html import Element, parse

SLUG = CALCULATOR.slug


@pytest.fixture(scope="module")
def app() -> Iterator[TestClient]:
    with TestClient(create_app([CALCULATOR]), base_url="http://batchfit.test") as client:
        yield client


def page(app: TestClient, query: str = "", lang: str = "en") -> Element:
    return parse(app.get(f"/{lang}/{SLUG}?{query}").text)


def data(app: TestClient, query: str = "") -> dict[str, dict[str, object]]:
    answer: dict[str, dict[str, object]] = app.get(f"/en/{SLUG}.json?{query}").json()
    return answer


# ---- Fields ---------------------------------------------------------------------------------------------------


def test_a_form_without_javascript_sends_each_box_that_is_ticked(app: TestClient) -> None:
    root = page(app, "modules=&modules=k")
    boxes = root.all("input", type="checkbox")
    assert [box.attributes["value"] for box in boxes if "checked" in box.attributes] == ["k"]
    assert root.one("input", type="hidden", name="modules").attributes["value"] == ""
    assert data(app, "modules=&modules=q&modules=k")["inputs"]["modules"] == ["q", "k"]
    assert data(app, "modules=q,k")["inputs"]["modules"] == ["q", "k"]


def test_none_ticked_asks_for_one(app: TestClient) -> None:
    root = page(app, "modules=")
    assert root.one(id="modules-error").text == "Choose at least one"


def test_a_choice_is_a_list(app: TestClient) -> None:
    options = page(app, "precision=fp32").one("select", id="precision").all("option")
    assert [(each.text, "selected" in each.attributes) for each in options] == [
        ("bfloat16", False),
        ("Single precision", True),
    ]


def test_a_count_stands_as_typed_and_says_what_it_was_read_as(app: TestClient) -> None:
    root = page(app, "parameters=1.5b", "de")
    assert root.one("input", id="parameters").attributes["value"] == "1,5B"
    assert root.one(id="parameters-note").text == "gelesen als 1.500.000.000"


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("parameters=7b", ""),
        ("parameters=13 B", "parameters=13B"),
        ("shard=30 %25", "shard=30"),
        ("step_time=2 min", "step_time=2min"),
        ("step_time=2&step_time_unit=min", "step_time=2min"),
        ("modules=K", "modules=k"),
        ("budget=", ""),
        ("budget=5K", "budget=5K"),
        ("model=Llama-3.1-8B", "model=llama-3.1-8b"),
        ("model=llama-3.1-8b&parameters=7B", "model=llama-3.1-8b&parameters=7B"),
        ("model=llama-3.1-8b&layers=32", "model=llama-3.1-8b"),
    ],
)
def test_the_address_of_a_state_is_the_same_in_every_language(typed: str, address: str) -> None:
    pairs = [
        (name, text)
        for name, _, text in (pair.replace("%25", "%").partition("=") for pair in typed.split("&"))
    ]
    for lang in languages():
        state = read_state(CALCULATOR, lang, pairs)
        assert not state.wrong
        assert state.query() == address


def test_a_field_given_beside_a_preset_goes_before_it(app: TestClient) -> None:
    filled = data(app, "model=llama-3.1-8b")
    assert filled["inputs"]["model"] == "llama-3.1-8b"
    assert (filled["inputs"]["parameters"], filled["inputs"]["layers"]) == (8_030_261_248, 32)
    given = data(app, "model=llama-3.1-8b&layers=5")
    assert (given["inputs"]["parameters"], given["inputs"]["layers"]) == (8_030_261_248, 5)
    chosen = page(app, "model=llama-3.1-8b").one("select", name="model")
    assert [each.text for each in chosen.all("option") if "selected" in each.attributes] == [
        "Llama 3.1 8B, also Llama 3 8B"
    ]


def test_a_preset_is_offered_while_a_field_that_it_fills_is_there(client: TestClient) -> None:
    seen = set()
    for slug in calculators.slugs():
        calculator = calculators.load(slug)
        choices = [each for each in calculator.fields if each.kind == "choice"]
        queries = ["", *(f"{each.name}={one.value}" for each in choices for one in each.choices)]
        for query in queries if calculator.presets else ():
            root = parse(client.get(f"/en/{slug}?{query}").text)
            shown = {each.attributes["data-field"]: each.shown for each in root.all("div", data_field="")}
            for preset in calculator.presets:
                assert shown[preset.name] == any(shown[name] for name in preset.fills), (slug, query)
                choice = root.one("select", name=preset.name)
                assert ("disabled" in choice.attributes) == (not shown[preset.name])
                seen.add(shown[preset.name])
    assert seen == {True, False}


def test_each_entry_of_a_preset_has_what_it_fills_in(client: TestClient) -> None:
    for slug in calculators.slugs():
        calculator = calculators.load(slug)
        for preset in calculator.presets:
            options = parse(client.get(f"/de/{slug}").text).one("select", name=preset.name)
            names = options.attributes["data-preset"].split(" ")
            for entry in preset.usable():
                texts = options.one("option", value=entry.name).attributes["data-texts"].split(" ")
                assert len(texts) == len(names)
                for name, text in zip(names, texts, strict=True):
                    field = calculator.field(name)
                    for lang in languages():
                        assert field.read(text, lang).value == field.read(preset.texts(entry)[name]).value


def test_a_preset_that_is_not_offered_does_not_count(client: TestClient) -> None:
    path, hours = "/en/compute-optimal-model-size", "budget_in=gpu-hours&gpu=a100-80gb"
    usual, counted = client.get(f"{path}.json").json(), client.get(f"{path}.json?{hours}").json()
    assert counted["inputs"]["gpu"] == "a100-80gb"
    assert counted["outputs"] != usual["outputs"]
    assert client.get(f"{path}.json?gpu=a100-80gb").json() == usual
    # Nobody sees that a card is not known where none is asked for.
    assert client.get(f"{path}.json?gpu=h900").json() == usual
    assert client.get(f"{path}.json?budget_in=gpu-hours&gpu=h900").status_code == 422
    for lang in languages():
        pairs = [("budget_in", "flops"), ("gpu", "a100-80gb"), ("parameters", "7B")]
        assert read_state(calculators.load(path[4:]), lang, pairs).query() == "parameters=7B"
    # It stands with what it fills in, below the choice that brings both.
    fields = [
        each.attributes["data-field"] for each in parse(client.get(path).text).all("div", data_field="")
    ]
    assert fields.index("budget_in") < fields.index("gpu") < fields.index("peak_tflops")


def test_an_unknown_preset_is_told_beside_its_list(app: TestClient) -> None:
    response = app.get(f"/en/{SLUG}?model=llama-9")
    assert response.status_code == 422
    assert parse(response.text).one(id="model-error").text.endswith("you typed llama-9")


def test_what_does_not_go_together_is_told_beside_the_field(app: TestClient) -> None:
    response = app.get(f"/de/{SLUG}?warmup=1001")
    assert response.status_code == 422
    assert parse(response.text).one(id="warmup-error").text == "must be at most 1.000"


# ---- Results --------------------------------------------------------------------------------------------------


def test_details_come_after_the_results_and_what_is_not_asked_for_is_hidden(app: TestClient) -> None:
    shown = page(app).all(data_result="")
    names = [(each.attributes["data-result"], each.attributes["class"]) for each in shown]
    assert names[0] == ("total_bytes", "result")
    assert names[-1] == ("rate", "detail")
    assert not next(each for each in shown if each.attributes["data-result"] == "steps_left").shown
    assert next(
        each
        for each in page(app, "budget=2000").all(data_result="")
        if each.attributes["data-result"] == "steps_left"
    ).shown


def test_sources_and_the_planner_are_linked(app: TestClient) -> None:
    root = page(app, "model=llama-3.1-8b")
    links = {link.attributes["href"]: link.text for link in root.all("a")}
    assert links["https://example.org/paper"] == "Somebody, 2020, equation 1"
    assert links["/en/plan?model=llama-3.1-8b"] == "Batch planner"


def test_symbols_have_subscripts_and_choices_stand_for_their_numbers(app: TestClient) -> None:
    table = next(each for each in page(app).all("table") if each.attributes.get("class") == "symbols")
    rows = [cells(row) for row in table.all("tr")]
    assert ["nl", "Layers", "layers"] in rows
    assert ["s", "Bytes of a weight", "bytes"] in rows
    assert not any("Precision" in row for row in rows)


def cells(row: Element) -> list[str]:
    return [cell.text for cell in row.children if isinstance(cell, Element)]


def test_a_table_says_which_row_is_given(app: TestClient) -> None:
    root = page(app, "precision=fp32")
    rows = [cells(row) for row in root.all("tr") if row.attributes.get("class") == "here"]
    assert rows[0] == ["Single precision", "14 GB", "50 minutes"]
    assert rows[1] == ["100 steps", "45%", "–"]


def test_the_embed_and_every_language_have_it_all(app: TestClient) -> None:
    for lang in languages():
        for path in (f"/{lang}/{SLUG}", f"/embed/{lang}/{SLUG}"):
            root = parse(app.get(path).text)
            assert len(root.all(data_section="")) == len(CALCULATOR.sections)
            assert len(root.all("circle")) >= 2


def test_a_page_without_results_has_sections_to_fill(app: TestClient) -> None:
    root = page(app, "parameters=x")
    assert len(root.all(data_section="")) == len(CALCULATOR.sections)
    assert not root.all("circle")


def test_a_curve_of_which_nothing_can_be_drawn_is_hidden() -> None:
    nothing = Curve("Nothing", "steps", ("steps_left",), "1", "1000", log_y=True)
    with TestClient(create_app([replace(CALCULATOR, sections=(nothing,))])) as client:
        assert not parse(client.get(f"/en/{SLUG}").text).one(data_section="").shown
        assert parse(client.get(f"/en/{SLUG}?budget=5000").text).one(data_section="").shown


def test_the_description_of_the_api_has_choices_presets_and_tables(app: TestClient) -> None:
    paths = app.get("/openapi.json").json()["paths"]
    operation = paths[f"/{{lang}}/{SLUG}.json"]["get"]
    parameters = {each["name"]: each for each in operation["parameters"]}
    assert parameters["precision"]["schema"]["enum"] == ["bf16", "fp32"]
    assert "model" in parameters
    results = operation["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
    assert {"tables", "cards"} <= results.keys()
    assert "steps_left" not in results["outputs"]["required"]


# ---- One file ---------------------------------------------------------------------------------------------------


@pytest.fixture
def one_file_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of calculators with one file more, elsewhere."""
    source = Path(__file__).parent.parent / "everything.py"
    (tmp_path / "everything.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(calculators, "__path__", [*calculators.__path__, str(tmp_path)])
    for known in (calculators.slugs, calculators.load):
        known.cache_clear()
    yield
    for known in (calculators.slugs, calculators.load):
        known.cache_clear()


@pytest.mark.usefixtures("one_file_more")
def test_a_new_calculator_is_one_file() -> None:
    with TestClient(create_app(), base_url="http://batchfit.test") as client:
        for lang in languages():
            assert client.get(f"/{lang}/{SLUG}").status_code == 200
            assert client.get(f"/embed/{lang}/{SLUG}").status_code == 200
            assert f'href="/{lang}/{SLUG}"' in client.get(f"/{lang}/").text
        twin = client.get(f"/en/{SLUG}.json").json()
        assert f"/en/{SLUG}<" in client.get("/sitemap.xml").text
        assert f"/{{lang}}/{SLUG}.json" in client.get("/openapi.json").json()["paths"]
        listed = client.get("/en/index.json").json()["calculators"]
        assert SLUG in {each["calculator"] for each in listed}
    run = CliRunner().invoke(cli, ["calc", SLUG, "--json"])
    assert json.loads(run.stdout) == twin
    run = CliRunner().invoke(cli, ["calculators", "--json"])
    assert SLUG in {each["slug"] for each in json.loads(run.stdout)["calculators"]}


def test_without_that_file_there_is_none() -> None:
    with TestClient(create_app(), base_url="http://batchfit.test") as client:
        assert client.get(f"/en/{SLUG}").status_code == 404
    assert CliRunner().invoke(cli, ["calc", SLUG]).exit_code == 2


def test_the_home_page_leads_to_every_calculator_by_group(app: TestClient) -> None:
    assert re.search(rf'id="training".*?href="/en/{SLUG}"', app.get("/en/").text, re.S)
