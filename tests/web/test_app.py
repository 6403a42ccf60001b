"""The app around the calculators: languages, the shelf, embeds, headers, caching, limits, a second calculator."""

import gzip
import json
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from html import unescape
from importlib import resources
from io import BytesIO
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from fontTools.ttLib import TTFont
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from batchfit import calculators
from batchfit.cli.calc import calculator_command
from batchfit.languages import languages
from batchfit.web.app import create_app
from batchfit.web.site import Site
from batchfit.web.state import LONGEST_QUERY
from tests.web.html import Page, parse
from tests.web.tiny import CALCULATOR as TINY

PATH = "gradient-accumulation"


# ---- Languages and the shelf --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "lang"),
    [
        ("", "en"),
        ("de-CH,de;q=0.9,en;q=0.8", "de"),
        ("en;q=0.5,de;q=0.9", "de"),
        ("zh-TW", "zh-Hant"),
        ("zh-Hant-HK,en", "zh-Hant"),
        ("tlh,xx;q=0.9", "en"),
        ("de;q=0,en;q=0.1", "en"),
        ("\x00;;;q=,,;q=9", "en"),
    ],
)
def test_the_root_leads_to_the_reader_s_language(client: TestClient, accepted: str, lang: str) -> None:
    response = client.get("/", headers={"Accept-Language": accepted})
    assert (response.status_code, response.headers["location"]) == (302, f"/{lang}/")
    assert "Accept-Language" in response.headers["vary"]


def test_a_language_once_chosen_wins(client: TestClient) -> None:
    for cookie, lang in (("de", "de"), ("xx", "zh-Hant"), ('"><script>', "zh-Hant")):
        response = client.get("/", headers={"Accept-Language": "zh-TW", "Cookie": f"lang={cookie}"})
        assert response.headers["location"] == f"/{lang}/"


@pytest.mark.parametrize("lang", languages())
def test_the_shelf_links_to_every_calculator(client: TestClient, lang: str) -> None:
    root = parse(client.get(f"/{lang}/").text)
    addresses = {link.attributes["href"].partition("?")[0] for link in root.one("main").all("a")}
    pages = {address for address in addresses if address.startswith(f"/{lang}/")}
    assert pages - {f"/{lang}/plan"} == {f"/{lang}/{slug}" for slug in calculators.slugs()}
    assert client.get(f"/{lang}").headers["location"] == f"/{lang}/"
    data = client.get(f"/{lang}/index.json").json()
    assert [each["calculator"] for each in data["calculators"]] == list(calculators.slugs())


@pytest.mark.parametrize(
    "path",
    [
        "/xx/",
        f"/xx/{PATH}",
        "/en/nothing",
        "/en/nothing.json",
        "/embed/en/nothing",
        "/a/b/c/d",
        "/static/x.js",
    ],
)
def test_there_is_no_such_page(client: TestClient, path: str) -> None:
    response = client.get(path, headers={"Accept-Language": "de"})
    assert response.status_code == 404
    if path.endswith(".json"):
        assert response.json()["errors"]
    else:
        root = parse(response.text)
        spoken = "en" if "/en/" in path else "de"
        assert root.one("html").attributes["lang"] == spoken
        assert (
            root.one("h1").text == {"en": "There is no such page", "de": "Diese Seite gibt es nicht"}[spoken]
        )
        assert f"/{spoken}/{PATH}" in {link.attributes.get("href") for link in root.all("a")}


def test_pages_are_only_read(client: TestClient) -> None:
    assert client.post(f"/en/{PATH}").status_code == 405
    assert client.head(f"/en/{PATH}").status_code == 200


def test_the_site_map_lists_every_page_with_its_counterparts(client: TestClient) -> None:
    xml = client.get("/sitemap.xml").text
    pages = re.findall(r"<loc>http://batchfit.test([^<]*)</loc>", xml)
    assert sorted(pages) == sorted(
        f"/{lang}/{slug}" for lang in languages() for slug in ("", "plan", "accuracy", *calculators.slugs())
    )
    assert all(client.get(page).status_code == 200 for page in pages)
    assert xml.count("hreflang=") == len(pages) * (len(languages()) + 1)
    assert xml.count('hreflang="x-default"') == len(pages)
    assert "http://batchfit.test/sitemap.xml" in client.get("/robots.txt").text


def test_the_health_check(client: TestClient) -> None:
    assert client.get("/healthz").text == "ok\n"


