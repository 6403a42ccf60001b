"""oEmbed: what systems that embed a page by its link ask for. https://oembed.com, version 1.0.

The link is only read: its page is found by its path, and never fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

from starlette.exceptions import HTTPException

from batchfit.errors import BadInput
from batchfit.web.api import as_json
from batchfit.web.shared import PLAN, Shared
from batchfit.web.site import Site
from batchfit.web.stored import Stored

FORMATS = ("json", "xml")

#: The size of a frame, in pixels, where no less is asked for.
WIDTH = 760

#: Seconds for which whoever asks may keep the answer.
CACHE_AGE = 86_400

_PAGE = re.compile(r"/(?:(?:embed/)?(?P<lang>[^/]+)/(?P<slug>[^/.]+)|(?P<home>[^/]+)/)")


class Link:
    """A link to one of our pages: its language, its name, what its query says."""

    def __init__(self, site: Site, url: str, origin: str) -> None:
        """Raises HTTPException 404 where it leads to no page of ours that can be embedded."""
        try:
            parts, ours = urlsplit(url), urlsplit(origin)
        except ValueError:
            raise HTTPException(404) from None
        found = _PAGE.fullmatch(parts.path)
        # Behind a server that speaks https for us, links have another scheme than our own.
        if parts.scheme not in ("http", "https") or parts.netloc.lower() != ours.netloc.lower() or not found:
            raise HTTPException(404)
        # The home page has the planner.
        self.lang, self.slug = found["home"] or found["lang"], found["slug"] or PLAN
        if self.lang not in site.languages:
            raise HTTPException(404)
        self.query = parse_qsl(parts.query, keep_blank_values=True)


def limit(name: str, given: str | None, usual: int) -> int:
    """A greatest width or height in pixels; `usual` where it is larger or none is given. Raises BadInput."""
    if given is None:
        return usual
    if not re.fullmatch(r"[1-9][0-9]{0,5}", given):
        raise BadInput(name, "must be a whole number of 1 or more; you gave {given}", given=given)
    return min(int(given), usual)


def response(shared: Shared, asked: Mapping[str, str]) -> Stored:
    """The answer to what is asked of a link: `maxwidth` and `maxheight` in pixels, `format` json or xml. Raises
    BadInput, and HTTPException 501 for another format."""
    wanted = asked.get("format") or FORMATS[0]
    if wanted not in FORMATS:
        raise HTTPException(501)
    width = limit("maxwidth", asked.get("maxwidth"), WIDTH)
    height = limit("maxheight", asked.get("maxheight"), shared.height(width))
    answer = _answer(shared, width, height)
    side, high = shared.card_size
    if (
        shared.card_url
        and limit("maxwidth", asked.get("maxwidth"), side) == side
        and limit("maxheight", asked.get("maxheight"), high) == high
    ):
        answer |= {"thumbnail_url": shared.card_url, "thumbnail_width": side, "thumbnail_height": high}
    return as_json(answer) if wanted == "json" else _as_xml(answer)


def _answer(shared: Shared, width: int, height: int) -> dict[str, Any]:
    return {
        "version": "1.0",
        "type": "rich",
        "title": shared.text,
        "provider_name": "batchfit",
        "provider_url": f"{shared.origin}/",
        "cache_age": CACHE_AGE,
        "html": (
            f'<iframe src="{escape(shared.embed_url)}" title="{escape(shared.title, {chr(34): "&quot;"})}" '
            f'width="{width}" height="{height}" style="border:0;max-width:100%" loading="lazy"></iframe>'
        ),
        "width": width,
        "height": height,
    }


def _as_xml(answer: Mapping[str, Any]) -> Stored:
    elements = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in answer.items())
    xml = f'<?xml version="1.0" encoding="utf-8" standalone="yes"?>\n<oembed>{elements}</oembed>\n'
    return Stored(
        xml.encode(), "text/xml", headers={"Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}
    )
