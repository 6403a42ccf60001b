"""Feedback is kept: in SQLite and in a real PostgreSQL, through crashes of the server and of the database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from http.client import HTTPException
from pathlib import Path

import pytest
import sqlalchemy as sa

from batchfit.errors import BadInput
from batchfit.web import migrations, store
from batchfit.web.feedback import Feedback
from batchfit.web.store import Store, StoreAway, default_url
from tests.running import run
from tests.web.servers import Postgres, Serving, postgres, postgres_binaries, served

BINARIES = postgres_binaries()
NEEDS_POSTGRES = pytest.mark.skipif(BINARIES is None, reason="PostgreSQL's binaries are not installed")

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def entry(at: datetime = NOON, **changed: object) -> Feedback:
    """An entry with all that a person can write in it."""
    made = Feedback(
        str(uuid.uuid4()), at, "needs_work", "نص 文字 😀\n'; DROP TABLE", "plan", "ar", "batch=256&gpus=8"
    )
    return replace(made, **changed)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Postgres]:
    assert BINARIES is not None
    with postgres(BINARIES) as running:
        yield running


@pytest.fixture
def database(cluster: Postgres) -> Postgres:
    """PostgreSQL with nothing in it."""
    engine = sa.create_engine(sa.make_url(cluster.url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS feedback, batchfit_migrations"))
    engine.dispose()
    return cluster


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=NEEDS_POSTGRES)])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'new' / 'feedback.db'}"
    else:
        url = request.getfixturevalue("database").url
    made = Store(url)
    yield made
    made.close()


def add(to: Store, *entries: Feedback) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(to.add(each) for each in entries))

    run(all_of_them())


def test_what_is_kept_comes_back_as_it_was(kept: Store) -> None:
    berlin = timezone(timedelta(hours=1))
    first = entry(NOON - timedelta(days=1), text="")
    second = entry(datetime(2026, 11, 2, 13, 0, 0, 123456, tzinfo=berlin), inputs=None)
    add(kept, second, first)
    assert list(kept.between(None, None)) == [first, second]
    assert list(kept.between(NOON, None)) == [second]
    assert list(kept.between(None, NOON)) == [first]
    assert list(kept.between(NOON - timedelta(days=1), NOON + timedelta(seconds=1))) == [first, second]


def test_what_is_sent_twice_is_kept_once(kept: Store) -> None:
    once = entry()
    add(kept, once, replace(once, text="again"), entry())
    assert Counter(each.id for each in kept.between(None, None))[once.id] == 1
    assert run(kept.reachable())


def test_a_migrated_database_is_opened_again(kept: Store) -> None:
    add(kept, entry())
    again = Store(kept._url.render_as_string(hide_password=False))
    add(again, entry())
    assert len(list(kept.between(None, None))) == 2
    again.close()


def test_what_is_closed_opens_again(kept: Store) -> None:
    add(kept, entry())
    kept.close()
    add(kept, entry())
    assert len(list(kept.between(None, None))) == 2


def test_migrations_are_taken_in_order_and_once(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add(kept, entry())

    def _2_colour(connection: sa.Connection) -> None:
        connection.execute(sa.text("ALTER TABLE feedback ADD COLUMN colour TEXT"))

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, _2_colour))
    later = Store(kept._url.render_as_string(hide_password=False))
    assert len(list(later.between(None, None))) == 1
    later._ready = False
    assert len(list(later.between(None, None))) == 1
    later.close()
    monkeypatch.undo()
    kept._ready = False
    with pytest.raises(StoreAway, match="the database is at step 2, this release of batchfit knows 1"):
        list(kept.between(None, None))


def test_sqlite_s_file_is_made_at_the_first_use_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "feedback.db"
    made = Store(f"sqlite:///{file}")
    assert not file.parent.exists()
    add(made, entry())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with made._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    made.close()


@NEEDS_POSTGRES
def test_postgresql_waits_for_the_disk_even_where_it_is_told_not_to(database: Postgres) -> None:
    made = Store(f"{database.url}&options=-c%20synchronous_commit%3Doff")
    add(made, entry())
    with made._engine.begin() as connection:
        assert connection.scalar(sa.text("SHOW synchronous_commit")) == "off"
        connection.execute(store._DURABLE)
        assert connection.scalar(sa.text("SHOW synchronous_commit")) == "on"
    made.close()


def test_a_database_that_is_away_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "folder"
    blocked.write_text("a file where the folder should be")
    made = Store(f"sqlite:///{blocked / 'feedback.db'}")
    with pytest.raises(StoreAway):
        add(made, entry())
    assert not run(made.reachable())
    blocked.unlink()
    add(made, entry())
    assert [record.getMessage().split(" in ")[0] for record in caplog.records] == [
        "feedback cannot be kept",
        "feedback is kept again",
    ]
    made.close()


def test_a_locked_database_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE", 1.0)
    made = Store(f"sqlite:///{tmp_path / 'feedback.db'}")
    add(made, entry())
    other = sqlite3.connect(tmp_path / "feedback.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with pytest.raises(StoreAway):
        add(made, entry())
    assert time.monotonic() - begun < 5
    other.execute("ROLLBACK")
    other.close()
    add(made, entry())
    made.close()


@pytest.mark.parametrize(
    "url", ["", "mysql://root:secret@host/db", "sqlite://", "sqlite:///:memory:", "feedback.db"]
)
def test_an_address_that_is_no_database(url: str) -> None:
    with pytest.raises(BadInput, match="must be sqlite:///FILE or postgresql://") as wrong:
        Store(url)
    assert wrong.value.field == "database_url"
    assert "secret" not in str(wrong.value)


def test_what_people_wrote_does_not_get_into_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Store(f"sqlite:///{tmp_path / 'feedback.db'}")
    add(made, entry())
    with made._engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE feedback"))
    with pytest.raises(StoreAway) as away:
        add(made, entry(text="between us"))
    assert "between us" not in caplog.text + str(away.value)
    made.close()


def test_data_has_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHFIT_DATA", str(tmp_path))
    assert default_url() == f"sqlite:///{tmp_path}/feedback.db"
    monkeypatch.delenv("BATCHFIT_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_url() == f"sqlite:///{tmp_path}/data/batchfit/feedback.db"


# ---- Storms -------------------------------------------------------------------------------------------------


@dataclass
class Storm:
    """People who send feedback as fast as they can, and what they were answered."""

    server: Serving
    acknowledged: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def person(self) -> None:
        """Sends one entry after another, each with a name of its own, until the server is gone."""
        with closing(self.server.connect()) as connection, suppress(OSError, HTTPException):
            while not self.over.is_set():
                name = str(uuid.uuid4())
                body = json.dumps({"id": name, "helpful": "yes", "page": "plan", "text": "storm " * 50})
                connection.request("POST", "/en/feedback.json", body, {"Content-Type": "application/json"})
                with connection.getresponse() as response:
                    response.read()
                self.statuses[response.status] += 1
                if response.status == 201:
                    self.acknowledged.append(name)

    def wait_for(self, more: int) -> None:
        """Until so many more entries have been acknowledged."""
        wanted, deadline = len(self.acknowledged) + more, time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, self.statuses
            time.sleep(0.01)


@contextmanager
def storm(server: Serving, people: int = 4) -> Iterator[Storm]:
    raging = Storm(server)
    with ThreadPoolExecutor(people) as crowd:
        for _ in range(people):
            crowd.submit(raging.person)
        try:
            yield raging
        finally:
            raging.over.set()


def wait_for_database(server: Serving, state: str) -> None:
    """Until the health check says so: within seconds."""
    deadline = time.monotonic() + 20
    while (told := server.data("/healthz.json")["database"]) != state:
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


def in_store(url: str) -> set[str]:
    reader = Store(url)
    try:
        return {each.id for each in reader.between(None, None)}
    finally:
        reader.close()


def test_every_acknowledged_entry_survives_kill_9(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data' / 'feedback.db'}"
    with served(tmp_path, "--feedback-rate-limit", "none") as server, storm(server) as raging:
        raging.wait_for(more=100)
        server.process.kill()
        server.process.wait(10)
    assert set(raging.statuses) == {201}
    assert len(raging.acknowledged) >= 100
    assert set(raging.acknowledged) <= in_store(url)
    with served(tmp_path, "--feedback-rate-limit", "none") as server, storm(server) as second:
        second.wait_for(more=20)
    assert set(raging.acknowledged + second.acknowledged) <= in_store(url)


@NEEDS_POSTGRES
def test_every_acknowledged_entry_survives_restarts_of_postgresql(database: Postgres, tmp_path: Path) -> None:
    options = ("--feedback-rate-limit", "none", "--database-url", database.url)
    with served(tmp_path, *options) as server, storm(server) as raging:
        raging.wait_for(more=50)
        for how in ("immediate", "fast"):
            database.stop(how)
            wait_for_database(server, "away")
            with closing(server.connect()) as connection:
                connection.request("GET", "/en/plan")
                with connection.getresponse() as page:
                    assert page.status == 200
            database.start()
            wait_for_database(server, "ok")
            raging.wait_for(more=50)
        assert server.process.poll() is None
    assert set(raging.statuses) == {201, 503}
    assert set(raging.acknowledged) <= in_store(database.url)
    assert "feedback cannot be kept" in server.complaints.read_text()
    assert "feedback is kept again" in server.complaints.read_text()
    assert "Traceback" not in server.complaints.read_text()
