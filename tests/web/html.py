"""Looking into a page as a person without JavaScript does: what is shown, and what a form would send."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass
class Element:
    """An element with its attributes, children and text."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        return " ".join(self._raw().replace("\xa0", " ").split())

    def _raw(self) -> str:
        return "".join(child if isinstance(child, str) else child._raw() for child in self.children)

    @property
    def shown(self) -> bool:
        """Whether it is not hidden itself."""
        return "hidden" not in self.attributes

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """The elements within that have these attributes; data_x stands for data-x, and "" for any value."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if (not tag or child.tag == tag) and all(
                    (have := child.attributes.get(name.rstrip("_").replace("_", "-"))) is not None
                    and wanted in ("", have)
                    for name, wanted in attributes.items()
                ):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def one(self, tag: str = "", **attributes: str) -> Element:
        """The only such element."""
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} elements <{tag} {attributes}>"
        return found[0]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len(attributes) == len(dict(attributes)), f"an attribute twice in <{tag}>"
        element = Element(tag, {name: value or "" for name, value in attributes})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(html: str) -> Element:
    """The document. Fails where elements are not properly nested."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert builder.open == [builder.root], f"<{builder.open[-1].tag}> is never closed"
    return builder.root


@dataclass
class Page:
    """A calculator's page."""

    root: Element

    @classmethod
    def of(cls, html: str) -> Page:
        """The page that this HTML is."""
        return cls(parse(html))

    def result(self, name: str) -> str:
        """A result's number with its unit."""
        value = self.root.one(data_result=name).one(class_="value")
        return value.text.partition(" = ")[0].strip()

    def reading(self, name: str) -> str:
        """The sentence that explains a result."""
        return self.root.one(data_result=name).one(data_reading="").text

    def typed(self, name: str) -> str:
        """What stands in a field."""
        return self.root.one("input", name=name).attributes["value"]

    def error(self, name: str) -> str:
        """The message beside a field, empty where none is shown."""
        error = self.root.one(id=f"{name}-error")
        return error.text if error.shown else ""

    def note(self, name: str) -> str:
        """The note beside a field, empty where none is shown."""
        note = self.root.one(id=f"{name}-note")
        return note.text if note.shown else ""

    @property
    def data(self) -> dict[str, Any]:
        """What the page gives to its JavaScript."""
        found: dict[str, Any] = json.loads(str(self.root.one("script", id="calculator").children[0]))
        return found

    def submitted(self, **changed: str) -> str:
        """The query that the form sends, with some fields filled in otherwise."""
        pairs = {}
        for control in self.root.one("form").all(name=""):
            if "disabled" in control.attributes:
                continue
            if control.tag == "select":
                chosen = next(option for option in control.all("option") if "selected" in option.attributes)
                pairs[control.attributes["name"]] = chosen.text
            else:
                pairs[control.attributes["name"]] = control.attributes["value"]
        unknown = changed.keys() - pairs.keys()
        assert not unknown, f"the form has no {unknown}"
        return urlencode(pairs | changed)


def visible_text(html: str) -> str:
    """The text of a page without scripts, for searching."""
    return parse(re.sub(r"<script.*?</script>", "", html, flags=re.S)).text
