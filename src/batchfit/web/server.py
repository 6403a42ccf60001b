"""The server below the app: uvicorn, with an end to its patience and a clean way out."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Seconds within which a request's head has to arrive, from its first byte or from when the connection was made.
LONGEST_HEAD = 10.0
#: Seconds for which requests in flight may go on once the server is told to stop.
LONGEST_FAREWELL = 20

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Impatient(HttpToolsProtocol):
    """Closes connections on which a request's head does not arrive: uvicorn would wait for ever, and whoever opens many
    such connections would keep everybody else out."""

    _waiting: asyncio.TimerHandle | None = None
    _in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and self._waiting is None:
            self._wait()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(LONGEST_HEAD, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.write(_TOO_SLOW)
            self.transport.close()


def serve(app: ASGIApp, *, host: str, port: int, trusted_proxies: str = "") -> None:
    """Serves until SIGINT or SIGTERM, then lets requests in flight finish.

    `trusted_proxies` are addresses or networks, with commas between them, whose X-Forwarded-For and X-Forwarded-Proto
    are believed; "*" believes everybody.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Impatient,
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies or None,
        timeout_graceful_shutdown=LONGEST_FAREWELL,
    )
    # uvicorn raises the signal that it was stopped by once more when all is done.
    signal.signal(signal.SIGTERM, _leave)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
