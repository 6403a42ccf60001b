"""The addresses that share a page: embeds, oEmbed, pictures for previews, QR codes, Markdown, llms.txt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from batchfit.calculator import Calculator
from batchfit.errors import BadInput
from batchfit.languages import SOURCE
from batchfit.web import api, card_images, cards, embed_pages, llms, markdown, oembed
from batchfit.web.embedding import EmbedOptions, read_options
from batchfit.web.instrument import Instrument
from batchfit.web.plan_answer import answer_to
from batchfit.web.plan_state import read_plan_state
from batchfit.web.plan_view import PlanView
from batchfit.web.qr import qr_svg
from batchfit.web.shared import PLAN, Shared, of_calculator, of_plan
from batchfit.web.site import Site
from batchfit.web.state import read_state
from batchfit.web.stored import Stored
from batchfit.wording import complaint

#: What is made of an address alone may be kept for a while.
_KEPT = {"Cache-Control": "public, max-age=3600"}

Query = list[tuple[str, str]]
Keep = Callable[[Request, Callable[[], Stored]], Response]


class Sharing:
    """Answers them. `language` and `origin` say in which language and under which name a request is answered; `keep`
    responds with what it is given, and makes that only once where the address has no query."""

    def __init__(
        self, site: Site, language: Callable[[Request], str], origin: Callable[[Request], str], keep: Keep
    ) -> None:
        self.site = site
        self.cards = card_images.CardImages()
        self._language, self._origin, self._keep = language, origin, keep

    def routes(self) -> list[Route]:
        """All of them; they stand before those of pages. None is a coroutine: what plans or draws runs in threads."""
        return [
            Route("/oembed", self.oembed),
            Route("/llms.txt", self.llms),
            Route("/embed/{lang}/{slug}", self.embed),
            Route("/og/{lang}/{slug}.png", self.card),
            Route("/qr/{lang}/{slug}.svg", self.qr),
            Route("/{lang}/{slug}.md", self.markdown),
        ]

    def usual_pages(self, origin: str) -> Iterator[tuple[str, Callable[[], Stored]]]:
        """Embeds and texts as they open, by path, with what makes them."""
        for lang in self.site.languages:
            for slug in (PLAN, *self.site.shelf.calculators):
                yield f"/embed/{lang}/{slug}", partial(self._embed, lang, slug, [], origin)
            for slug in self.site.shelf.calculators:
                yield f"/{lang}/{slug}.md", partial(self._markdown, lang, slug, [], origin)

    def oembed(self, request: Request) -> Response:
        """The code that embeds the page of a link."""
        origin, asked = self._origin(request), request.query_params
        try:
            link = oembed.Link(self.site, asked.get("url", ""), origin)
            options = read_options(link.query)
            shared = self._shared(link.lang, link.slug, link.query, origin, options)
            return oembed.response(shared, asked).respond(request.headers)
        except BadInput as wrong:
            error = {"field": wrong.field, "message": complaint(wrong, SOURCE)}
            return api.as_json({"errors": [error]}, 400).respond(request.headers)
        except HTTPException as none:
            return api.failure(HTTPStatus(none.status_code).phrase, none.status_code).respond(request.headers)

    def embed(self, request: Request) -> Response:
        """A page for other people's pages."""
        lang, slug, origin = self._language(request), request.path_params["slug"], self._origin(request)
        return self._keep(request, lambda: self._embed(lang, slug, _query(request), origin))

    def _embed(self, lang: str, slug: str, query: Query, origin: str) -> Stored:
        try:
            options = read_options(query)
            if slug == PLAN:
                state = read_plan_state(self.site.models, lang, query)
                return embed_pages.plan_embed(self.site, state, options, origin)
            state_of = read_state(self._calculator(slug), lang, query)
            return embed_pages.calculator_embed(self.site, state_of, options, origin)
        except BadInput as wrong:
            return embed_pages.refused(self.site, lang, wrong)

    def card(self, request: Request) -> Response:
        """The picture for link previews."""
        lang, slug = self._language(request), request.path_params["slug"]
        if not card_images.available():
            raise HTTPException(404)
        key = self._shared(lang, slug, _query(request), "").query

        def card(lang: str) -> cards.Card:
            if slug == PLAN:
                return cards.of_plan(self._plan(lang, parse_qsl(key)))
            return cards.of_calculator(self._instrument(lang, slug, parse_qsl(key)))

        return self.cards.respond((lang, slug, key), card, request.headers)

    def qr(self, request: Request) -> Response:
        """A page's link as a QR code."""
        lang, slug, origin = self._language(request), request.path_params["slug"], self._origin(request)
        shared = self._shared(lang, slug, _query(request), origin)
        return Stored(qr_svg(shared.url).encode(), "image/svg+xml", headers=_KEPT).respond(request.headers)

    def markdown(self, request: Request) -> Response:
        """A calculator's page as Markdown."""
        lang, slug, origin = self._language(request), request.path_params["slug"], self._origin(request)
        return self._keep(request, lambda: self._markdown(lang, slug, _query(request), origin))

    def _markdown(self, lang: str, slug: str, query: Query, origin: str) -> Stored:
        return markdown.page(self.site, self._instrument(lang, slug, query), origin)

    def llms(self, request: Request) -> Response:
        """What there is, for language models."""
        return llms.index(self.site, self._origin(request)).respond(request.headers)

    # ---- What an address names ------------------------------------------------------------------------------

    def _shared(
        self, lang: str, slug: str, query: Query, origin: str, options: EmbedOptions | None = None
    ) -> Shared:
        if slug == PLAN:
            return of_plan(self._plan(lang, query), origin, options)
        return of_calculator(self._instrument(lang, slug, query), origin, options)

    def _plan(self, lang: str, query: Query) -> PlanView:
        return PlanView(answer_to(read_plan_state(self.site.models, lang, query)))

    def _instrument(self, lang: str, slug: str, query: Query) -> Instrument:
        return Instrument(read_state(self._calculator(slug), lang, query), self.site.shelf.pictures[slug])

    def _calculator(self, slug: str) -> Calculator:
        calculator = self.site.shelf.calculators.get(slug)
        if calculator is None:
            raise HTTPException(404)
        return calculator


def _query(request: Request) -> Query:
    return parse_qsl(request.url.query, keep_blank_values=True)
