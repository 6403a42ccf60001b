"""A model of one's own on the planner's page: pasted profiles and configs, and measured points."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from batchfit.cli import cli
from batchfit.languages import catalogue, languages
from batchfit.models import load_models
from batchfit.web.app import create_app
from batchfit.web.plan_own import MOST_CHARACTERS
from tests.planning.decoder import SMALL, decoder
from tests.web.html import Element, parse

ASKED = {"gpu": "a100-80gb", "gpus": "4", "batch": "512"}
POINTS = "points=4:12GB,8:14GB&gpu=h100-80gb&gpus=8&batch=256"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """The app with the package's own catalogue, since configs are looked up in it."""
    with TestClient(create_app(), base_url="http://batchfit.test", follow_redirects=False) as client:
        yield client


def posted(client: TestClient, own: str, status: int = 200, lang: str = "en", **more: str) -> Element:
    response = client.post(f"/{lang}/plan", data={**ASKED, "from": "own", "own": own, **more})
    assert response.status_code == status, response.text
    return parse(response.text)


def sentence(root: Element) -> str:
    return root.one(data_sentence="").text


def complaint(root: Element, name: str = "own") -> str:
    message = root.one(id=f"{name}-error")
    return message.text if message.shown else ""


def address(root: Element) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(root.one("div", data_planner="").attributes["data-address"]).query))


def profile(name: str = "mine", **changed: Any) -> str:
    data = json.loads(decoder(SMALL, **changed).to_json())
    data["model"]["name"] = name
    return json.dumps(data)


def config(name: str, **changed: Any) -> str:
    (entry,) = (entry for entry in load_models() if entry.name == name)
    return json.dumps({**json.loads(entry.config.read_text("utf-8")), **changed})


# ---- Profiles -------------------------------------------------------------------------------------------------


def test_a_profile_plans_at_once_as_the_command_does(client: TestClient, tmp_path: Path) -> None:
    root = posted(client, profile())
    path = tmp_path / "P.json"
    path.write_text(profile())
    words = shlex.split(root.one("input", id="command").attributes["value"])[1:]
    assert words[1] == "P.json"
    words[1] = str(path)
    printed = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    expected = json.loads(printed.stdout)
    assert sentence(root) == expected["sentence"]
    assert "of mine at 4,096 tokens" in sentence(root)
    twin = client.post("/en/plan.json", data={**ASKED, "from": "own", "own": profile()})
    assert twin.json() == expected


def test_several_profiles_of_a_model_are_planned_together(client: TestClient) -> None:
    both = f"[{profile(checkpointing='none')},{profile(checkpointing='full')}]"
    root = posted(client, both)
    values = [option.attributes["value"] for option in root.one("select", id="checkpointing").all("option")]
    assert values == ["", "none", "full"]
    assert complaint(posted(client, f"[{profile('a')},{profile('b')}]", 422)).startswith(
        "must be profiles of one model"
    )


def test_the_form_carries_the_model_on_and_the_address_does_not(client: TestClient) -> None:
    text = profile()
    root = posted(client, text)
    assert root.one("textarea", id="own")._raw().strip() == text
    assert root.one("form").attributes["method"] == "post"
    assert address(root) == {"from": "own", **ASKED}
    assert not posted(client, text, echo="no").one("textarea", id="own")._raw().strip()
    # Whoever opens the address alone is asked for the file.
    asked = parse(client.get("/en/plan", params={"from": "own", **ASKED}).text)
    assert "Paste, choose or drop your model" in asked.one("section", class_="answer").text


def test_downloads_take_the_model_along(client: TestClient) -> None:
    root = posted(client, profile())
    buttons = root.one("ul", class_="downloads").all("button")
    targets = [button.attributes["formaction"] for button in buttons]
    assert [target.partition("?")[0].partition("/plan")[2] for target in targets] == [
        *(".csv", ".json", "/memory.svg", "/micro-batch.svg", "/pareto.svg"),
    ]
    for target in targets:
        assert client.post(target, data={**ASKED, "from": "own", "own": profile()}).status_code == 200, target
    assert (
        client.post("/en/plan/other.svg", data={**ASKED, "from": "own", "own": profile()}).status_code == 404
    )


