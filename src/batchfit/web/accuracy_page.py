"""How far off predictions are, for people: the scoreboard's errors by kind of published run."""

from __future__ import annotations

from dataclasses import dataclass

from batchfit.accuracy import kinds
from batchfit.numbers import format_number
from batchfit.planning.throughput import error_sentence, measured_error
from batchfit.records import to_json
from batchfit.sentences import Sentence, in_language, percent
from batchfit.web.api import as_json
from batchfit.web.pages import REVALIDATE
from batchfit.web.plan_worked import ACCURACY, kind_name
from batchfit.web.site import Site
from batchfit.web.stored import Stored


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of run with its errors."""

    kind: str
    runs: str
    median: str
    ninetieth: str
    worst: str


def accuracy_page(site: Site, lang: str, origin: str) -> Stored:
    """The page in a language."""
    rows = [
        Row(
            in_language(kind_name(kind), lang),
            format_number(kind.runs, lang),
            *(percent(share, lang, 1) for share in (kind.median, kind.ninetieth, kind.worst)),
        )
        for kind in kinds()
    ]
    html = site.render(
        "accuracy.html",
        lang,
        origin=origin,
        slug=ACCURACY,
        rows=rows,
        times=in_language(Sentence("{error}.", error=error_sentence()), lang),
        switch={other: f"/{other}/{ACCURACY}" for other in site.languages},
    )
    return Stored(html.encode(), "text/html", headers=REVALIDATE)


def accuracy_data() -> Stored:
    """The same as data."""
    return as_json({"memory": [to_json(kind) for kind in kinds()], "time": measured_error()})
