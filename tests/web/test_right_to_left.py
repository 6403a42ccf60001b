"""A page in a right-to-left language: mirrored, with sizes, formulas and names running from left to right in it."""

from starlette.testclient import TestClient

from tests.web.html import Page, parse

PATH = "/ar/gradient-accumulation"


def test_page_and_embed_say_their_direction(client: TestClient) -> None:
    directions = {
        path: parse(client.get(path).text).one("html").attributes["dir"]
        for path in ("/en/gradient-accumulation", PATH, f"/embed{PATH}", "/ar/")
    }
    assert list(directions.values()) == ["ltr", "rtl", "rtl", "rtl"], directions


def test_sizes_are_held_together_in_every_sentence(client: TestClient) -> None:
    page = Page.of(client.get(f"{PATH}?target_batch=250&replicas=8").text)
    size = "\u20662 GB\u2069"
    assert page.result("activation_memory_bytes") == size
    assert (
        page.root.one(data_result="activation_memory_bytes").one(data_also="").text
        == "= \u20661.863 GiB\u2069"
    )
    assert size in page.root.all("p", data_caption="")[0].text
    assert {text.text for text in page.root.all("text", class_="peak-label")} == {f"الذروة: {size}"}
    assert [row.all("td")[2].text for row in page.root.one(data_choices="").all("tr")] == [
        "\u200e-26",
        "\u200e+6",
    ]


def test_formulas_and_names_in_the_prose_are_held_together_but_code_is_not_touched(
    client: TestClient,
) -> None:
    root = parse(client.get(PATH).text)
    article = root.one("section", class_="article")
    assert "\u20664 × 0.5 GB = 2 GB\u2069" in article.text
    assert "\u2066BatchNorm\u2069" in article.text
    assert "no_sync" in [code.text for code in root.all("code")]
    assert {math.attributes["dir"] for math in root.all("math")} == {"ltr"}


def test_what_was_typed_does_not_mix_with_the_sentence_that_repeats_it(client: TestClient) -> None:
    page = Page.of(client.get(f"{PATH}?activation_per_sample=-1").text)
    assert page.error("activation_per_sample").endswith(
        "من 0 إلى \u20661,000,000 GB\u2069؛ القيمة المدخلة: \u2068-1\u2069"
    )