def test_links_about_measured_points_keep_them(client: TestClient) -> None:
    root = parse(client.get(f"/en/plan?{POINTS}").text)
    links = [each.attributes["href"] for each in root.one("div", data_live="rest").all("a")]
    within = [link for link in links if "/plan" in link]
    assert len(within) > 20
    assert all("points=4:12GB,8:14GB" in link for link in within)


def test_another_form_becomes_its_address(client: TestClient) -> None:
    sent = {"from": "catalogue", "model": "gpt2", "batch": "1.024", "point1_batch": "4", "own": "{", **ASKED}
    sent["batch"] = "1.024"
    response = client.post("/de/plan", data=sent)
    assert response.status_code == 303
    found = urlsplit(response.headers["location"])
    assert found.path == "/de/plan"
    assert dict(parse_qsl(found.query)) == {"model": "gpt2", **ASKED, "batch": "1024"}


# ---- Configs --------------------------------------------------------------------------------------------------


def test_a_config_of_a_known_shape_is_planned_with_the_catalogue_s_profiles(client: TestClient) -> None:
    root = posted(client, config("llama-3.1-8b", _name_or_path="someone/finetuned", torch_dtype="bfloat16"))
    assert address(root) == {"model": "llama-3.1-8b", **ASKED}
    assert "has the shape of Llama 3.1 8B" in root.one(data_live="matched").text
    twin = client.get("/en/plan.json", params={"model": "llama-3.1-8b", **ASKED})
    assert sentence(root) == twin.json()["sentence"]
    assert (
        "Form von Llama 3.1 8B"
        in posted(client, config("llama-3.1-8b"), lang="de").one(data_live="matched").text
    )


def test_a_config_of_another_shape_is_told_how_to_be_traced(client: TestClient) -> None:
    root = posted(client, config("llama-3.1-8b", vocab_size=128264), 422)
    assert complaint(root).startswith("is of a model that the catalogue has no profiles of")
    untraced = root.one(data_live="untraced")
    assert "but vocab_size is 128264, there 128256" in untraced.text
    command = untraced.one("input", id="trace-command").attributes["value"]
    assert command == "batchfit trace config.json --seq-len 256..16384 --save P.json"
    # Without --allow-trace nothing offers to trace, and nothing does.
    assert not untraced.all("button", name="trace")
    response = client.post("/en/plan/trace", data={"own": config("llama-3.1-8b", vocab_size=128264)})
    assert "not started with --allow-trace" in json.loads(response.text)["error"]


@pytest.mark.parametrize("key", ["auto_map", "trust_remote_code", "custom_pipelines"])
def test_code_of_its_own_is_refused(client: TestClient, key: str) -> None:
    for text in (
        config("llama-3.1-8b", **{key: {"AutoModel": "modeling.X"}}),
        config("gpt2", nested={key: True}),
    ):
        assert f"names code of its own ({key})" in complaint(posted(client, text, 422))


# ---- What is no model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a config.json"),
        ("7", "must be a config.json"),
        ('{"a": 1}', "must be a config.json"),
        ("[" * 100_000, "goes beyond what any model needs: at most 24 levels"),
        ('{"model_type": "llama", "a": ' + "9" * 40 + "}", "goes beyond"),
        ('{"model_type": "llama", "a": NaN}', "goes beyond"),
        ('{"model_type": "llama", "a": ' + "9" * 5000 + "}", "is not JSON"),
        ('{"model_type": "llama", "a": "' + "x" * 30_000 + '"}', "goes beyond"),
        ('{"batchfit_profile": 2}', "cannot be used at profile.batchfit_profile: must be 1"),
        ('{"batchfit_profile": 1}', "cannot be used at profile.model: is missing"),
        ("x" * (MOST_CHARACTERS + 1), "must be at most 1,000,000 characters"),
    ],
)
def test_what_cannot_be_used_is_said_at_the_field(client: TestClient, text: str, said: str) -> None:
    assert said in complaint(posted(client, text, 422))


