"""The web app: which address gives what. Whatever can be made at start is; a request only chooses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cached_property, partial
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from batchfit.calculator import Calculator
from batchfit.sentences import in_language
from batchfit.web import api, openapi, pages
from batchfit.web.access import Access
from batchfit.web.collector import at_rest
from batchfit.web.feedback_pages import FeedbackPages
from batchfit.web.kept import Filling, FromMemory, Kept
from batchfit.web.limits import Limited
from batchfit.web.negotiation import language_in_path, preferred
from batchfit.web.plan_routes import PlanRoutes
from batchfit.web.plan_state import is_brief
from batchfit.web.plan_trace import Tracer
from batchfit.web.refusals import refusal_for
from batchfit.web.security import Security, host_of
from batchfit.web.shared import PLAN, address
from batchfit.web.sharing import Sharing
from batchfit.web.shelf import Shelf
from batchfit.web.site import Site
from batchfit.web.state import State, read_state
from batchfit.web.stored import Stored

if TYPE_CHECKING:
    from batchfit.web.access import AccessLog
    from batchfit.web.limits import Rates
    from batchfit.web.metrics import Metrics
    from batchfit.web.store import Store

#: Pages about errors that are kept, by language, status and minutes to wait.
_ERROR_PAGES = 100


def create_app(
    shelf: Iterable[Calculator] | None = None,
    *,
    public_url: str | None = None,
    origin: str = "http://127.0.0.1:8000",
    feedback: Store | None = None,
    rates: Rates | None = None,
    allow_trace: bool = False,
    log: AccessLog | None = None,
    metrics: Metrics | None = None,
    ahead: bool = False,
) -> ASGIApp:
    """The app that serves a shelf of calculators, by default every one there is.

    `public_url` ("https://example.org") is where people reach it: canonical addresses and shared links start with
    it. Without it they start with what each request was sent to; then `origin` is where most are expected. Its
    pages are made at start, those of others when first asked for; with `ahead`, embeds and texts are made too, in the
    background, once it serves.

    Pages ask whether they helped where there is a store to keep the `feedback` in; it is closed with the app.
    `rates` limit how much each address may ask for. `allow_trace` lets people have their configs traced, each in a
    process of its own. Every request is noted in the `log` and the `metrics`, which /metrics shows.
    """
    handlers = _Handlers(
        Site(Shelf(shelf), feedback=feedback is not None),
        public_url,
        feedback,
        rates,
        Tracer(allowed=allow_trace),
    )
    handlers.make_pages(handlers.public_url or origin, ahead=ahead)
    app: ASGIApp = Starlette(
        routes=[*([Route("/metrics", metrics.page)] if metrics else ()), *handlers.routes],
        exception_handlers={HTTPException: handlers.failed, 500: handlers.broken},
        lifespan=handlers.running,
    )
    if rates:
        app = Limited(app, rates, handlers.refused)
    app = FromMemory(app, handlers.from_memory)
    return Access(Security(app, handlers.refused, public_url), log, metrics)


class _Handlers:
    def __init__(
        self,
        site: Site,
        public_url: str | None,
        feedback: Store | None,
        rates: Rates | None,
        tracer: Tracer,
    ) -> None:
        self.site = site
        self.planner = PlanRoutes(site, self._language, self._origin, self._page, tracer)
        self.public_url = public_url.rstrip("/") if public_url else None
        self.feedback = feedback
        self.feedback_pages = FeedbackPages(site, feedback, rates) if feedback else None
        self._refused: OrderedDict[tuple[str, int, int], Stored] = OrderedDict()
        self._kept = Kept()
        self._filling: Filling | None = None
        self.sharing = Sharing(site, self._language, self._origin, self._page)
        script = resources.files("batchfit.web").joinpath("static", "embed.js").read_bytes()
        # Other people's pages name it by this address for years, so it is not kept for ever.
        self._embed_script = Stored(
            script, "text/javascript", headers={"Cache-Control": "public, max-age=3600"}
        )

    @cached_property
    def routes(self) -> list[Route]:
        """Every address with what answers to it."""
        return [
            Route("/", self.root),
            Route("/healthz", self.health),
            Route("/healthz.json", self.health_data),
            Route("/robots.txt", self.robots),
            Route("/sitemap.xml", self.sitemap),
            Route("/openapi.json", self.openapi),
            Route("/embed.js", self.embed_script),
            Route("/static/{name}", self.static),
            *self.sharing.routes(),
            Route("/{lang}", self.to_home),
            Route("/{lang}/", self.home),
            Route("/{lang}/index.json", self.home_data),
            *(self.feedback_pages.routes() if self.feedback_pages else ()),
            *self.planner.routes(),
            Route("/{lang}/{slug}.json", self.data),
            Route("/{lang}/{slug}", self.calculator),
        ]

    def make_pages(self, origin: str, *, ahead: bool = False) -> None:
        """Makes every page in its default state; what other pages embed and read will be, once the app runs."""
        for lang in self.site.languages:
            self._kept.page(origin, f"/{lang}/", partial(pages.home_page, self.site, lang, [], origin))
            self._kept.page(origin, f"/{lang}/{PLAN}", partial(self.planner.usual_page, lang, origin))
            for calculator in self.site.shelf:
                state = read_state(calculator, lang, [])
                page = partial(pages.calculator_page, self.site, state, origin)
                self._kept.page(origin, f"/{lang}/{calculator.slug}", page)
        if ahead:
            rest = [*self.sharing.usual_pages(origin), *self.planner.usual_pages(origin)]
            self._filling = Filling(self._kept, origin, rest)

    @asynccontextmanager
    async def running(self, app: Starlette) -> AsyncIterator[None]:
        """Reads what requests will want while the first of them come in."""
        with at_rest() as put_aside:
            self.site.models.warm(put_aside)
            if self._filling:
                self._filling.start()
            yield
            if self._filling:
                self._filling.stop()
        if self.feedback:
            self.feedback.close()

    def from_memory(self, scope: Scope) -> Stored | None:
        """What is there already for a path without a query."""
        path: str = scope["path"]
        if path.startswith("/static/"):
            return self.site.assets.get(path.removeprefix("/static/"))
        return self._kept.find(self._origin_of(scope), path)

    # ---- Pages --------------------------------------------------------------------------------------------

    async def root(self, request: Request) -> Response:
        lang = self._language_of(request.headers, request.cookies.get("lang"))
        headers = {"Vary": "Accept-Language, Cookie", "Cache-Control": "no-store"}
        return RedirectResponse(f"/{lang}/", 302, headers)

    async def to_home(self, request: Request) -> Response:
        return RedirectResponse(f"/{self._language(request)}/", 308)

    def home(self, request: Request) -> Response:
        """In a thread, since what an address asks is planned."""
        lang, origin, query = self._language(request), self._origin(request), _query(request)
        if not is_brief(query):
            return RedirectResponse(address(f"/{lang}/{PLAN}", request.url.query), 307)
        return self._page(request, lambda: pages.home_page(self.site, lang, query, origin))

    async def calculator(self, request: Request) -> Response:
        origin = self._origin(request)

        def make() -> Stored:
            return pages.calculator_page(self.site, self._state(request), origin)

        return self._page(request, make)

    # ---- Data ---------------------------------------------------------------------------------------------

    async def data(self, request: Request) -> Response:
        return api.answer(self._state(request)).respond(request.headers)

    async def home_data(self, request: Request) -> Response:
        return api.shelf(self.site, self._language(request), self._origin(request)).respond(request.headers)

    async def openapi(self, request: Request) -> Response:
        return openapi.openapi(self.site, self._origin(request)).respond(request.headers)

    async def sitemap(self, request: Request) -> Response:
        return api.sitemap(self.site, self._origin(request)).respond(request.headers)

    async def robots(self, request: Request) -> Response:
        return api.robots(self._origin(request)).respond(request.headers)

    async def health(self, request: Request) -> Response:
        """Pages are served, whatever the database does."""
        return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})

    async def health_data(self, request: Request) -> Response:
        """The same with what else there is to know: the release, whether feedback can be kept, and whether what is made
        ahead is."""
        database = "off" if self.feedback is None else "ok" if await self.feedback.reachable() else "away"
        ready = self._filling is None or self._filling.done
        response = api.health(database, ready=ready).respond(request.headers)
        response.headers["Cache-Control"] = "no-store"
        return response

    async def static(self, request: Request) -> Response:
        stored = self.site.assets.get(request.path_params["name"])
        if stored is None:
            raise HTTPException(404)
        return stored.respond(request.headers)

    async def embed_script(self, request: Request) -> Response:
        return self._embed_script.respond(request.headers)

    # ---- Where there is no answer ---------------------------------------------------------------------------

    async def failed(self, request: Request, error: Exception) -> Response:
        """An HTTPException as a page in the person's language, or as data."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = error.headers if isinstance(error, HTTPException) else None
        response = self.refused(request.scope, status)
        response.headers.update(headers or {})
        if status == 405:
            response.headers["Allow"] = ", ".join(sorted(self._methods(request.scope["path"])))
        return response

    def _methods(self, path: str) -> set[str]:
        """What can be done with a path: Starlette tells only of the first of the routes that share it."""
        found = [route for route in self.routes if route.path_regex.match(path)]
        return {method for route in found if route.path == found[0].path for method in route.methods or ()}

    async def broken(self, request: Request, error: Exception) -> Response:
        """A fault of ours."""
        return self.refused(request.scope, 500)

    def refused(self, scope: Scope, status: int, wait: int = 0) -> Response:
        """What is said with a status; `wait` are the seconds after which to ask again."""
        headers, path = Headers(scope=scope), scope["path"]
        parts = path.removeprefix("/embed").split("/")
        lang = (
            parts[1]
            if len(parts) > 1 and parts[1] in self.site.languages
            else self._language_of(headers, None)
        )
        if path.endswith(".json"):
            made = api.failure(in_language(refusal_for(status, wait).title, lang), status)
        else:
            made = self._error_page(lang, status, -(-wait // 60))
        response = made.respond(headers)
        if wait:
            response.headers["Retry-After"] = str(wait)
        return response

    def _error_page(self, lang: str, status: int, minutes: int) -> Stored:
        """Kept, so that turning requests away costs less than answering them."""
        key = (lang, status, minutes)
        if key not in self._refused:
            refusal = refusal_for(status, minutes * 60)
            self._refused[key] = pages.error_page(self.site, lang, status, refusal)
            if len(self._refused) > _ERROR_PAGES:
                self._refused.popitem(last=False)
        return self._refused[key]

    # ---- What a request asks for ------------------------------------------------------------------------------

    def _page(self, request: Request, make: Callable[[], Stored]) -> Response:
        """A page; one without a query is made once for each origin."""
        if request.url.query:
            return make().respond(request.headers)
        return self._kept.page(self._origin(request), request.url.path, make).respond(request.headers)

    def _state(self, request: Request) -> State:
        calculator = self.site.shelf.calculators.get(request.path_params["slug"])
        if calculator is None:
            raise HTTPException(404)
        return read_state(calculator, self._language(request), _query(request))

    def _language(self, request: Request) -> str:
        return language_in_path(request, self.site.languages)

    def _language_of(self, headers: Headers, chosen: str | None) -> str:
        if chosen in self.site.languages:
            return str(chosen)
        return preferred(headers.get("accept-language", ""), self.site.languages)

    def _origin(self, request: Request) -> str:
        return self._origin_of(request.scope)

    def _origin_of(self, scope: Scope) -> str:
        return self.public_url or f"{scope['scheme']}://{host_of(scope)}"


def _query(request: Request) -> list[tuple[str, str]]:
    return parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=None)
