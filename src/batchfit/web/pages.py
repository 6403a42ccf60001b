"""Pages: a calculator with its prose, the embed, the shelf, and what is said where there is no page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from babel.dates import format_date
from markupsafe import Markup

from batchfit.calculator import Calculator
from batchfit.calculators import group_title
from batchfit.sentences import in_language
from batchfit.web.formulas import explained, shown
from batchfit.web.instrument import Instrument
from batchfit.web.refusals import Refusal
from batchfit.web.shared import HOME, of_calculator, of_plan
from batchfit.web.site import Site, as_data, formulas_file, translator
from batchfit.web.state import State
from batchfit.web.stored import Stored

# A page may be kept but is asked for anew each time; thanks to its ETag that costs no body.
REVALIDATE = {"Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class Link:
    """An entry in a list of calculators, with what is said of it."""

    title: str
    address: str
    text: Markup | str = ""
    here: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A group of calculators with its title."""

    category: str
    title: str
    links: list[Link]


def calculator_page(site: Site, state: State, origin: str) -> Stored:
    """A calculator's page in a state."""
    calculator, lang = state.calculator, state.lang
    instrument = Instrument(state, site.shelf.pictures[calculator.slug])
    shared = of_calculator(instrument, origin)
    html = site.render(
        "calculator.html",
        lang,
        calculator=calculator,
        instrument=instrument,
        state=state,
        shared=shared,
        prose=site.prose[calculator.slug, lang],
        path=shared.path,
        query=shared.query,
        formulas=shown(calculator, instrument.values, instrument.shown_units, lang),
        symbols=explained(calculator, lang),
        data=data_for_script(site, instrument, shared.path),
        preload=scripts_of(site, calculator, "sharing.js", "printing.js"),
        faq=_faq(site, calculator, lang),
        next=_next(site, calculator, lang),
        related=_related(site, calculator, lang),
        switch=shared.in_languages(site.languages),
        updated=format_date(calculator.updated, "long", locale=lang.replace("-", "_")),
        group=translator(lang)(group_title(calculator.category)),
    )
    return Stored(html.encode(), "text/html", state.status, REVALIDATE)


def home_page(site: Site, lang: str, query: Iterable[tuple[str, str]], origin: str) -> Stored:
    """The planner in brief, in a state, and the shelf of calculators."""
    from batchfit.web.plan_pages import shown
    from batchfit.web.plan_state import read_plan_state

    state = read_plan_state(site.models, lang, query)
    planner = shown(site, state)
    shared = of_plan(planner["view"], origin, page=HOME)
    html = site.render(
        "home.html",
        lang,
        shared=shared,
        path=shared.path,
        form=planner["form"],
        view=planner["view"],
        plan_path=planner["path"],
        query=planner["query"],
        preload=site.assets.with_imports("plan.js", "sharing.js"),
        switch=shared.in_languages(site.languages),
        groups=_shelf(site, lang),
    )
    return Stored(html.encode(), "text/html", state.status, REVALIDATE)


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


def data_for_script(site: Site, instrument: Instrument, path: str) -> dict[str, object]:
    """What a calculator's scripts need to know, on its page or in an embed at that path."""
    translate = translator(instrument.lang)
    return instrument.for_script() | {
        "path": path,
        "texts": {
            "empty": translate("Enter a value to see results"),
            "correct": translate("Correct the marked value to see results"),
            "stale": translate("Not up to date: these results belong to the last values that could be used."),
        },
        "inverted": instrument.state.inverse,
        "scripts": {
            kind: site.assets.url(name) for kind, name in _own_scripts(instrument.calculator).items()
        },
    }


def _own_scripts(calculator: Calculator) -> dict[str, str]:
    """The scripts that not every calculator has."""
    names = {"formulas": formulas_file(calculator.slug)}
    if calculator.sections:
        names["sections"] = "sections.js"
    return names


def scripts_of(site: Site, calculator: Calculator, *names: str) -> list[str]:
    """Everything that a page's scripts load, so that the browser can ask for all of it at once."""
    return site.assets.with_imports("page.js", *names, *_own_scripts(calculator).values())


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


def _link(of: Calculator, lang: str, text: Markup | str = "", here: str = "") -> Link:
    return Link(translator(lang)(of.title), f"/{lang}/{of.slug}", text, of.slug == here)


def _next(site: Site, calculator: Calculator, lang: str) -> list[Link]:
    """What to try next: the related calculators, with the sentence that the prose has on each."""
    sentences = {entry.heading: entry.html for entry in site.prose[calculator.slug, lang].entries("next")}
    found = site.shelf.calculators
    return [_link(found[slug], lang, sentences.get(slug, "")) for slug in calculator.related if slug in found]


def _related(site: Site, calculator: Calculator, lang: str) -> list[Group]:
    """Every calculator by group."""
    return [
        Group(
            category,
            translator(lang)(group_title(category)),
            [_link(each, lang, here=calculator.slug) for each in entries],
        )
        for category, entries in site.shelf.groups().items()
    ]


def _shelf(site: Site, lang: str) -> list[Group]:
    """Every calculator by group, with its purpose."""
    _ = translator(lang)
    return [
        Group(category, _(group_title(category)), [_link(each, lang, _(each.purpose)) for each in entries])
        for category, entries in site.shelf.groups().items()
    ]