def test_what_needs_no_state_is_made_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app([calculators.load(PATH)], origin="http://batchfit.test", ahead=True)
    with TestClient(app, base_url="http://batchfit.test") as client:
        deadline = time.monotonic() + 60
        while (told := client.get("/healthz.json").json()["pages"]) != "ready":
            assert told == "being made"
            assert time.monotonic() < deadline
            time.sleep(0.02)

        def too_late(*asked: object, **named: object) -> None:
            raise AssertionError("made when asked for")

        monkeypatch.setattr(Site, "render", too_late)
        monkeypatch.setattr(gzip, "compress", too_late)
        for lang in languages():
            for path in ("", "plan", "accuracy", "plan/activation", PATH, f"{PATH}.md"):
                assert client.get(f"/{lang}/{path}").status_code == 200
            for slug in ("plan", PATH):
                assert client.get(f"/embed/{lang}/{slug}").status_code == 200
        with pytest.raises(AssertionError, match="made when asked for"):
            client.get("/en/plan?gpus=4")


def test_the_api_s_description_is_true(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    path, operations = next(each for each in description["paths"].items() if PATH in each[0])
    parameters = {each["name"]: each for each in operations["get"]["parameters"]}
    assert set(parameters) == {"lang", *(field.name for field in calculators.load(PATH).all_fields)}
    defaults = {
        name: each["schema"]["default"] for name, each in parameters.items() if "default" in each["schema"]
    }
    answer = client.get(path.format(lang="en"), params=defaults).json()
    outputs = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"][
        "outputs"
    ]
    assert set(outputs["required"]) == set(answer["outputs"])


# ---- Embeds -------------------------------------------------------------------------------------------------


def test_an_embed_is_the_calculator_with_a_link_home(client: TestClient) -> None:
    response = client.get(f"/embed/de/{PATH}?micro_batch=8&theme=dark")
    page = Page.of(response.text)
    assert page.result("effective_batch_size") == "64 Samples"
    assert page.root.one("html").attributes["data-theme"] == "dark"
    assert page.submitted().startswith("theme=dark&")
    link = page.root.one("p", class_="by").one("a")
    assert (link.text, link.attributes["href"]) == (
        "von batchfit",
        f"http://batchfit.test/de/{PATH}?micro_batch=8",
    )
    assert not page.root.all("section", class_="article")


def test_an_unknown_theme_is_refused(client: TestClient) -> None:
    response = client.get(f"/embed/en/{PATH}?theme=pink")
    assert response.status_code == 400
    assert "theme: must be one of auto, light, dark; you gave pink" in parse(response.text).text


# ---- Security -----------------------------------------------------------------------------------------------

EVERYWHERE = [
    "/",
    "/en/",
    f"/en/{PATH}",
    f"/en/{PATH}.json",
    f"/embed/en/{PATH}",
    "/en/nothing",
    "/static/nothing",
    "/embed.js",
    "/healthz",
    f"/en/{PATH}?micro_batch=x",
    f"/en/{PATH}?{'x' * 3000}",
]


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_response_carries_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert policy["frame-ancestors"] == ("*" if path.startswith("/embed/") else "'none'")
    assert ("x-frame-options" in headers) == (not path.startswith("/embed/"))
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "strict-origin-when-cross-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    shared = path.startswith(("/embed", "/static/"))
    assert headers["cross-origin-resource-policy"] == ("cross-origin" if shared else "same-origin")
    assert "geolocation=()" in headers["permissions-policy"]


@pytest.mark.parametrize(
    "path", ["/en/", f"/en/{PATH}", f"/embed/de/{PATH}", "/en/nothing", f"/de/{PATH}?target_batch=9"]
)
def test_no_page_has_inline_script_or_style(client: TestClient, path: str) -> None:
    root = parse(client.get(path).text)
    assert not root.all("style")
    for element in root.all():
        assert not [name for name in element.attributes if name == "style" or name.startswith("on")], (
            element.tag
        )
    for script in root.all("script"):
        inline = "src" not in script.attributes
        assert not inline or script.attributes["type"] in ("application/json", "application/ld+json")


def test_a_query_beyond_the_limit_is_turned_away(client: TestClient) -> None:
    assert client.get(f"/de/{PATH}?{'x' * LONGEST_QUERY}").status_code == 200
    response = client.get(f"/de/{PATH}?{'x' * (LONGEST_QUERY + 1)}")
    assert response.status_code == 414
    assert parse(response.text).one("h1").text == "Diese Adresse ist zu lang"
    assert client.get(f"/de/{PATH}.json?{'x' * 5000}").json()["errors"]


