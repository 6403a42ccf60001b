"""Pages that are made once and answered from memory, before anything else looks at the request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice

from starlette.types import ASGIApp, Receive, Scope, Send

from batchfit.web.stored import Stored

#: Names of the app whose pages are kept: it has one or two, and whoever makes up others gains nothing by it.
_ORIGINS = 4


class Kept:
    """Pages by origin ("https://example.org") and path, none of which depends on a query."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[str, Stored]] = {}

    def page(self, origin: str, path: str, make: Callable[[], Stored]) -> Stored:
        """The page, made and kept where it is not there yet. Those of the first origin are kept for good."""
        pages = self._pages.setdefault(origin, {})
        if len(self._pages) > _ORIGINS:
            self._pages.pop(next(islice(self._pages, 1, None)), None)
        if path not in pages:
            pages[path] = make().prepare()
        return pages[path]

    def find(self, origin: str, path: str) -> Stored | None:
        """The page, if it is there."""
        pages = self._pages.get(origin)
        return pages.get(path) if pages else None


class Filling:
    """Makes pages in the background, one after the other, until it is told to stop."""

    #: Seconds left to requests between two pages.
    PAUSE = 0.005

    def __init__(self, kept: Kept, origin: str, pages: Iterable[tuple[str, Callable[[], Stored]]]) -> None:
        self._kept, self._origin, self._pages = kept, origin, pages
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        #: Whether every page is made.
        self.done = False

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the page that is being made, if it ever began."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        for path, make in self._pages:
            if self._stopped.wait(self.PAUSE):
                return
            # What cannot be made is told to whoever asks for it.
            with suppress(Exception):
                self._kept.page(self._origin, path, make)
        self.done = True


class FromMemory:
    """Answers with what is kept; where nothing is, `app` does. `find` looks a page up: it gets the scope of a GET
    without a query."""

    def __init__(self, app: ASGIApp, find: Callable[[Scope], Stored | None]) -> None:
        self._app, self._find = app, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not scope["query_string"] and scope["method"] in ("GET", "HEAD"):
            app = self._find(scope) or app
        await app(scope, receive, send)