def test_a_file_goes_before_the_text_beside_it(client: TestClient) -> None:
    fields = {**ASKED, "from": "own", "own": profile("pasted")}
    file = {"own_file": ("profile.json", "\ufeff" + profile("uploaded ünïcode"), "application/json")}
    response = client.post("/de/plan", data=fields, files=file)
    assert response.status_code == 200
    root = parse(response.text)
    assert "uploaded ünïcode" in sentence(root)
    # It goes along with whatever is asked next, and no address holds it.
    assert "uploaded ünïcode" in json.loads(root.one("textarea", id="own")._raw())["model"]["name"]
    assert "uploaded" not in root.one("div", data_planner="").attributes["data-address"]
    none = {"own_file": ("", b"", "application/octet-stream")}
    assert "pasted" in sentence(parse(client.post("/de/plan", data=fields, files=none).text))


def test_another_framework_keeps_the_model(client: TestClient) -> None:
    root = posted(client, profile(), emit="deepspeed")
    tabs = root.one("nav", class_="tabs").all("button")
    assert [tab.text for tab in tabs if "aria-current" in tab.attributes] == ["deepspeed"]
    (accelerate,) = (tab for tab in tabs if tab.text == "accelerate")
    other = pressed(client, accelerate)
    assert sentence(other) == sentence(root)
    assert "accelerate" in other.one("textarea", id="ready").attributes["aria-label"]
    assert address(other)["emit"] == "accelerate"


def pressed(client: TestClient, button: Element) -> Element:
    """The page that a button leads to, in a form that has been changed since."""
    assert (button.attributes["type"], button.attributes["form"]) == ("submit", "asked")
    typed = {**ASKED, "batch": "9", "from": "own", "own": profile()}
    response = client.post(button.attributes["formaction"].partition("#")[0], data=typed)
    assert response.status_code == 200
    return parse(response.text)


def test_whatever_the_answer_leads_to_keeps_the_model(client: TestClient) -> None:
    """Where a page about a known model has links, one about a person's own has buttons that send it along."""
    asked: dict[str, Any] = {**ASKED, "gpus": "1,4", "batch": "500"}
    root = posted(client, profile(), **asked)
    known = parse(client.get("/en/plan", params={"model": "llama-3.1-8b", **asked}).text)
    for kind in ("plans", "counts", "advice", "settings", "cards"):
        own, of_known = (each.one("section", aria_labelledby=kind) for each in (root, known))
        assert bool(own.all("button", form="asked")) == bool(of_known.all("a")), kind
        assert not own.all("a"), kind
    places = [each.attributes["formaction"] for each in root.all("button", formaction="")]
    assert all("from=own" in place and "gpu" in place for place in places)
    row = root.one("section", aria_labelledby="plans").all("button")[1]
    chosen = pressed(client, row)
    assert " × ".join(each.text for each in chosen.one(class_="factors").all("b")) == row.text
    assert address(chosen)["batch"] == "500"
    # Advice too, where nothing fits.
    too_much = posted(client, profile(), gpu="rtx-3060", gpus="1", micro_batch="64", batch="64")
    advice = too_much.one("ul", class_="advice")
    assert not advice.all("a")
    followed = pressed(client, advice.all("button")[0])
    assert "which fits" in sentence(followed)
    assert sentence(too_much) != sentence(followed)


@pytest.mark.parametrize("lang", languages())
def test_a_page_about_an_own_model_promises_no_link_that_holds_it(client: TestClient, lang: str) -> None:
    own = posted(client, profile(), lang=lang)
    known = parse(client.get(f"/{lang}/plan", params={"model": "llama-3.1-8b", **ASKED}).text)
    promised, told = (
        root.one("section", aria_labelledby="plans").one("p", class_="small-print").text
        for root in (known, own)
    )
    assert promised.startswith(told)
    assert len(told) < len(promised)
    refused = catalogue(lang).text("Your model is in no link: whoever opens one is asked for the file.")
    refused = " ".join(refused.split())
    assert (refused in own.one(id="share").text, refused in known.one(id="share").text) == (True, False)


