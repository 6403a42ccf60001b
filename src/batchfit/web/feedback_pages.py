"""The pages of feedback: the form by itself, its answer, the thanks; and the same for scripts, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from batchfit.errors import BadInput
from batchfit.sentences import Sentence, in_language
from batchfit.web.api import as_json, failure
from batchfit.web.bodies import read_body
from batchfit.web.feedback import FIELDS, Draft, read_draft, read_json
from batchfit.web.negotiation import language_in_path
from batchfit.web.refusals import Refusal, refusal_for
from batchfit.web.shared import address
from batchfit.web.site import Site, translator
from batchfit.web.state import LONGEST_QUERY
from batchfit.web.stored import Stored
from batchfit.wording import complaint

if TYPE_CHECKING:
    from batchfit.web.limits import Rates
    from batchfit.web.store import Store

#: The pages' name in addresses, which no calculator may have.
SLUG = "feedback"

#: Seconds after which a database that is away may be back.
_WAIT = 30

_AWAY = Refusal(
    Sentence("Your feedback could not be kept just now"),
    Sentence("Nothing is lost: what you wrote is still here. Send it again in a moment."),
)


_THANKS = Sentence("Thank you: your feedback has been kept.")


class FeedbackPages:
    """Answers to everything about feedback. `store` is where it goes."""

    def __init__(self, site: Site, store: Store, rates: Rates | None) -> None:
        self._site, self._store, self._rates = site, store, rates

    def routes(self) -> list[Route]:
        """The addresses of these pages."""
        return [
            Route(f"/{{lang}}/{SLUG}", self.form, methods=["GET"]),
            Route(f"/{{lang}}/{SLUG}", self.send, methods=["POST"]),
            Route(f"/{{lang}}/{SLUG}.json", self.send_data, methods=["POST"]),
            Route(f"/{{lang}}/{SLUG}/thanks", self.thanks),
        ]

    async def form(self, request: Request) -> Response:
        """The form, about the page that the query names, with the answer that was chosen there."""
        given = {name: request.query_params.get(name, "") for name in ("page", "helpful")}
        path = self._path(language_in_path(request, self._site.languages), given["page"])
        return self._page(request, Draft(given), _query_of(request, path))

    async def send(self, request: Request) -> Response:
        """What the form sends: thanks, or the form again with all that was typed and what is wrong."""
        lang = language_in_path(request, self._site.languages)
        fields = await _form(request)
        back = fields.pop("back", None)
        draft = read_draft(fields, lang, self._site.feedback_pages)
        status, wait, refusal = await self._keep(request, draft)
        if refusal or draft.wrong:
            return self._page(request, draft, back, status, wait, refusal)
        query = f"page={draft.given['page']}"
        if back and len(back) < LONGEST_QUERY // 2:
            query += f"&{back}"
        return RedirectResponse(address(f"/{lang}/{SLUG}/thanks", query), 303, {"Cache-Control": "no-store"})

    async def send_data(self, request: Request) -> Response:
        """The same for scripts."""
        lang = language_in_path(request, self._site.languages)
        try:
            draft = read_draft(await _json(request), lang, self._site.feedback_pages)
        except BadInput as wrong:
            draft = Draft(wrong={wrong.field: wrong})
        status, wait, refusal = await self._keep(request, draft)
        if refusal:
            message = f"{in_language(refusal.title, lang)}. {in_language(refusal.advice, lang)}"
            response = failure(message, status).respond(request.headers)
            response.headers["Retry-After"] = str(wait)
        elif draft.feedback:
            said = {"id": draft.feedback.id, "message": in_language(_THANKS, lang)}
            response = as_json(said, status).respond(request.headers)
        else:
            errors = [
                {"field": name, "message": complaint(wrong, lang)} for name, wrong in draft.wrong.items()
            ]
            response = as_json({"errors": errors}, status).respond(request.headers)
        response.headers["Cache-Control"] = "no-store"
        del response.headers["Access-Control-Allow-Origin"]
        return response

    async def thanks(self, request: Request) -> Response:
        """What one sees after sending without JavaScript, with the way back to the page and its values."""
        lang = language_in_path(request, self._site.languages)
        named, _, query = request.url.query.partition("&")
        page = named.removeprefix("page=")
        if page not in self._site.feedback_pages:
            raise HTTPException(404)
        html = self._render(lang, page, sent=True, back=address(self._path(lang, page), query))
        return Stored(html.encode(), "text/html", 200, {"Cache-Control": "no-store"}).respond(request.headers)

    async def _keep(self, request: Request, draft: Draft) -> tuple[int, int, Refusal | None]:
        """The status; seconds to wait and the reason where a draft that is right cannot be kept now."""
        if draft.feedback is None:
            return (400 if "body" in draft.wrong else 422), 0, None
        if self._rates and (wait := self._rates.feedback(request.scope)):
            return 429, wait, refusal_for(429, wait)
        from batchfit.web.store import StoreAway

        try:
            await self._store.add(draft.feedback)
        except StoreAway:
            return 503, _WAIT, _AWAY
        return 201, 0, None

    def _page(
        self,
        request: Request,
        draft: Draft,
        query: str | None,
        status: int = 200,
        wait: int = 0,
        refusal: Refusal | None = None,
    ) -> Response:
        """The form; `query` has the values of the page that it is about, None where they are not known."""
        lang = language_in_path(request, self._site.languages)
        page = draft.given.get("page", "")
        page = page if page in self._site.feedback_pages else "home"
        html = self._render(
            lang,
            page,
            sent=False,
            status=status,
            refusal=refusal and (in_language(refusal.title, lang), in_language(refusal.advice, lang)),
            draft=draft.given,
            errors={name: complaint(wrong, lang) for name, wrong in draft.wrong.items()},
            back=address(self._path(lang, page), query or ""),
            query=query,
            has_values=page != "home",
        )
        response = Stored(html.encode(), "text/html", status, {"Cache-Control": "no-store"}).respond(
            request.headers
        )
        if wait:
            response.headers["Retry-After"] = str(wait)
        return response

    def _render(self, lang: str, page: str, **context: Any) -> str:
        return self._site.render(
            "feedback.html",
            lang,
            feedback_page=page,
            about=self._title(lang, page),
            switch={other: address(f"/{other}/{SLUG}", f"page={page}") for other in self._site.languages},
            **context,
        )

    def _title(self, lang: str, page: str) -> str:
        if calculator := self._site.shelf.calculators.get(page):
            return translator(lang)(calculator.title)
        return translator(lang)("Batch planner") if page == "plan" else "batchfit"

    def _path(self, lang: str, page: str) -> str:
        return f"/{lang}/{'' if page == 'home' else page}"


async def _form(request: Request) -> dict[str, str]:
    body = await _body(request, "application/x-www-form-urlencoded")
    # What a browser's extension adds is none of ours; `back` are the values of the page that one goes back to. Forms
    # end lines in two characters, of which people see one.
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: value.replace("\r\n", "\n") for name, value in pairs if name in (*FIELDS, "back")}


async def _json(request: Request) -> dict[str, Any]:
    return read_json(await _body(request, "application/json"))


async def _body(request: Request, wanted: str) -> bytes:
    """The body, which must be of the wanted kind. Raises HTTPException: 415 where it is of another."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != wanted:
        raise HTTPException(415)
    return await read_body(request)


def _query_of(request: Request, path: str) -> str | None:
    """The values that stood in the address of the page that a form was sent from; None where it was another page."""
    try:
        came_from = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    return came_from.query if came_from.path == path else None
