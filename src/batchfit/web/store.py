"""Where feedback is kept: SQLite in one file, or PostgreSQL; an entry is acknowledged once it is on disk."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from batchfit.errors import BadInput
from batchfit.web.feedback import Feedback
from batchfit.web.migrations import migrate

_Result = TypeVar("_Result")

#: Seconds within which an entry is kept, or the person told that it cannot be for now.
PATIENCE = 8.0
#: Seconds for which an answer to "is the database there?" stands.
_FRESH = 1.0
#: Entries written to PostgreSQL at the same time, each over a connection of its own.
_CONNECTIONS = 4

_LOG = logging.getLogger("batchfit.feedback")


class _Utc(sa.TypeDecorator[datetime]):
    """A moment. SQLite keeps no time zone: there it is UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value and (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))


_FEEDBACK = sa.table(
    "feedback",
    sa.column("id", sa.String),
    sa.column("created_at", _Utc),
    *(sa.column(name, sa.String) for name in ("helpful", "text", "page", "language", "inputs")),
)


class StoreAway(Exception):
    """The database cannot be reached or written to now."""


class Store:
    """The feedback in a database.

    `url` is "sqlite:///FILE" or "postgresql://...". Nothing is opened, and no file made, before the first use. Raises
    BadInput for an address that is neither.
    """

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)
        self._engine = _engine(self._url)
        self._ready = False
        self._preparing = threading.Lock()
        self._threads = self._new_threads()
        self._seen: tuple[float, bool] | None = None
        self._complained = False

    @property
    def place(self) -> str:
        """The database's address, without a password."""
        return self._url.render_as_string(hide_password=True)

    @property
    def file(self) -> Path | None:
        """SQLite's file; None for PostgreSQL."""
        return Path(self._url.database or "") if self._engine.dialect.name == "sqlite" else None

    async def add(self, feedback: Feedback) -> None:
        """Keeps an entry: it is on disk when this returns. One that is there stays as it is. Raises StoreAway."""
        await self._in_thread(lambda: self._add(feedback), PATIENCE)

    async def reachable(self) -> bool:
        """Whether the database is there now."""
        if self._seen is None or time.monotonic() - self._seen[0] > _FRESH:
            try:
                await self._in_thread(self._touch, PATIENCE / 4)
            except StoreAway:
                self._seen = (time.monotonic(), False)
            else:
                self._seen = (time.monotonic(), True)
        return self._seen[1]

    def between(self, since: datetime | None, until: datetime | None) -> Iterator[Feedback]:
        """The entries from `since` on and before `until`, oldest first. Raises StoreAway."""
        query = sa.select(_FEEDBACK).order_by(_FEEDBACK.c.created_at, _FEEDBACK.c.id)
        if since:
            query = query.where(_FEEDBACK.c.created_at >= since)
        if until:
            query = query.where(_FEEDBACK.c.created_at < until)
        try:
            self._prepare()
            with self._engine.connect().execution_options(yield_per=500) as connection:
                for row in connection.execute(query).mappings():
                    yield Feedback(**row)
        except sa.exc.SQLAlchemyError as error:
            raise StoreAway(_reason(error)) from error

    def close(self) -> None:
        """Finishes what is being written and closes all connections; the next use opens them again."""
        threads, self._threads = self._threads, self._new_threads()
        threads.shutdown(cancel_futures=True)
        self._engine.dispose()

    def _new_threads(self) -> ThreadPoolExecutor:
        # SQLite has one writer.
        most = 1 if self._engine.dialect.name == "sqlite" else _CONNECTIONS
        return ThreadPoolExecutor(most, thread_name_prefix="feedback")

    def _add(self, feedback: Feedback) -> None:
        self._prepare()
        try:
            with self._engine.begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(_DURABLE)
                connection.execute(sa.insert(_FEEDBACK).values(**asdict(feedback)))
        except sa.exc.IntegrityError:
            pass  # sent again, since the first answer did not arrive

    def _touch(self) -> None:
        self._prepare()
        with self._engine.connect() as connection:
            connection.execute(sa.select(_FEEDBACK.c.id).limit(1))

    def _prepare(self) -> None:
        with self._preparing:
            if self._ready:
                return
            if self.file:
                _make(self.file)
            with self._engine.begin() as connection:
                migrate(connection)
            self._ready = True

    async def _in_thread(self, work: Callable[[], _Result], seconds: float) -> _Result:
        loop = asyncio.get_running_loop()
        try:
            result = await asyncio.wait_for(loop.run_in_executor(self._threads, work), seconds)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            # Of Python 3.11 on a TimeoutError is an OSError, too.
            reason = _reason(error) if str(error) else f"no answer within {seconds:g} seconds"
            if not self._complained:
                _LOG.warning("feedback cannot be kept in %s: %s", self.place, reason)
            self._complained = True
            raise StoreAway(reason) from error
        if self._complained:
            _LOG.warning("feedback is kept again in %s", self.place)
        self._complained = False
        return result


def default_url() -> str:
    """SQLite in the person's data folder, or in BATCHFIT_DATA."""
    return f"sqlite:///{data_folder() / 'feedback.db'}"


def data_folder() -> Path:
    """Where data is kept that nobody can make again: BATCHFIT_DATA, else the platform's folder for it."""
    if asked := os.environ.get("BATCHFIT_DATA"):
        return Path(asked)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "batchfit" / "data"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "batchfit"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "batchfit"


#: A server may be set to answer before an entry is on disk: not for us.
_DURABLE = sa.select(sa.func.set_config("synchronous_commit", "on", True)).where(
    sa.func.current_setting("synchronous_commit") == "off"
)


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = None
    name = parsed.drivername if parsed else ""
    if parsed and name in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed and name == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed
    shown = parsed.render_as_string(hide_password=True) if parsed else url
    message = f"must be sqlite:///FILE or postgresql://USER@HOST/NAME; you gave {shown}"
    raise BadInput("database_url", "{message}", message=message)


def _engine(url: sa.URL) -> sa.Engine:
    # hide_parameters: what people wrote does not go into error messages.
    if url.get_backend_name() == "postgresql":
        if find_spec("psycopg") is None:
            message = "needs psycopg for PostgreSQL; install it with: pip install 'batchfit[postgres]'"
            raise BadInput("database_url", "{message}", message=message)
        # A server that falls silent is given up, rather than waited for as long as the network would.
        patience = {"connect_timeout": "5", "tcp_user_timeout": "5000"}
        url = url.set(query={**patience, **url.query})
        return sa.create_engine(url, hide_parameters=True, pool_pre_ping=True, pool_size=_CONNECTIONS)
    engine = sa.create_engine(url, connect_args={"timeout": PATIENCE / 2}, hide_parameters=True)
    sa.event.listen(engine, "connect", _set_up)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: Any, record: object) -> None:
    """WAL lets an export read while entries are written; FULL waits for the disk at each of them."""
    connection.isolation_level = None  # transactions begin where SQLAlchemy begins them
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: sa.Connection) -> None:
    # A transaction that reads before it writes would else fail where another one wrote in between.
    reads = connection.get_execution_options().get("yield_per")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _make(file: Path) -> None:
    """Makes the file, which only its owner may read: people's words are in it."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))


def _reason(error: Exception) -> str:
    """The database's own words, on one line."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split())
