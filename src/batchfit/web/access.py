"""An id for every request, and a line about it in the access log: no addresses, and nothing that people typed."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from batchfit.web.metrics import Metrics

#: An id that another server has given a request already: it goes into logs and headers as it is.
_GIVEN = re.compile(rb"[A-Za-z0-9._~+/=-]{1,100}")

_STDERR = 2

#: Seconds after which to look whether the log's file has been moved away.
_LOOK = 1.0


class AccessLog:
    """Lines of JSON on stderr, or at the end of a file, which may be moved away for the next one at any time.

    `queries` adds what stands behind "?" in addresses: the values that people typed. Raises OSError where the file
    cannot be written.
    """

    def __init__(self, file: Path | None = None, *, queries: bool = False) -> None:
        self._file = file
        self._queries = queries
        self._out = _appending(file) if file else _STDERR
        self._looked = 0.0

    def note(self, scope: Scope, request_id: str, status: int, size: int, seconds: float) -> None:
        """Writes the line of one request; `size` is that of the body sent, in bytes."""
        now = time.time()
        # Put together by hand, since this is a good part of what a page from memory costs.
        line = (
            f'{{"time": "{_second(int(now))}.{int(now * 1000) % 1000:03d}Z", "request_id": "{request_id}", '
            f'"method": {_quoted(scope["method"])}, "path": {_quoted(scope["path"])}, '
            f'"status": {status}, "bytes": {size}, "ms": {seconds * 1000:.2f}'
        )
        if self._queries:
            line += f', "query": {json.dumps(scope["query_string"].decode("latin-1"))}'
        # A full disk keeps nobody from reading.
        with suppress(OSError):
            if self._file and now - self._looked > _LOOK:
                self._looked = now
                self._follow(self._file)
            # One call for a line: those of several servers that share a file do not get mixed up.
            os.write(self._out, f"{line}}}\n".encode())

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            os.close(self._out)

    def _follow(self, file: Path) -> None:
        """Opens the file anew where another has taken its place, or none."""
        try:
            moved = not os.path.samestat(os.fstat(self._out), os.stat(file))
        except FileNotFoundError:
            moved = True
        if moved:
            os.close(self._out)
            self._out = _appending(file)


def _appending(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


_quoted = lru_cache(maxsize=1024)(json.dumps)


class Access:
    """Gives each request an id, that of X-Request-Id where it has one; notes it once it is answered."""

    def __init__(self, app: ASGIApp, log: AccessLog | None, metrics: Metrics | None) -> None:
        self._app, self._log, self._metrics = app, log, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        request_id = _id_of(scope)
        status = size = 0

        async def send_noted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            seconds = time.perf_counter() - begun
            # Without an answer the person has gone away.
            if self._log:
                self._log.note(scope, request_id.decode(), status or 499, size, seconds)
            if self._metrics:
                self._metrics.note(scope, status or 499, seconds)


def _id_of(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
