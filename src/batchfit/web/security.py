"""What every response carries to keep pages safe, and what every request must keep to."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchfit.web.bodies import largest_body
from batchfit.web.state import LONGEST_QUERY

#: The only paths that other sites may frame.
FRAMEABLE = "/embed/"
#: What other sites' pages load: the embed with its files, which a sandboxed frame loads as if from elsewhere.
SHARED = (FRAMEABLE, "/embed.js", "/static/", "/og/")

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "font-src": "'self'",
    "connect-src": "'self'",
    "frame-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "require-trusted-types-for": "'script'",
}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "strict-origin-when-cross-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
}
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)


def headers_for(path: str) -> list[tuple[bytes, bytes]]:
    """The security headers of a response to that path, as ASGI has them."""
    return _headers(path.startswith(FRAMEABLE), path.startswith(SHARED))


@cache
def _headers(framed: bool, shared: bool) -> list[tuple[bytes, bytes]]:
    policy = _POLICY | {"frame-ancestors": "*" if framed else "'none'"}
    headers = dict(_HEADERS)
    headers["Content-Security-Policy"] = "; ".join(f"{name} {value}" for name, value in policy.items())
    headers["Cross-Origin-Resource-Policy"] = "cross-origin" if shared else "same-origin"
    if framed:
        # So that a page that isolates itself can frame us too.
        headers["Cross-Origin-Embedder-Policy"] = "require-corp"
    else:
        headers["X-Frame-Options"] = "DENY"
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


class Security:
    """Adds the headers, and turns away requests that no page of ours makes: with a query (414) or a body (413) beyond
    the limit, without a usable host (400), sent by another site's page (403). `refuse` makes the response to those;
    `public_url` is where people reach the app, if that is not what requests are sent to."""

    def __init__(
        self, app: ASGIApp, refuse: Callable[[Scope, int], Response], public_url: str | None = None
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._public_host = urlsplit(public_url).netloc if public_url else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_for(scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        status = self._refusal(scope)
        app = self._app if status is None else self._refused(scope, status)
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> int | None:
        """The status with which a request is turned away, None where it is not."""
        if len(scope["query_string"]) > LONGEST_QUERY:
            return 414
        host = host_of(scope)
        if host is None:
            return 400
        if scope["method"] in ("GET", "HEAD"):
            return None  # and what bodies they have is never read
        headers = Headers(scope=scope)
        if scope["method"] != "OPTIONS" and crosses_sites(headers, {host, self._public_host}):
            return 403
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return 400
        return 413 if len(length) > 12 or int(length) > largest_body(scope["path"]) else None

    def _refused(self, scope: Scope, status: int) -> Response:
        response = self._refuse(scope, status)
        if status == 413:
            response.headers["Connection"] = "close"  # rather than read it all to come to the next request
        return response


def host_of(scope: Scope) -> str | None:
    """The host that a request is for, with its port; None where it names none, several, or one that cannot be."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return _usable(hosts[0]) if len(hosts) == 1 else None


@lru_cache(maxsize=64)
def _usable(host: bytes) -> str | None:
    text = host.decode("latin-1")
    return text if _HOST.fullmatch(text) else None


def crosses_sites(headers: Headers, own: Collection[str | None]) -> bool:
    """Whether another site's page sent a request, as browsers tell: by Sec-Fetch-Site, or by Origin where they do not
    send that (over plain http). `own` are the hosts that are us. What has neither was not sent by a browser's page.

    A frame of /embed is a page of ours, wherever it stands; one that is sandboxed is nobody's, with Origin "null".
    """
    fetched = headers.get("sec-fetch-site")
    if fetched in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return fetched is not None
    return origin.partition("://")[2] not in own
