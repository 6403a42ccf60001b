"""Static files, compression and the choice of a language, each by itself."""

import gzip
import re

import pytest
from starlette.datastructures import Headers

from batchfit.web.assets import Assets, packaged
from batchfit.web.modules import joined
from batchfit.web.negotiation import preferred
from batchfit.web.stored import Stored, accepts_gzip

TEN = ["en", "de", "es", "fr", "pt-BR", "ar", "ja", "ko", "zh-Hans", "zh-Hant"]


def test_a_change_renames_all_that_depend_on_it() -> None:
    files = {
        "a.js": b'import { b } from "./b.js";\nb();\n',
        "b.js": b"export const b = () => 1;\n",
        "c.js": b"export const c = 1;\n",
    }
    before = Assets(files)
    after = Assets(files | {"b.js": b"export const b = () => 2;\n"})
    assert before.url("b.js") != after.url("b.js")
    assert before.url("a.js") != after.url("a.js")
    assert before.url("c.js") == after.url("c.js")
    body = before.get(before.url("a.js").removeprefix("/static/"))
    assert body is not None
    assert before.url("b.js").removeprefix("/static/").encode() in body.body
    assert before.with_imports("a.js") == [before.url("a.js"), before.url("b.js")]


def test_what_is_loaded_later_has_its_hashed_name_but_is_not_loaded_at_once() -> None:
    assets = Assets({"a.js": b'onclick = () => import("./b.js");', "b.js": b"export const b = 1;"})
    body = assets.get(assets.url("a.js").removeprefix("/static/"))
    assert body is not None
    assert assets.url("b.js").replace("/static/", "./").encode() in body.body
    assert assets.with_imports("a.js") == [assets.url("a.js")]


def test_files_that_mention_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match=r"circle: a\.js -> b\.js -> a\.js"):
        Assets({"a.js": b'import "./b.js";', "b.js": b'import "./a.js";'})


PARTS = {
    "a.js": b"export const a = 1;\n",
    "b.js": b'import { c } from "./c.js";\nimport { a } from "./a.js";\nexport const b = () => a + c;\n',
    "page.js": b'import { a } from "./a.js";\nimport { b } from "./b.js";\nb(a);\n',
    "formulas.js": b'import * as py from "./a.js";\nexport const f = py.a;\n',
    "math.woff2": b"\xff",
}


def test_modules_are_joined_in_one_file() -> None:
    assert joined(PARTS, "all.js", ("a.js", "b.js")) == {
        "all.js": b'export const a = 1;\n\nimport { c } from "./c.js";\nexport const b = () => a + c;\n',
        "page.js": b'import { a } from "./all.js";\nimport { b } from "./all.js";\nb(a);\n',
        "formulas.js": b'import * as py from "./all.js";\nexport const f = py.a;\n',
        "math.woff2": b"\xff",
    }


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"b.js": b"const a = 2;\n"}, r"a\.js and b\.js both declare a"),
        ({"a.js": b'import { b } from "./b.js";\n'}, r"a\.js imports b\.js, which does not stand before it"),
        (
            {"b.js": b'import { a as b } from "./a.js";\n'},
            r"b\.js cannot be joined with others: import { a as",
        ),
        ({"b.js": b'import * as a from "./a.js";\n'}, r"b\.js cannot be joined with others: import \*"),
        ({"b.js": b"export default 3;\n"}, r"b\.js cannot be joined with others: export default"),
    ],
)
def test_modules_that_mean_something_else_in_one_file_are_refused(
    parts: dict[str, bytes], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        joined(PARTS | parts, "all.js", ("a.js", "b.js"))


def test_comments_are_for_those_who_read_the_source() -> None:
    source = b'// why\nconst a = "// not a comment"; // nor this\n/** what\n * it does */\n  a;\n'
    assets = Assets({"a.js": source})
    stored = assets.get(assets.url("a.js").removeprefix("/static/"))
    assert stored is not None
    assert stored.body == b'const a="// not a comment";a;'


def test_every_packaged_file_is_served() -> None:
    assets = Assets(packaged())
    for name in packaged():
        assert assets.get(assets.url(name).removeprefix("/static/")) is not None


def test_a_stored_response_is_compressed_once_and_the_same_everywhere() -> None:
    body = b"<p>" + b"batch " * 500
    stored, again = Stored(body, "text/html"), Stored(body, "text/html")
    response = stored.respond(Headers({"accept-encoding": "gzip"}))
    assert gzip.decompress(bytes(response.body)) == body
    assert bytes(again.respond(Headers({"accept-encoding": "gzip"})).body) == bytes(response.body)
    assert bytes(stored.respond(Headers({})).body) == body


def test_an_error_is_never_answered_with_not_modified() -> None:
    stored = Stored(b"no", "text/plain", status=404)
    tag = stored.respond(Headers({})).headers["etag"]
    assert stored.respond(Headers({"if-none-match": tag})).status_code == 404


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("*;q=0", False),
        ("*", True),
        ("br", False),
        ("", False),
    ],
)
def test_who_accepts_gzip(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("zh", "zh-Hans"),
        ("zh-CN", "zh-Hans"),
        ("zh-SG", "zh-Hans"),
        ("zh-TW", "zh-Hant"),
        ("zh-HK", "zh-Hant"),
        ("zh-Hant-CN", "zh-Hant"),
        ("pt", "pt-BR"),
        ("pt-PT", "pt-BR"),
        ("es-419", "es"),
        ("ar-EG", "ar"),
        ("nb, nn;q=0.9, fr;q=0.1", "fr"),
        ("de-AT", "de"),
        ("*", "en"),
    ],
)
def test_the_language_that_suits_best(asked: str, given: str) -> None:
    assert preferred(asked, TEN) == given


def test_a_script_that_we_lack_gives_way_to_the_other() -> None:
    assert preferred("zh-CN,de;q=0.5", ["en", "de", "zh-Hant"]) == "zh-Hant"


def test_the_style_sheet_is_ready_for_right_to_left() -> None:
    style = re.sub(r"/\*.*?\*/", "", packaged()["style.css"].decode(), flags=re.S)
    physical = (
        r"(?:margin|padding|border)-(?:left|right)|[^-](?:left|right):|(?:text-align|float): *(?:left|right)"
    )
    assert re.findall(physical, style) == []
    # "padding: a b c d" with b unlike d is physical too.
    for sides in re.findall(r"(?:margin|padding|inset): *([^;(]+);", style):
        parts = sides.split()
        assert len(parts) < 4 or parts[1] == parts[3], sides