@pytest.mark.parametrize("host", ["", "a b", 'x"><script>', "exa_mple!", "a" * 300, "host:123456"])
def test_a_host_that_is_none_is_turned_away(client: TestClient, host: str) -> None:
    response = client.get(f"/en/{PATH}", headers={"Host": host})
    assert response.status_code == 400
    assert "<script>" not in response.text.replace("<script type", "")


def divides(micro_batch: int, accumulation_steps: int, replicas: int) -> int:
    """Has no value for a micro-batch of 13."""
    return accumulation_steps * replicas // (micro_batch - 13)


def test_a_fault_of_ours_is_a_page_too() -> None:
    faulty = replace(TINY, outputs=(replace(TINY.outputs[0], formula=divides),))
    client = TestClient(create_app([faulty]), raise_server_exceptions=False)
    response = client.get(f"/de/{TINY.slug}?micro_batch=13")
    assert response.status_code == 500
    assert parse(response.text).one("h1").text == "Bei uns ist etwas schiefgegangen"
    assert "content-security-policy" in response.headers
    assert client.get(f"/de/{TINY.slug}.json?micro_batch=13").json()["errors"]


# ---- Caching and size ---------------------------------------------------------------------------------------


def test_a_page_is_asked_for_anew_but_sent_only_when_changed(client: TestClient) -> None:
    first = client.get(f"/en/{PATH}")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get(f"/en/{PATH}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get(f"/en/{PATH}?micro_batch=5", headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


def test_compression_is_offered_and_may_be_refused(client: TestClient) -> None:
    for accepted, encoding in (
        ("gzip, br", "gzip"),
        ("identity", None),
        ("gzip;q=0, *", None),
        ("*", "gzip"),
    ):
        response = client.get(f"/en/{PATH}", headers={"Accept-Encoding": accepted})
        assert response.headers.get("content-encoding") == encoding
        assert "Accept-Encoding" in response.headers["vary"]


def every_address(client: TestClient, html: str) -> set[str]:
    """The static files that a page loads, and those that its style sheets load."""
    found = set(re.findall(r'"(/static/[^"]+)"', html))
    sheets = [client.get(address).text for address in found if address.endswith(".css")]
    return found | {f"/static/{name}" for sheet in sheets for name in re.findall(r'url\("?([^)"]+)', sheet)}


@pytest.fixture(scope="module")
def carried(client: TestClient) -> Callable[[str], int]:
    """How many bytes of a static file are sent, compressed where it can be."""

    @cache
    def size(address: str) -> int:
        response = client.get(address)
        assert response.status_code == 200, address
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        return int(response.headers["content-length"])

    return size


@pytest.mark.parametrize("slug", ["", "plan", *calculators.slugs()])
@pytest.mark.parametrize("lang", languages())
def test_a_page_with_everything_stays_under_60_kb(
    client: TestClient, carried: Callable[[str], int], lang: str, slug: str
) -> None:
    html = client.get(f"/{lang}/{slug}").text
    addresses = every_address(client, html)
    assert any(address.endswith(".woff2") for address in addresses)
    assert len(gzip.compress(html.encode(), 9)) + sum(map(carried, addresses)) < 60_000


#: What formulas say in words, and exponents: in the page's other font, whatever that is, as all of its text.
NOT_SET = re.compile(r"<mtext>.*?</mtext>|[⁰¹²³⁴-⁹⁻]")


@pytest.mark.parametrize("lang", languages())
def test_the_font_has_every_character_of_the_formulas(client: TestClient, lang: str) -> None:
    letters = font_letters()
    for slug in ("plan", *calculators.slugs()):
        html = client.get(f"/{lang}/{slug}").text
        formulas = " ".join(re.findall(r"<math.*?</math>", html, re.DOTALL))
        shown = set(unescape(re.sub(r"<mi>.</mi>|<[^>]+>", "", NOT_SET.sub("", formulas))))
        slanted = {SLANTED.get(letter, letter) for letter in re.findall(r"<mi>(.)</mi>", formulas)}
        assert (shown | slanted) - {"\n"} <= letters, slug
    assert not set("Ж𝜓") & letters


#: The letters that browsers put for a one-letter <mi>, which are named after it; the italic h is Planck's constant.
SLANTED = {
    unicodedata.normalize("NFKC", chr(code)): chr(code)
    for code in [*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D715)]
    if unicodedata.name(chr(code), "")
} | {"h": "\u210e"}


def font_letters() -> set[str]:
    """The characters that the formulas' font has."""
    font = TTFont(BytesIO(resources.files("batchfit.web").joinpath("static/math.woff2").read_bytes()))
    return {chr(code) for code in font.getBestCmap()}


