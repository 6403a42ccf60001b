"""`batchfit feedback`: what people said about the pages, for the owner of the site."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchfit.errors import BadInput

if TYPE_CHECKING:
    from batchfit.web.feedback import Feedback

#: How a cell begins that a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@click.group()
def command() -> None:
    """What people said about the pages."""


@command.command(
    epilog="""\b
Examples:
  batchfit feedback export --since 2026-11-01 > feedback.csv
  batchfit feedback export --since 2026-11-01 --until 2026-11-30 --json
  batchfit feedback export --database-url postgresql://batchfit@db.example.org/batchfit
"""
)
@click.option(
    "--since", metavar="DATE", help="From this day or moment on, as 2026-11-01 or 2026-11-01T09:30 (UTC)."
)
@click.option("--until", metavar="DATE", help="Up to and with this day, or up to this moment (UTC).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json"]),
    default="csv",
    show_default=True,
    help="CSV for spreadsheets, or one JSON document.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the same as --format json.")
@click.option(
    "--database-url",
    metavar="URL",
    help="Where `batchfit serve` keeps feedback; by default the file in your data folder.",
)
def export(since: str | None, until: str | None, form: str, as_json: bool, database_url: str | None) -> None:
    """Print the feedback, oldest first."""
    first = _moment("since", since, ends=False)
    end = _moment("until", until, ends=True)
    if first and end and end <= first:
        raise BadInput("until", "must be after --since {since}; you gave {until}", since=since, until=until)
    entries = _entries(database_url, first, end)
    if as_json or form == "json":
        click.echo(
            json.dumps({"feedback": [_as_data(each) for each in entries]}, ensure_ascii=False, indent=2)
        )
    else:
        for line in _as_csv(entries):
            click.echo(line, nl=False)


def _entries(url: str | None, since: datetime | None, until: datetime | None) -> Iterator[Feedback]:
    try:
        from batchfit.web.store import Store, StoreAway, default_url
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"feedback needs {missing.name}: install batchfit[web]") from None
    store = Store(url or default_url())
    if store.file and not Path(store.file).exists():
        raise click.ClickException(f"no feedback has been kept in {store.place} so far")
    try:
        yield from store.between(since, until)
    except StoreAway as away:
        raise click.ClickException(f"{store.place} cannot be read: {away}") from None
    finally:
        store.close()


def _moment(option: str, text: str | None, *, ends: bool) -> datetime | None:
    """A day as its first moment, or as the one after its last where a span `ends` with it; a moment as it is."""
    if text is None:
        return None
    try:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return datetime.combine(day + timedelta(days=ends), time.min, UTC)
    except (ValueError, OverflowError):
        template = "must be a day such as 2026-11-01 or a moment such as 2026-11-01T09:30; you gave {given}"
        raise BadInput(option, template, given=text) from None


def _as_data(entry: Feedback) -> dict[str, str | None]:
    return asdict(entry) | {"created_at": entry.created_at.isoformat(timespec="milliseconds")}


def _as_csv(entries: Iterable[Feedback]) -> Iterator[str]:
    """Lines of CSV; a cell that a spreadsheet would run as a formula starts with an apostrophe, which it hides."""
    from batchfit.web.feedback import Feedback

    line = io.StringIO()
    writer = csv.DictWriter(line, [each.name for each in fields(Feedback)], lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        yield _taken(line)
        cells = {name: value or "" for name, value in _as_data(entry).items()}
        writer.writerow(
            {name: f"'{cell}" if cell.startswith(_FORMULA) else cell for name, cell in cells.items()}
        )
    yield _taken(line)


def _taken(line: io.StringIO) -> str:
    text = line.getvalue()
    line.seek(0)
    line.truncate()
    return text
