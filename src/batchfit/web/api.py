"""Every page's answer as data, and what machines ask for beside it: the site map, the health."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape, quoteattr

from batchfit import __version__, sections
from batchfit.calculators import group_title
from batchfit.languages import SOURCE
from batchfit.web.site import Site, translator
from batchfit.web.state import State
from batchfit.web.stored import Stored
from batchfit.wording import complaint

_JSON = "application/json"
_DATA = {"Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}


def as_json(value: object, status: int = 200) -> Stored:
    """A document that any page may read."""
    return Stored((json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode(), _JSON, status, _DATA)


def answer(state: State) -> Stored:
    """A calculator's results, as `batchfit calc --json` prints them; or what is wrong, field by field."""
    if state.results is not None:
        presets = {name: entry.name for name, entry in state.presets.items()}
        figures = state.results.as_json(state.calculator, presets)
        return as_json(figures | sections.as_json(state.calculator, state.results))
    errors = [{"field": name, "message": complaint(wrong, state.lang)} for name, wrong in state.wrong.items()]
    return as_json({"errors": errors}, 400 if state.malformed else 422)


def shelf(site: Site, lang: str, origin: str) -> Stored:
    """The calculators there are, with their addresses."""
    translate = translator(lang)
    return as_json(
        {
            "language": lang,
            "calculators": [
                {
                    "calculator": calculator.slug,
                    "title": translate(calculator.title),
                    "purpose": translate(calculator.purpose),
                    "group": translate(group_title(calculator.category)),
                    "updated": calculator.updated.isoformat(),
                    "url": f"{origin}/{lang}/{calculator.slug}",
                }
                for calculator in site.shelf
            ],
        }
    )


def sitemap(site: Site, origin: str) -> Stored:
    """Every page in every language, each with its counterparts in the others."""
    entries = []
    for slug, updated in [
        ("", None),
        ("plan", None),
        ("accuracy", None),
        *((each.slug, each.updated) for each in site.shelf),
    ]:
        alternates = [(lang, f"{origin}/{lang}/{slug}") for lang in site.languages]
        links = "".join(
            f'<xhtml:link rel="alternate" hreflang={quoteattr(lang)} href={quoteattr(url)}/>'
            for lang, url in [
                *alternates,
                ("x-default", f"{origin}/{SOURCE}/{slug}" if slug else f"{origin}/"),
            ]
        )
        date = f"<lastmod>{updated.isoformat()}</lastmod>" if updated else ""
        entries += [f"<url><loc>{escape(url)}</loc>{date}{links}</url>" for _, url in alternates]
    xml = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml">'
        f"{''.join(entries)}</urlset>\n"
    )
    return Stored(xml.encode(), "application/xml")


def robots(origin: str) -> Stored:
    """Everything may be indexed but the embeds, which repeat the pages."""
    return Stored(f"User-agent: *\nDisallow: /embed/\nSitemap: {origin}/sitemap.xml\n".encode(), "text/plain")


def health(database: str, *, ready: bool) -> Stored:
    """How the app is: `database` is "ok", "away" or "off"; `ready` where every page that can be made ahead is."""
    pages = "ready" if ready else "being made"
    return as_json({"status": "ok", "version": __version__, "database": database, "pages": pages})


def failure(message: str, status: int) -> Stored:
    """What went wrong with a request for data, where it is no field's fault."""
    return as_json({"errors": [{"message": message}]}, status)
