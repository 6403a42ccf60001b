"""The database's shape, in numbered steps: each release brings an older database to its own."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

#: The key of PostgreSQL's lock under which one server at a time migrates: any number, but always this one.
_LOCK = 0x0BA7C4F1

_VERSIONS = sa.Table("batchfit_migrations", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))


def _1_feedback(connection: sa.Connection) -> None:
    table = sa.Table(
        "feedback",
        sa.MetaData(),
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("helpful", sa.String(20), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("page", sa.String(100), nullable=False),
        sa.Column("language", sa.String(20), nullable=False),
        sa.Column("inputs", sa.Text),
    )
    table.create(connection)


#: In order; a step that a release has brought is never changed afterwards.
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (_1_feedback,)


class TooNew(sa.exc.SQLAlchemyError):
    """The database was last used by a later release, whose shape this one does not know."""


def migrate(connection: sa.Connection) -> None:
    """Takes the steps that the database lacks, within the connection's transaction. Raises TooNew."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    _VERSIONS.create(connection, checkfirst=True)
    reached = connection.scalar(sa.select(sa.func.max(_VERSIONS.c.number))) or 0
    if reached > len(MIGRATIONS):
        raise TooNew(f"the database is at step {reached}, this release of batchfit knows {len(MIGRATIONS)}")
    for number, step in enumerate(MIGRATIONS[reached:], reached + 1):
        step(connection)
        connection.execute(_VERSIONS.insert().values(number=number))
