"""Every colour of the pages comes from the palette."""

import re

from batchfit.charts import STYLE
from batchfit.palette import ACCENTS, COLOURS, FILLS, FREE_IN_THE_DARK, INTERFACE
from batchfit.web.assets import packaged
from batchfit.web.shelf import Shelf
from batchfit.web.site import Site

KNOWN = {
    *FILLS.values(),
    FREE_IN_THE_DARK,
    *(colour for pair in [*INTERFACE.values(), *ACCENTS.values()] for colour in pair),
}
HEX = re.compile(r"#[0-9a-f]{3,8}\b", flags=re.IGNORECASE)


def test_style_sheets_have_no_colours_of_their_own() -> None:
    sheets = {name: body.decode() for name, body in packaged().items() if name.endswith(".css")}
    assert sheets
    own = {
        name: set(HEX.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))) for name, text in sheets.items()
    }
    # Labels in the parts of the memory bar have the same colour on light and on dark pages, as the parts do.
    on_parts = {INTERFACE["paper"][0], INTERFACE["ink"][0]}
    assert {name: colours - on_parts for name, colours in own.items() if colours - on_parts} == {}


def test_what_is_served_begins_with_the_palette() -> None:
    assets = Site(Shelf()).assets
    for name in ("style.css", "plan.css", "embed.css"):
        stored = assets.get(assets.url(name).removeprefix("/static/"))
        assert stored is not None
        used = set(re.findall(r"var\(--([\w-]+)\)", stored.body.decode()))
        assert used <= {*INTERFACE, *COLOURS, "space", "start", "before", "room"}
    style = assets.get(assets.url("style.css").removeprefix("/static/"))
    assert style is not None
    for part, colour in COLOURS.items():
        assert f"--{part}:" in style.body.decode()
        assert colour in style.body.decode()


def test_pictures_and_the_icon_have_the_palette_s_colours() -> None:
    assert set(HEX.findall(STYLE)) <= KNOWN
    assert set(HEX.findall(packaged()["icon.svg"].decode())) <= {INTERFACE["answer"][0], "#fff"}
