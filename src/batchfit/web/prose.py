"""A calculator's prose: content/LANGUAGE/SLUG.md, cut into its sections and turned into HTML.

Level-1 headings are the sections' names, the same in every language; the page has their titles from the catalogue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markupsafe import Markup

from batchfit.bidi import with_isolates

# Raw HTML stays text: prose has no need of it, and the pages' security policy no room for it.
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "typographer": False})


def _isolate(state: StateCore) -> None:
    """Holds together what runs from left to right in the text of a right-to-left language; code is code."""
    for block in state.tokens:
        for token in block.children or ():
            if token.type == "text":
                token.content = with_isolates(token.content, state.env["lang"])


_MARKDOWN.core.ruler.push("isolate", _isolate)


@cache
def _html(markdown: str, lang: str) -> Markup:
    return Markup(_MARKDOWN.render(markdown, {"lang": lang}))


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands under a level-2 heading: a question with its answer, or a page's slug with a sentence.

    The title is the heading as a page shows it.
    """

    heading: str
    title: str
    html: Markup


@dataclass(frozen=True, slots=True)
class Prose:
    """The sections of one file: as HTML, or by their level-2 headings."""

    lang: str
    sections: dict[str, str]

    def html(self, section: str) -> Markup:
        """A section as HTML, its headings one level down; empty where the file lacks it."""
        return _html(self.markdown(section), self.lang)

    def markdown(self, section: str) -> str:
        """A section as it is written, its headings one level down."""
        return re.sub(r"^##", "###", self.sections.get(section, ""), flags=re.M)

    def entries(self, section: str) -> list[Entry]:
        """A section's parts, each under its level-2 heading."""
        parts = re.split(r"^## +(.+?) *$", self.sections.get(section, ""), flags=re.M)
        return [
            Entry(heading, with_isolates(heading, self.lang), _html(text, self.lang))
            for heading, text in zip(parts[1::2], parts[2::2], strict=True)
        ]


def read_prose(slug: str, lang: str) -> Prose:
    """The prose on a calculator in a language; without sections where there is none."""
    file = resources.files("batchfit").joinpath("content", lang, f"{slug}.md")
    if not file.is_file():
        return Prose(lang, {})
    parts = re.split(r"^# +([a-z-]+) *$", file.read_text(encoding="utf-8"), flags=re.M)
    sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return Prose(lang, sections)
