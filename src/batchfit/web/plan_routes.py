"""The planner's addresses. What a model of one's own is in goes with a POST; everything else is an address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from batchfit.errors import BadInput
from batchfit.web import plan_pages
from batchfit.web.accuracy_page import accuracy_data, accuracy_page
from batchfit.web.forms import read_form
from batchfit.web.plan_activation import SLUG, activation_page, asking
from batchfit.web.plan_own import Own, read_own
from batchfit.web.plan_state import PlanState, read_plan_state
from batchfit.web.plan_trace import Tracer
from batchfit.web.plan_worked import ACCURACY
from batchfit.web.shared import address
from batchfit.web.site import Site
from batchfit.web.stored import Stored
from batchfit.wording import complaint


class PlanRoutes:
    """The planner's page, its twins, and traces. The functions say a request's language and origin, and keep pages
    that no query changes."""

    def __init__(
        self,
        site: Site,
        language: Callable[[Request], str],
        origin: Callable[[Request], str],
        kept: Callable[[Request, Callable[[], Stored]], Response],
        tracer: Tracer,
    ) -> None:
        self._site, self._tracer = site, tracer
        self._language, self._origin, self._kept = language, origin, kept
        # Without a calculator that asks for an activation per sample, its chooser would have nowhere to lead to.
        self._fills_in = bool(asking(site.shelf))

    def routes(self) -> list[Route]:
        """Planning takes milliseconds, not microseconds: it runs in threads, so that others need not wait."""
        return [
            Route("/{lang}/plan", self.page),
            Route("/{lang}/plan", self.posted_page, methods=["POST"]),
            *([Route(f"/{{lang}}/{SLUG}", self.activation)] if self._fills_in else ()),
            Route(f"/{{lang}}/{ACCURACY}", self.accuracy),
            Route(f"/{{lang}}/{ACCURACY}.json", self.accuracy_data),
            Route("/{lang}/plan/trace", self.trace, methods=["POST"]),
            Route("/{lang}/plan.json", self.data),
            Route("/{lang}/plan.json", self.posted_data, methods=["POST"]),
            Route("/{lang}/plan.csv", self.csv),
            Route("/{lang}/plan.csv", self.posted_csv, methods=["POST"]),
            Route("/{lang}/plan/{name}.svg", self.picture),
            Route("/{lang}/plan/{name}.svg", self.posted_picture, methods=["POST"]),
        ]

    def usual_page(self, lang: str, origin: str) -> Stored:
        """The page as it opens."""
        return plan_pages.plan_page(
            self._site, read_plan_state(self._site.models, lang, []), origin, tracing=self._tracer.allowed
        )

    def usual_pages(self, origin: str) -> Iterator[tuple[str, Callable[[], Stored]]]:
        """The other pages as they open, by path, with what makes them."""
        for lang in self._site.languages:
            if self._fills_in:
                yield f"/{lang}/{SLUG}", partial(activation_page, self._site, lang, [], origin)
            yield f"/{lang}/{ACCURACY}", partial(accuracy_page, self._site, lang, origin)

    # ---- By an address --------------------------------------------------------------------------------------

    def page(self, request: Request) -> Response:
        return self._kept(request, lambda: self._page(request, self._asked(request)))

    def activation(self, request: Request) -> Response:
        query = _query(request)
        lang, origin = self._language(request), self._origin(request)
        return self._kept(request, lambda: activation_page(self._site, lang, query, origin))

    def accuracy(self, request: Request) -> Response:
        lang, origin = self._language(request), self._origin(request)
        return self._kept(request, lambda: accuracy_page(self._site, lang, origin))

    def accuracy_data(self, request: Request) -> Response:
        self._language(request)
        return accuracy_data().respond(request.headers)

    def data(self, request: Request) -> Response:
        return plan_pages.plan_data(self._asked(request)).respond(request.headers)

    def csv(self, request: Request) -> Response:
        return plan_pages.plan_csv(self._asked(request)).respond(request.headers)

    def picture(self, request: Request) -> Response:
        return _found(plan_pages.plan_picture(self._asked(request), request.path_params["name"])).respond(
            request.headers
        )

    # ---- With a model of one's own ----------------------------------------------------------------------------

    async def posted_page(self, request: Request) -> Response:
        fields = await read_form(request)
        state = await run_in_threadpool(self._posted, request, fields)
        if state.source != "own" and not state.own_text:
            # A form without a model of one's own is an address like any other, to be shared and to go back to.
            return RedirectResponse(address(request.url.path, state.query()), 303)
        if dict(fields).get("trace") == "now" and state.own is not None and state.untraced:
            state = await self._traced(request, fields, state.own)
        # A script has the text already.
        echo = dict(fields).get("echo") != "no"
        return (await run_in_threadpool(self._page, request, state, echo)).respond(request.headers)

    async def posted_data(self, request: Request) -> Response:
        state = await run_in_threadpool(self._posted, request, await read_form(request))
        return (await run_in_threadpool(plan_pages.plan_data, state)).respond(request.headers)

    async def posted_csv(self, request: Request) -> Response:
        state = await run_in_threadpool(self._posted, request, await read_form(request))
        return (await run_in_threadpool(plan_pages.plan_csv, state)).respond(request.headers)

    async def posted_picture(self, request: Request) -> Response:
        state = await run_in_threadpool(self._posted, request, await read_form(request))
        made = await run_in_threadpool(plan_pages.plan_picture, state, request.path_params["name"])
        return _found(made).respond(request.headers)

    async def trace(self, request: Request) -> Response:
        """The steps of a trace as lines of JSON, while it runs; it ends with whoever asked for it."""
        lang = self._language(request)
        text = dict(await read_form(request)).get("own", "")
        return StreamingResponse(
            self._steps(text, lang), media_type="application/x-ndjson", headers={"Cache-Control": "no-store"}
        )

    async def _steps(self, text: str, lang: str) -> AsyncIterator[str]:
        try:
            own = read_own(text)
            if own.config is None:
                raise BadInput("own", "must be a config.json to be traced")
            async with aclosing(self._tracer.trace(own.config)) as steps:
                async for step in steps:
                    yield _line({"done": step.done, "what": step.what})
                    if step.profiles:
                        yield _line({"own": json.dumps(step.profiles, separators=(",", ":"))})
        except BadInput as wrong:
            yield _line({"error": complaint(wrong, lang)})

    async def _traced(self, request: Request, fields: list[tuple[str, str]], own: Own) -> PlanState:
        """The state with the config's trace in its place, or with what went wrong."""
        try:
            async with aclosing(self._tracer.trace(own.config or {})) as steps:
                found = [step.profiles async for step in steps][-1]
        except BadInput as wrong:
            state = self._posted(request, fields)
            state.wrong["own"] = wrong
            return state
        text = json.dumps(found, separators=(",", ":"))
        return self._posted(request, [*(pair for pair in fields if pair[0] != "own"), ("own", text)])

    # ---- What a request asks for ------------------------------------------------------------------------------

    def _page(self, request: Request, state: PlanState, echo: bool = True) -> Stored:
        return plan_pages.plan_page(
            self._site, state, self._origin(request), tracing=self._tracer.allowed, echo=echo
        )

    def _asked(self, request: Request) -> PlanState:
        return read_plan_state(self._site.models, self._language(request), _query(request))

    def _posted(self, request: Request, fields: list[tuple[str, str]]) -> PlanState:
        given = dict(fields)
        # A file goes before the text that may still stand beside it.
        own = given.get("own_file") or given.get("own", "")
        # A button that leads from an answer has the state in its address, as a link has: the form adds the model alone.
        asked = _query(request)
        if dict(asked).get("from") != "own":
            asked = fields
        return read_plan_state(self._site.models, self._language(request), asked, own)


def _found(made: Stored | None) -> Stored:
    if made is None:
        raise HTTPException(404)
    return made


def _query(request: Request) -> list[tuple[str, str]]:
    return parse_qsl(request.url.query, keep_blank_values=True)


def _line(data: dict[str, object]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"