def test_an_own_model_goes_along_to_another_language(client: TestClient) -> None:
    text = profile()
    root = posted(client, text, batch="1500")
    (german,) = (each for each in root.all("button", data_language="de"))
    other = pressed(client, german)
    assert other.one("input", id="batch").attributes["value"] == "1500"
    assert "1.500 Samples" in sentence(other)
    assert other.one("textarea", id="own")._raw().strip() == text
    # Enter presses the first button of the form.
    first = root.all("button", form="asked")[0]
    assert "formaction" not in first.attributes
    assert not first.shown
    # A script keeps the model itself, and a page without one has nothing to send.
    for page in (posted(client, text, echo="no"), parse(client.get("/en/plan").text)):
        assert len(page.all("a", data_language="")) == len(languages())


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=x", b"", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n\r\n--x--", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"a" * 5000 + b"\r\n\r\n\r\n--x--\r\n", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n\r\n--x--", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\xff: a\r\n\r\n\r\n--x--", 400),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 200 + b"--x--",
            400,
        ),
        ("multipart/form-data; boundary=x", b"x" * 4_000_000, 413),
        ("multipart/mixed; boundary=x", b"--x--", 415),
        ("", b"own=1", 415),
    ],
)
def test_what_is_no_form_is_refused(client: TestClient, kind: str, body: bytes, status: int) -> None:
    assert client.post("/en/plan", content=body, headers={"content-type": kind}).status_code == status


def test_another_site_cannot_send_a_file(client: TestClient) -> None:
    file = {"own_file": ("profile.json", profile(), "application/json")}
    for headers in ({"origin": "http://elsewhere.test"}, {"sec-fetch-site": "cross-site"}):
        response = client.post("/en/plan", data={**ASKED, "from": "own"}, files=file, headers=headers)
        assert response.status_code == 403


def test_limits_on_what_is_sent(client: TestClient) -> None:
    large = {"own": "x" * 4_000_000, "from": "own"}
    assert client.post("/en/plan", data=large).status_code == 413
    assert client.post("/en/plan", json={"own": "{}"}).status_code == 415
    assert (
        client.post(
            "/en/plan", content=b"\xff=1", headers={"content-type": "application/x-www-form-urlencoded"}
        ).status_code
        == 400
    )
    many = "&".join(f"a{number}=1" for number in range(200))
    assert (
        client.post(
            "/en/plan", content=many, headers={"content-type": "application/x-www-form-urlencoded"}
        ).status_code
        == 400
    )
    # A model that is large and yet within the limit gets through.
    padded = profile() + " " * 600_000
    assert posted(client, padded)


