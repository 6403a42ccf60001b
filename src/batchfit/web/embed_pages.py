"""Embeds: a calculator or the planner alone, for other people's pages. They use no storage and no cookies."""

from __future__ import annotations

from batchfit.errors import BadInput
from batchfit.web import plan_pages, shared
from batchfit.web.embedding import EmbedOptions
from batchfit.web.instrument import Instrument
from batchfit.web.pages import REVALIDATE, data_for_script, scripts_of
from batchfit.web.plan_state import PlanState
from batchfit.web.site import Site
from batchfit.web.state import State
from batchfit.web.stored import Stored
from batchfit.wording import complaint

#: A sandboxed frame asks for the planner's next answer as if from elsewhere.
_HEADERS = {**REVALIDATE, "Access-Control-Allow-Origin": "*"}


def calculator_embed(site: Site, state: State, options: EmbedOptions, origin: str) -> Stored:
    """A calculator alone. Raises BadInput where `show` names no field of it."""
    calculator = state.calculator
    instrument = Instrument(state, site.shelf.pictures[calculator.slug])
    link = shared.of_calculator(instrument, origin, options)
    # From here on, links stay in the embed.
    state.beside = options.pairs()
    html = site.render(
        "embed.html",
        state.lang,
        calculator=calculator,
        instrument=instrument,
        state=state,
        shared=link,
        options=options,
        path=f"/embed{link.path}",
        data=data_for_script(site, instrument, f"/embed{link.path}"),
        preload=scripts_of(site, calculator, "frame.js"),
    )
    together = (
        [frozenset((calculator.inverse.solved, calculator.inverse.given.name))] if calculator.inverse else []
    )
    return Stored(options.held(html, together).encode(), "text/html", state.status, _HEADERS)


def plan_embed(site: Site, state: PlanState, options: EmbedOptions, origin: str) -> Stored:
    """The planner alone: what is asked, and the answer in brief. Raises BadInput where `show` names no field of it."""
    context = plan_pages.shown(site, state)
    link = shared.of_plan(context["view"], origin, options)
    # From here on, links stay in the embed.
    state.beside = options.pairs()
    context |= {"path": f"/embed{link.path}", "query": state.query()}
    context["preload"] = site.assets.with_imports("plan.js", "frame.js")
    html = site.render("plan_embed.html", state.lang, shared=link, options=options, **context)
    return Stored(options.held(html).encode(), "text/html", state.status, _HEADERS)


def refused(site: Site, lang: str, wrong: BadInput) -> Stored:
    """What is said where the options are wrong: to whoever writes the page around it."""
    html = site.render("embed_error.html", lang, field=wrong.field, complaint=complaint(wrong, lang))
    return Stored(html.encode(), "text/html", 400, {"Cache-Control": "no-store"})
