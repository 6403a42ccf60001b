"""Pages: a calculator with its prose, the embed, the shelf, and what is said where there is no page."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from babel.dates import format_date
from markupsafe import Markup, escape

from batchfit.calculator import Calculator
from batchfit.sentences import in_language
from batchfit.web.formulas import shown
from batchfit.web.instrument import Instrument
from batchfit.web.refusals import Refusal
from batchfit.web.shelf import Announced, group_title
from batchfit.web.site import Site, as_data, formulas_file, translator
from batchfit.web.state import State
from batchfit.web.stored import Stored

THEMES = ("auto", "light", "dark")

#: What people paste into their pages. The height is what most calculators take before the script has measured it.
EMBED_CODE = (
    '<iframe src="{url}" title="{title}" width="100%" height="900" style="border:0" loading="lazy"></iframe>\n'
    '<script src="{script}" async></script>'
)

# A page may be kept but is asked for anew each time; thanks to its ETag that costs no body.
REVALIDATE = {"Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class Link:
    """An entry in a list of calculators; without an address, one that is yet to come."""

    title: str
    address: str = ""
    text: Markup | str = ""
    here: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A group of calculators with its title."""

    category: str
    title: str
    links: list[Link]


@dataclass(frozen=True, slots=True)
class Target:
    """A way to share: where it leads with the page's address and its answer put in. A brand has the same name in
    every language."""

    name: str
    pattern: str
    brand: bool = True

    def href(self, url: str, text: str) -> str:
        """The address, with {url} and {text} filled in."""
        return self.pattern.format(url=quote(url, safe=""), text=quote(text, safe=""))


SHARE = (
    Target("X", "https://x.com/intent/post?text={text}&url={url}"),
    Target("Facebook", "https://www.facebook.com/sharer/sharer.php?u={url}"),
    Target("LINE", "https://social-plugins.line.me/lineit/share?url={url}&text={text}"),
    Target("E-mail", "mailto:?subject={text}&body={url}", brand=False),
)


def address(path: str, query: str = "") -> str:
    """A path with its query, where there is one."""
    return f"{path}?{query}" if query else path


def calculator_page(site: Site, state: State, origin: str) -> Stored:
    """A calculator's page in a state."""
    calculator, lang = state.calculator, state.lang
    instrument = Instrument(state, site.shelf.pictures[calculator.slug])
    path, query = f"/{lang}/{calculator.slug}", state.query()
    prose = site.prose[calculator.slug, lang]
    url = origin + address(path, query)
    embed_url = origin + address(f"/embed/{lang}/{calculator.slug}", query)
    html = site.render(
        "calculator.html",
        lang,
        calculator=calculator,
        instrument=instrument,
        state=state,
        prose=prose,
        origin=origin,
        path=path,
        query=query,
        url=url,
        embed_url=embed_url,
        embed_code=EMBED_CODE.format(
            url=escape(embed_url),
            title=escape(translator(lang)(calculator.title)),
            script=escape(f"{origin}/embed.js"),
        ),
        formulas=shown(calculator, instrument.values, instrument.shown_units, lang),
        data=_data(site, instrument, path),
        preload=_scripts(site, calculator, "sharing.js"),
        faq=_faq(site, calculator, lang),
        share=[
            (target, target.href(url, instrument.answer or translator(lang)(calculator.title)))
            for target in SHARE
        ],
        next=_next(site, calculator, lang),
        related=_related(site, calculator, lang),
        switch={other: address(f"/{other}/{calculator.slug}", query) for other in site.languages},
        updated=format_date(calculator.updated, "long", locale=lang.replace("-", "_")),
        group=translator(lang)(group_title(calculator.category)),
    )
    return Stored(html.encode(), "text/html", state.status, REVALIDATE)


def embed_page(site: Site, state: State, theme: str, origin: str) -> Stored:
    """A calculator alone, for other people's pages."""
    calculator, lang = state.calculator, state.lang
    instrument = Instrument(state, site.shelf.pictures[calculator.slug])
    path = f"/embed/{lang}/{calculator.slug}"
    html = site.render(
        "embed.html",
        lang,
        calculator=calculator,
        instrument=instrument,
        state=state,
        origin=origin,
        path=path,
        theme=theme,
        full=address(f"/{lang}/{calculator.slug}", state.query()),
        data=_data(site, instrument, path),
        preload=_scripts(site, calculator, "frame.js"),
    )
    return Stored(html.encode(), "text/html", state.status, REVALIDATE)


