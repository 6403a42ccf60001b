"""The planner's page with its twins: the answer as JSON, the plans as CSV, the pictures as SVG."""

from __future__ import annotations

from typing import Any

from batchfit import frameworks
from batchfit.errors import BadInput
from batchfit.web.api import as_json
from batchfit.web.pages import REVALIDATE
from batchfit.web.plan_answer import PlanAnswer, answer_to
from batchfit.web.plan_form import PlanForm
from batchfit.web.plan_own import MOST_CHARACTERS
from batchfit.web.plan_state import PlanState
from batchfit.web.plan_view import PlanView
from batchfit.web.shared import PLAN, of_plan
from batchfit.web.site import Site
from batchfit.web.stored import Stored
from batchfit.wording import complaint


def shown(site: Site, state: PlanState) -> dict[str, Any]:
    """What templates show of a state: the page's own, and that of whatever page has the planner in it."""
    answer = answer_to(state)
    path = f"/{state.lang}/{PLAN}"
    return {
        "form": PlanForm(answer),
        "view": PlanView(answer),
        "path": path,
        "query": state.query(),
        "ready": answer.ready if answer.answers else None,
        "frameworks": frameworks.names(),
        "pictures": answer.pictures if answer.answers else (),
        "most_characters": MOST_CHARACTERS,
        "preload": site.assets.with_imports("plan.js", "sharing.js", "printing.js"),
    }


def plan_page(
    site: Site, state: PlanState, origin: str, *, tracing: bool = False, echo: bool = True
) -> Stored:
    """The page in a state; `tracing` where the server traces configs, `echo` with a model of one's own in its form, so
    that the next request carries it again."""
    context = shown(site, state)
    shared = of_plan(context["view"], origin)
    html = site.render(
        "plan.html",
        state.lang,
        shared=shared,
        switch=shared.in_languages(site.languages),
        tracing=tracing,
        own_text=state.own_text if echo and state.source == "own" and state.catalogue else "",
        **context,
    )
    return Stored(html.encode(), "text/html", state.status, REVALIDATE)


def plan_data(state: PlanState) -> Stored:
    """The answer as `batchfit plan --json` prints it; or what is wrong, field by field."""
    answer = answer_to(state)
    if answer.answers:
        try:
            return as_json(answer.as_data())
        except BadInput as wrong:
            state.add(wrong)
    return _wrong(state)


def plan_csv(state: PlanState) -> Stored:
    """The plans as CSV; none where nothing fits."""
    answer = answer_to(state)
    if not answer.answers:
        return _wrong(state)
    return Stored(answer.as_csv().encode(), "text/csv", headers=_as_file("plans.csv"))


def plan_picture(state: PlanState, name: str) -> Stored | None:
    """One of the pictures as a file; None where the answer has no such picture."""
    answer: PlanAnswer = answer_to(state)
    if not answer.answers:
        return _wrong(state)
    picture = answer.picture(name)
    if picture is None:
        return None
    return Stored(picture.encode(), "image/svg+xml", headers=_as_file(f"{name}.svg"))


def _as_file(name: str) -> dict[str, str]:
    return {**REVALIDATE, "Content-Disposition": f'attachment; filename="{name}"'}


def _wrong(state: PlanState) -> Stored:
    if not state.catalogue:
        return as_json({"errors": [{"field": "model", "message": "the catalogue has no models"}]}, 422)
    errors = [{"field": name, "message": complaint(wrong, state.lang)} for name, wrong in state.wrong.items()]
    return as_json({"errors": errors}, state.status)
