"""What every response carries to keep pages safe, and what every request must keep to."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchfit.web.state import LONGEST_QUERY

#: The only paths that other sites may frame.
FRAMEABLE = "/embed/"
#: What other sites' pages load: the embed with its files, which a sandboxed frame loads as if from elsewhere.
SHARED = (FRAMEABLE, "/embed.js", "/static/")

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
    """Adds the headers, and turns away requests that no page of ours makes: with a query beyond the limit (414), or
    without a usable host (400). `refuse` makes the response to those."""

    def __init__(self, app: ASGIApp, refuse: Callable[[Scope, int], Response]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_for(scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        status = refusal(scope)
        app = self._app if status is None else self._refuse(scope, status)
        await app(scope, receive, send_with_headers)


def refusal(scope: Scope) -> int | None:
    """The status with which a request is turned away, None where it is not."""
    if len(scope["query_string"]) > LONGEST_QUERY:
        return 414
    host = Headers(scope=scope).get("host", "")
    return None if _HOST.fullmatch(host) else 400
