"""A calculator's prose: content/LANGUAGE/SLUG.md, cut into its sections and turned into HTML.

Level-1 headings are the sections' names, the same in every language; the page has their titles from the catalogue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from markdown_it import MarkdownIt
from markupsafe import Markup

# Raw HTML stays text: prose has no need of it, and the pages' security policy no room for it.
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "typographer": False})


@cache
def _html(markdown: str) -> Markup:
    return Markup(_MARKDOWN.render(markdown))


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands under a level-2 heading: a question with its answer, or a page's slug with a sentence."""

    heading: str
    html: Markup


@dataclass(frozen=True, slots=True)
class Prose:
    """The sections of one file: as HTML, or by their level-2 headings."""

    sections: dict[str, str]

    def html(self, section: str) -> Markup:
        """A section as HTML, its headings one level down; empty where the file lacks it."""
        text = self.sections.get(section, "")
        return _html(re.sub(r"^##", "###", text, flags=re.M))

    def entries(self, section: str) -> list[Entry]:
        """A section's parts, each under its level-2 heading."""
        parts = re.split(r"^## +(.+?) *$", self.sections.get(section, ""), flags=re.M)
        return [Entry(heading, _html(text)) for heading, text in zip(parts[1::2], parts[2::2], strict=True)]


def read_prose(slug: str, lang: str) -> Prose:
    """The prose on a calculator in a language; without sections where there is none."""
    file = resources.files("batchfit").joinpath("content", lang, f"{slug}.md")
    if not file.is_file():
        return Prose({})
    parts = re.split(r"^# +([a-z-]+) *$", file.read_text(encoding="utf-8"), flags=re.M)
    return Prose({name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)})
