"""A response made once and sent many times: its body, its compressed body and its ETag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import Response

#: Below this, compression costs more than it saves.
_WORTH_COMPRESSING = 500
_TEXT = ("text/", "application/json", "application/ld+json", "application/xml", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class Stored:
    """A body with what belongs to it. `respond` chooses between 304, compressed and plain."""

    body: bytes
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    _zipped: bytes | None = field(init=False)
    _etag: str = field(init=False)

    def __post_init__(self) -> None:
        compressible = self.media_type.startswith(_TEXT) and len(self.body) >= _WORTH_COMPRESSING
        # mtime=0: the same body gives the same bytes in every process.
        zipped = gzip.compress(self.body, compresslevel=9, mtime=0) if compressible else None
        object.__setattr__(self, "_zipped", zipped)
        # Weak, since one tag stands for the plain and the compressed form.
        object.__setattr__(self, "_etag", f'W/"{hashlib.sha256(self.body).hexdigest()[:20]}"')

    def respond(self, asked: Headers) -> Response:
        """The response to a request with these headers."""
        headers = {"ETag": self._etag, "Vary": "Accept-Encoding", **self.headers}
        known = {tag.strip() for tag in asked.get("if-none-match", "").split(",")}
        if self.status == 200 and self._etag in known:
            return Response(status_code=304, headers=headers)
        body = self.body
        if self._zipped is not None and accepts_gzip(asked.get("accept-encoding", "")):
            body = self._zipped
            headers["Content-Encoding"] = "gzip"
        return Response(body, self.status, headers, media_type=self.media_type)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip: named, or by "*", and not with a quality of zero."""
    qualities: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        refused = parameters.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000")
        qualities[name.strip()] = not refused
    return qualities.get("gzip", qualities.get("*", False))
