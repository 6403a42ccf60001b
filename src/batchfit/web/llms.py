"""/llms.txt: what there is and how to ask for it, for language models. https://llmstxt.org."""

from __future__ import annotations

from collections.abc import Iterator

from batchfit.calculators import group_title
from batchfit.languages import SOURCE
from batchfit.web.shared import PLAN
from batchfit.web.site import Site
from batchfit.web.stored import Stored


def index(site: Site, origin: str) -> Stored:
    """The calculators by group, each with its page as Markdown and its answer as data. In English."""
    text = "\n\n".join(_parts(site, origin)) + "\n"
    return Stored(text.encode(), "text/plain", headers={"Cache-Control": "public, max-age=3600"})


def _parts(site: Site, origin: str) -> Iterator[str]:
    home = f"{origin}/{SOURCE}"
    yield "# batchfit"
    yield (
        "> Tells people who train neural networks which micro-batch size, gradient-accumulation steps and "
        "data-parallel replicas reach the batch they want on the GPUs they have, and what memory that takes."
    )
    yield (
        f"The query of an address is the state: the same query after .json gives the answer as data, after .md the "
        f"page as text with the numbers put in. {origin}/openapi.json describes every parameter. Bytes are integers "
        f"in fields that end in _bytes. The first part of a path is the language: {', '.join(site.languages)}."
    )
    yield "## Planner"
    yield (
        f"- [Batch planner]({home}/{PLAN}): the plans for a model of the catalogue on given GPUs, best first; "
        f"as data: {home}/{PLAN}.json"
    )
    for category in dict.fromkeys(each.category for each in site.shelf):
        yield f"## {group_title(category)}"
        yield "\n".join(
            f"- [{each.title}]({home}/{each.slug}.md): {each.purpose} As data: {home}/{each.slug}.json"
            for each in site.shelf
            if each.category == category
        )
