"""A response made once and sent many times: its body, its compressed body and its ETag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Bytes; below this, compression saves next to nothing.
_WORTH_COMPRESSING = 200
_TEXT = ("text/", "application/json", "application/ld+json", "application/xml", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class _Form:
    """One of the forms in which a response is sent, its headers as ASGI has them."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Stored:
    """A body with what belongs to it. It is an ASGI app that chooses between 304, compressed and plain; `respond` gives
    the same choice as a response, whose headers can be changed. Each form is made when it is first asked for."""

    def __init__(
        self, body: bytes, media_type: str, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.body = body
        self.status = status
        # Weak, since one tag stands for the plain and the compressed form.
        self.etag = f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'
        self._compressible = media_type.startswith(_TEXT) and len(body) >= _WORTH_COMPRESSING
        charset = "; charset=utf-8" if media_type.startswith("text/") else ""
        self._headers = {"ETag": self.etag, "Vary": "Accept-Encoding", **(headers or {})}
        self._type = {"Content-Type": media_type + charset}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = known = b""
        for name, value in scope["headers"]:
            if name == b"accept-encoding":
                accepted = value
            elif name == b"if-none-match":
                known = value
        form = self._chosen(accepted.decode("latin-1"), known.decode("latin-1"))
        await send({"type": "http.response.start", "status": form.status, "headers": form.headers})
        await send({"type": "http.response.body", "body": form.body})

    def respond(self, asked: Headers) -> Response:
        """The response to a request with these headers."""
        form = self._chosen(asked.get("accept-encoding", ""), asked.get("if-none-match", ""))
        response = Response(form.body, form.status)
        response.raw_headers = list(form.headers)
        return response

    def prepare(self) -> Stored:
        """Makes every form now, rather than when it is first asked for."""
        _ = self._unchanged, self._plain, self._zipped
        return self

    def _chosen(self, accept_encoding: str, if_none_match: str) -> _Form:
        if if_none_match and self.status == 200 and self.etag in map(str.strip, if_none_match.split(",")):
            return self._unchanged
        if self._compressible and accepts_gzip(accept_encoding):
            return self._zipped
        return self._plain

    @cached_property
    def _unchanged(self) -> _Form:
        return _Form(304, _encoded(self._headers.items()), b"")

    @cached_property
    def _plain(self) -> _Form:
        return self._form(self.body, {})

    @cached_property
    def _zipped(self) -> _Form:
        if not self._compressible:
            return self._plain
        # mtime=0: the same body gives the same bytes in every process.
        return self._form(gzip.compress(self.body, compresslevel=9, mtime=0), {"Content-Encoding": "gzip"})

    def _form(self, body: bytes, more: dict[str, str]) -> _Form:
        headers = self._headers | more | {"Content-Length": str(len(body))} | self._type
        return _Form(self.status, _encoded(headers.items()), body)


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


@lru_cache(maxsize=256)
def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip: named, or by "*", and not with a quality of zero."""
    qualities: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        refused = parameters.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000")
        qualities[name.strip()] = not refused
    return qualities.get("gzip", qualities.get("*", False))
