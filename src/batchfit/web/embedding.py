"""How a page looks inside other people's pages: the options that an embed's address carries beside its values.

theme    auto, light or dark
accent   the colour of the answer, one of the palette's names
show     the inputs that are shown, by name: "micro_batch,replicas", or "none"; the others are held at their preset
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import escape

from batchfit.errors import BadInput
from batchfit.palette import ACCENTS
from batchfit.web.state import REPEATED

THEMES = ("auto", "light", "dark")

#: The options' names, which no field of a calculator may have.
NAMES = ("theme", "accent", "show")

#: What `show` says where every input is held.
NONE = "none"

_NOT_ONE_OF = "must be one of {allowed}; you gave {given}"

#: What people paste into their pages.
CODE = (
    '<iframe src="{url}" title="{title}" width="100%" height="{height}" style="border:0" loading="lazy"></iframe>\n'
    '<script src="{script}" async></script>'
)


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """The options of one embed. `show` is None where every input is shown."""

    theme: str = THEMES[0]
    accent: str = ""
    show: tuple[str, ...] | None = None

    def pairs(self) -> dict[str, str]:
        """The options as an address has them; what is as usual is left out."""
        show = "" if self.show is None else ",".join(self.show) or NONE
        found = {"theme": "" if self.theme == THEMES[0] else self.theme, "accent": self.accent, "show": show}
        return {name: value for name, value in found.items() if value}

    def held(self, html: str, together: Iterable[frozenset[str]] = ()) -> str:
        """A page with the fields marked that it does not show; it marks each itself by data-field. Of fields that
        belong together, one shows all. Raises BadInput where an input is to be shown that the page lacks."""
        if self.show is None:
            return html
        fields = list(dict.fromkeys(re.findall(r'data-field="([^"]+)"', html)))
        for name in self.show:
            if name not in fields:
                raise BadInput("show", _NOT_ONE_OF, allowed=", ".join([*fields, NONE]), given=name)
        shown = set(self.show).union(*(group for group in together if group & set(self.show)))

        def marked(found: re.Match[str]) -> str:
            return found[0] if found[1] in shown else f"{found[0]} data-held"

        return re.sub(r'data-field="([^"]+)"', marked, html)


def read_options(query: Iterable[tuple[str, str]]) -> EmbedOptions:
    """The options in an address. Raises BadInput on a value that is not allowed, and on an option given twice."""
    given: dict[str, str] = {}
    for name, value in query:
        if name not in NAMES:
            continue
        if name in given:
            raise BadInput(name, REPEATED)
        given[name] = value.strip()
    show = given.get("show", "")
    return EmbedOptions(
        theme=_one_of("theme", given.get("theme") or THEMES[0], THEMES),
        accent=_one_of("accent", given["accent"], tuple(ACCENTS)) if given.get("accent") else "",
        show=() if show == NONE else tuple(filter(None, map(str.strip, show.split(",")))) or None,
    )


def _one_of(name: str, given: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise BadInput(name, _NOT_ONE_OF, allowed=", ".join(allowed), given=given)
    return given


def code(url: str, title: str, height: int, script: str) -> str:
    """The HTML that puts an embed into a page, with the script that fits it to its content."""
    return CODE.format(url=escape(url), title=escape(title), height=height, script=escape(script))