def _numbers(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from _numbers(value, (*path, key))
    if isinstance(data, int | float) and not isinstance(data, bool):
        yield path


WHOLE = json.loads(profile(reserved=1.04))
PLACES = list(_numbers(WHOLE))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.sampled_from([0, -1, 1, 2**31, -(2**62), 2**79, 1e-9, 0.5, -1e20, None, "x", [], {}]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_no_profile_is_too_odd(client: TestClient, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    data = json.loads(json.dumps(WHOLE))
    for path, value in changes:
        place = data
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    response = client.post("/en/plan", data={**ASKED, "from": "own", "own": json.dumps(data)})
    assert response.status_code in (200, 422), response.text


# ---- Measured points ------------------------------------------------------------------------------------------


def test_points_of_an_address_are_planned_as_calibrate_and_plan_do(
    client: TestClient, tmp_path: Path
) -> None:
    root = parse(client.get(f"/en/plan?{POINTS}").text)
    calibrate, plan = root.one("input", id="command").attributes["value"].split(" && ")
    path = str(tmp_path / "P.json")
    made = CliRunner().invoke(cli, shlex.split(calibrate.replace("P.json", path))[1:], catch_exceptions=False)
    assert made.exit_code == 0
    printed = CliRunner().invoke(cli, [*shlex.split(plan.replace("P.json", path))[1:], "--json"])
    assert sentence(root) == json.loads(printed.stdout)["sentence"]
    assert client.get(f"/ar/plan.json?{POINTS}").json() == json.loads(printed.stdout)


def test_points_typed_in_a_language_become_an_address(client: TestClient) -> None:
    typed = {
        **ASKED,
        "from": "points",
        "point1_batch": "4",
        "point1_peak": "12,5",
        "point2_batch": "8",
        "point2_peak": "14.125 MiB",
        "point3_peak": "",
        "model": "gpt2",
    }
    typed["point2_peak"] = "14,125 GiB"
    response = client.post("/de/plan", data=typed)
    assert dict(parse_qsl(urlsplit(response.headers["location"]).query)) == {
        "points": "4:12.5GB,8:14.125GiB",
        **ASKED,
    }
    root = parse(client.get(response.headers["location"]).text)
    assert root.one("input", name="point2_peak").attributes["value"] == "14,125 GiB"
    assert root.one("input", name="from", value="points").attributes["checked"] == ""
    # The address means the same in every language.
    english = response.headers["location"].replace("/de/", "/en/")
    assert (
        parse(client.get(english).text).one("input", name="point2_peak").attributes["value"] == "14.125 GiB"
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("points=4:12GB", "are needed at two different micro-batches or more"),
        ("points=4:12GB,4:13GB", "are needed at two different micro-batches or more"),
        ("points=4,8", "must be a micro-batch and its peak with a unit"),
        ("points=0:12GB,8:14GB", "must be a micro-batch and its peak"),
        ("points=4:99999TB,8:14GB", "must be a micro-batch and its peak"),
        ("points=4:14GB,8:12GB", "must be memory that grows with the micro-batch"),
        ("points=4:1GB,8:14GB", "must not give a negative size for the model itself"),
        ("points=" + ",".join(f"{b}:{b}GB" for b in range(1, 10)), "must be at most 8 points"),
        ("from=points&point1_batch=4&point1_peak=12", "are needed at two"),
    ],
)
def test_points_that_cannot_be_used(client: TestClient, query: str, said: str) -> None:
    response = client.get(f"/en/plan?{query}")
    assert response.status_code == 422
    assert said in complaint(parse(response.text), "points")


def test_points_say_nothing_about_ways_of_training(client: TestClient) -> None:
    root = parse(client.get(f"/en/plan?{POINTS}").text)
    for name in ("precision", "optimizer", "checkpointing"):
        assert "hidden" in root.one("div", data_field=name).attributes
    units = [option.attributes["value"] for option in root.one("select", name="batch_unit").all("option")]
    assert units == ["samples"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            ["points", "from", "point1_batch", "point1_peak", "point2_batch", "point2_peak", "seq_len"]
        ),
        st.one_of(
            st.text(max_size=14),
            st.sampled_from(
                ["4:12GB,8:14GB", "1:1B,2:1B", "points", "own", "4", "12 GB", "1e9", "9" * 60, "1e-30"]
            ),
        ),
    )
)
def test_no_points_are_too_odd(client: TestClient, fields: dict[str, str]) -> None:
    for path in ("/en/plan", "/de/plan.json"):
        response = client.get(path, params=fields)
        assert response.status_code in (200, 422), response.text


def test_the_lines_that_hold_most_are_told_without_folders_of_other_machines(client: TestClient) -> None:
    asked = {"model": "llama-3.1-8b", **ASKED, "seq_len": "4096", "checkpointing": "none"}
    root = parse(client.get("/en/plan", params=asked).text)
    rows = root.one("details", data_key="ledger").all("tr")[1:]
    assert len(rows) >= 3
    assert "down_proj" in rows[0].one("code").text
    assert rows[0].one("small").text.startswith("transformers/models/llama/")
    assert all(not row.one("small").text.startswith("/") for row in rows)
