"""A real Chromium and a real server, one of each for the session.

Whatever goes wrong behind a test fails it: an error in the console, a violation of the security policy, an
exception in the page, a fault of the server.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from starlette.types import ASGIApp, Receive, Scope, Send

from batchfit.web.app import create_app

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Server:
    """A running app: where it is, and the faults it had."""

    url: str
    faults: list[BaseException] = field(default_factory=list)


class _Watched:
    def __init__(self, app: ASGIApp, faults: list[BaseException]) -> None:
        self.app, self.faults = app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except Exception as fault:
            self.faults.append(fault)
            raise


@contextmanager
def serving(app: ASGIApp) -> Iterator[Server]:
    """The app on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(f"http://127.0.0.1:{free.getsockname()[1]}")
        config = uvicorn.Config(_Watched(app, server.faults), log_level="critical", lifespan="off")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [free]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not running.started:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        yield server
        running.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving(create_app()) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "these tests need Debian's chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_context(browser: Browser, server: Server) -> Iterator[Callable[..., BrowserContext]]:
    """Opens browser contexts, and fails the test for anything that went wrong in them; a `complaint` of the
    console may be expected."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []
    # A page about a wrong value has the status 422 or 400, which the console reports; it is no error of the page.
    expected = ["the server responded with a status of 4"]

    def opened(*, complaint: str = "", **options: Any) -> BrowserContext:
        if complaint:
            expected.append(complaint)
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "base_url": server.url} | options
        )
        context.set_default_timeout(10_000)
        context.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        contexts.append(context)
        return context

    yield opened
    for context in contexts:
        context.close()
    assert [text for text in wrong if not any(part in text for part in expected)] == []
    assert server.faults == []


@pytest.fixture
def page(open_context: Callable[..., BrowserContext]) -> Page:
    """A page in a context of its own, in English, wide, light."""
    return open_context(locale="en-GB").new_page()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Other people's site, on another origin: puts a page there and gives its address."""
    site = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    threading.Thread(target=site.serve_forever, daemon=True).start()
    (tmp_path / "favicon.ico").touch()

    def put(html: str) -> str:
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        return f"http://127.0.0.1:{site.server_port}/page.html"

    yield put
    site.shutdown()
    site.server_close()