def test_every_module_a_page_imports_is_preloaded(client: TestClient) -> None:
    root = parse(client.get(f"/en/{PATH}").text)
    preloaded = {link.attributes["href"] for link in root.all("link", rel="modulepreload")}
    known = preloaded | {script.attributes["src"] for script in root.all("script", src="")}
    seen: set[str] = set()
    for address in known:
        for imported in re.findall(r'(?:from|import)\s*"\./([^"]+)"', client.get(address).text):
            assert f"/static/{imported}" in known
            seen.add(imported)
    assert len(seen) > 1


def test_one_address_for_everyone_who_is_told_it() -> None:
    client = TestClient(create_app(public_url="https://fit.example/"), base_url="http://10.0.0.1:8000")
    root = parse(client.get(f"/en/{PATH}").text)
    assert root.one("link", rel="canonical").attributes["href"] == f"https://fit.example/en/{PATH}"
    assert root.one("input", id="link").attributes["value"].startswith("https://fit.example/en/")


# ---- Whatever is sent ---------------------------------------------------------------------------------------

ANYTHING = st.text(max_size=60) | st.sampled_from(
    [PATH, "en", "de", "embed", "static", ".json", "..", "%00", "\ud800"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(ANYTHING, max_size=4), st.lists(st.tuples(ANYTHING, ANYTHING), max_size=5), st.text(max_size=80)
)
def test_nothing_sent_is_a_fault_of_ours(
    client: TestClient, path: list[str], query: list[tuple[str, str]], accepted: str
) -> None:
    address = "http://batchfit.test/" + "/".join(quote(part, errors="replace") for part in path)
    pairs = "&".join(
        f"{quote(name, errors='replace')}={quote(value, errors='replace')}" for name, value in query
    )
    headers = {
        b"Accept-Language": accepted.encode("latin-1", "replace"),
        b"If-None-Match": accepted.encode("latin-1", "replace"),
    }
    response = client.get(f"{address}?{pairs}", headers=headers)
    assert response.status_code < 500
    calculator = client.get(f"/de/{PATH}?{pairs}&micro_batch={quote(accepted)}", headers=headers)
    assert calculator.status_code < 500


# ---- A second calculator ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two() -> Iterator[TestClient]:
    with TestClient(create_app([calculators.load(PATH), TINY]), base_url="http://batchfit.test") as client:
        yield client


def test_a_new_calculator_has_a_page_a_twin_an_embed_and_a_command(two: TestClient) -> None:
    for path in (f"/en/{TINY.slug}", f"/de/{TINY.slug}", f"/embed/en/{TINY.slug}"):
        page = Page.of(two.get(f"{path}?replicas=7").text)
        assert page.result("effective_batch_size").startswith("42 ")
        assert not page.root.all("figure")
        assert not page.root.all(data_backwards="")
    twin = two.get(f"/en/{TINY.slug}.json?replicas=7").json()
    command = CliRunner().invoke(calculator_command(TINY), ["--replicas", "7", "--json"])
    assert twin == json.loads(command.stdout)
    assert twin["outputs"] == {"effective_batch_size": 42}


def larger(micro_batch: int, accumulation_steps: int, replicas: int) -> int:
    """A formula that tells cases apart."""
    return micro_batch * replicas if accumulation_steps < 3 else accumulation_steps


def test_a_worked_example_of_one_case_says_for_which_state_it_holds(client: TestClient) -> None:
    cases = replace(TINY, outputs=(replace(TINY.outputs[0], formula=larger),))
    root = parse(TestClient(create_app([cases])).get(f"/en/{TINY.slug}?replicas=4").text)
    assert root.one(data_cases="").attributes["data-cases"] == "replicas=4"
    assert not parse(client.get(f"/en/{PATH}").text).all(data_cases="")


def test_a_new_calculator_is_on_the_shelf_and_in_every_list(two: TestClient) -> None:
    assert f"/de/{TINY.slug}" in two.get("/de/").text
    assert f"/de/{TINY.slug}" in two.get(f"/de/{PATH}").text
    assert f"/de/{TINY.slug}" in two.get("/sitemap.xml").text
    assert f"/{{lang}}/{TINY.slug}.json" in two.get("/openapi.json").json()["paths"]
    page = Page.of(two.get(f"/en/{TINY.slug}").text)
    assert page.data["scripts"] != Page.of(two.get(f"/en/{PATH}").text).data["scripts"]
    assert "effective_batch_size" in two.get(page.data["scripts"]["formulas"]).text
