"""`batchfit feedback export`, as the owner of a site runs it."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchfit.cli import cli
from batchfit.web.feedback import Feedback
from batchfit.web.store import Store
from tests.running import run

MOMENTS = {
    "a": datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC),
    "b": datetime(2026, 11, 1, tzinfo=UTC),
    "c": datetime(2026, 11, 1, 12, 30, tzinfo=UTC),
    "d": datetime(2026, 11, 1, 23, 59, 59, tzinfo=UTC),
    "e": datetime(2026, 11, 2, tzinfo=UTC),
}
TEXTS = {
    "a": '=HYPERLINK("http://evil")',
    "b": "+1",
    "c": "-1, really\nso",
    "d": "@SUM(A1)",
    "e": "good = yes",
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which `batchfit serve` has kept some feedback."""
    monkeypatch.setenv("BATCHFIT_DATA", str(tmp_path))
    store = Store(f"sqlite:///{tmp_path / 'feedback.db'}")
    for name, moment in MOMENTS.items():
        run(
            store.add(
                Feedback(name, moment, "yes", TEXTS[name], "plan", "en", "batch=1" if name == "a" else None)
            )
        )
    store.close()
    return tmp_path


def export(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["feedback", "export", *arguments])


def names(run: Result) -> str:
    assert run.exit_code == 0, run.output
    return "".join(row["id"] for row in csv.DictReader(io.StringIO(run.stdout)))


def test_csv_holds_everything_and_no_formula(data: Path) -> None:
    run = export()
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(run.stdout))}
    assert list(rows) == list(TEXTS)
    for name, text in TEXTS.items():
        cell = rows[name]["text"]
        assert cell == (text if name == "e" else f"'{text}")
    assert rows["a"] | {"text": ""} == {
        "id": "a",
        "created_at": "2026-10-31T23:59:59.000+00:00",
        "helpful": "yes",
        "text": "",
        "page": "plan",
        "language": "en",
        "inputs": "batch=1",
    }


@pytest.mark.parametrize("form", [["--json"], ["--format", "json"]])
def test_json_is_one_document_with_the_texts_as_they_are(data: Path, form: list[str]) -> None:
    document = json.loads(export(*form).stdout)
    assert {each["id"]: each["text"] for each in document["feedback"]} == TEXTS
    assert document["feedback"][1]["inputs"] is None


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--since", "2026-11-01"], "bcde"),
        (["--since", "2026-11-01", "--until", "2026-11-01"], "bcd"),
        (["--until", "2026-10-31"], "a"),
        (["--since", "2026-11-01T12:30"], "cde"),
        (["--since", "2026-11-01T12:30:01Z"], "de"),
        (["--since", "2026-11-01T13:30+01:00", "--until", "2026-11-01T12:31"], "c"),
        (["--since", "2027-01-01"], ""),
    ],
)
def test_a_span_of_time(data: Path, arguments: list[str], found: str) -> None:
    assert names(export(*arguments)) == found


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "01.11.2026", ""])
def test_a_day_that_is_none(data: Path, text: str) -> None:
    run = export("--since", text)
    assert run.exit_code == 2
    assert (
        f"--since must be a day such as 2026-11-01 or a moment such as 2026-11-01T09:30; you gave {text}"
        in (" ".join(run.output.split()) + (" " if not text else ""))
    )


def test_a_span_that_ends_before_it_begins(data: Path) -> None:
    run = export("--since", "2026-11-02", "--until", "2026-11-01")
    assert run.exit_code == 2
    assert "--until must be after --since 2026-11-02; you gave 2026-11-01" in run.output


def test_where_nothing_has_been_kept(tmp_path: Path) -> None:
    run = export("--database-url", f"sqlite:///{tmp_path}/none.db")
    assert run.exit_code == 1
    assert "no feedback has been kept in" in run.output
    assert not (tmp_path / "none.db").exists()


def test_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("This is no database. " * 100)
    run = export("--database-url", f"sqlite:///{tmp_path}/broken.db")
    assert run.exit_code == 1
    assert "cannot be read: file is not a database" in run.output
    run = export("--database-url", "mysql://root@localhost/feedback")
    assert run.exit_code == 2
    assert "--database-url must be sqlite:///FILE or postgresql://USER@HOST/NAME" in run.output