def home_page(site: Site, lang: str, origin: str) -> Stored:
    """The planner in brief, and the shelf of calculators."""
    from batchfit.web.plan_pages import shown, usual_state

    planner = shown(site, usual_state(site, lang))
    html = site.render(
        "home.html",
        lang,
        origin=origin,
        path=f"/{lang}/",
        form=planner["form"],
        view=planner["view"],
        plan_path=planner["path"],
        query=planner["query"],
        preload=planner["preload"],
        switch={other: f"/{other}/" for other in site.languages},
        groups=_shelf(site, lang),
    )
    return Stored(html.encode(), "text/html", headers=REVALIDATE)


def error_page(site: Site, lang: str, status: int, refusal: Refusal) -> Stored:
    """What is said where there is no page to show, in the person's language."""
    html = site.render(
        "error.html",
        lang,
        status=status,
        title=in_language(refusal.title, lang),
        advice=in_language(refusal.advice, lang),
        switch={other: f"/{other}/" for other in site.languages},
        groups=_shelf(site, lang),
    )
    return Stored(html.encode(), "text/html", status, {"Cache-Control": "no-store"})


def _data(site: Site, instrument: Instrument, path: str) -> dict[str, object]:
    translate = translator(instrument.lang)
    return instrument.for_script() | {
        "path": path,
        "texts": {
            "empty": translate("Enter a value to see results"),
            "correct": translate("Correct the marked value to see results"),
            "stale": translate("Not up to date: these results belong to the last values that could be used."),
        },
        "inverted": instrument.state.inverse,
        "formulas": site.assets.url(formulas_file(instrument.calculator.slug)),
    }


def _scripts(site: Site, calculator: Calculator, *names: str) -> list[str]:
    """Everything that a page's scripts load, so that the browser can ask for all of it at once."""
    return site.assets.with_imports("page.js", *names, formulas_file(calculator.slug))


def _faq(site: Site, calculator: Calculator, lang: str) -> Markup:
    """The questions and answers as structured data for search engines; empty where there are none."""
    entries = site.prose[calculator.slug, lang].entries("faq")
    if not entries:
        return Markup()
    questions = [
        {
            "@type": "Question",
            "name": entry.heading,
            "acceptedAnswer": {"@type": "Answer", "text": str(entry.html).strip()},
        }
        for entry in entries
    ]
    return as_data(
        {"@context": "https://schema.org", "@type": "FAQPage", "inLanguage": lang, "mainEntity": questions}
    )


def _link(
    site: Site, entry: Calculator | Announced, lang: str, text: Markup | str = "", here: str = ""
) -> Link:
    exists = entry.slug in site.shelf.calculators
    return Link(
        title=translator(lang)(entry.title),
        address=f"/{lang}/{entry.slug}" if exists else "",
        text=text,
        here=entry.slug == here,
    )


def _next(site: Site, calculator: Calculator, lang: str) -> list[Link]:
    """What to try next: the related calculators, with the sentence that the prose has on each."""
    sentences = {entry.heading: entry.html for entry in site.prose[calculator.slug, lang].entries("next")}
    entries = ((slug, site.shelf.entry(slug)) for slug in calculator.related)
    return [_link(site, entry, lang, sentences.get(slug, "")) for slug, entry in entries if entry]


def _related(site: Site, calculator: Calculator, lang: str) -> list[Group]:
    """Every calculator by group."""
    return [
        Group(
            category,
            translator(lang)(group_title(category)),
            [_link(site, each, lang, here=calculator.slug) for each in entries],
        )
        for category, entries in site.shelf.groups().items()
    ]


def _shelf(site: Site, lang: str) -> list[Group]:
    """Every calculator by group, with its purpose; of one to come, what others say of it."""
    announced = {
        entry.heading: entry.html
        for each in site.shelf
        for entry in site.prose[each.slug, lang].entries("next")
    }

    def about(entry: Calculator | Announced) -> Markup | str:
        return (
            translator(lang)(entry.purpose)
            if isinstance(entry, Calculator)
            else announced.get(entry.slug, "")
        )

    return [
        Group(
            category,
            translator(lang)(group_title(category)),
            [_link(site, each, lang, about(each)) for each in entries],
        )
        for category, entries in site.shelf.groups().items()
    ]
