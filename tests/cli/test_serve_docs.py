"""docs/serve.md is true: its commands serve, its limits are the code's, its examples have the fields they show."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchfit.cli import cli
from batchfit.cli.serve import command as serve_command
from batchfit.web import bodies, server, state
from tests.web.servers import served

PAGE = (Path(__file__).parent.parent.parent / "docs" / "serve.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]
SERVING = [shlex.split(line)[2:] for line in COMMANDS if line.startswith("batchfit serve")]
EXPORTING = [shlex.split(line)[1:] for line in COMMANDS if line.startswith("batchfit feedback")]
LOGGED, HEALTH = "request_id", "database"


def test_every_command_is_run_here() -> None:
    assert len(SERVING) + len(EXPORTING) == len(COMMANDS) > 8


@pytest.mark.parametrize("arguments", SERVING, ids=" ".join)
def test_a_command_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feedback").mkdir()
    with served(tmp_path, *arguments) as running:
        health = running.data("/healthz.json")
        # Nothing answers at the example's address.
        expected = (
            "off" if "--no-feedback" in arguments else "away" if "example.org/" in str(arguments) else "ok"
        )
        assert health["database"] == expected
        assert set(health) == set(example(HEALTH))
        assert running.stop() == 0
    if "--access-log" in arguments:
        assert set(json.loads(Path("access.log").read_text().splitlines()[0])) == set(example(LOGGED))


def example(with_key: str) -> dict[str, object]:
    """The page's example of a JSON document."""
    found: dict[str, object] = json.loads(next(re.finditer(rf'^{{.*"{with_key}".*}}$', PAGE, re.M))[0])
    return found


def test_feedback_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as running, running.post("/en/feedback.json", helpful="yes", page="plan") as answer:
        assert answer.status == 201
        assert running.stop() == 0
    monkeypatch.setenv("BATCHFIT_DATA", str(tmp_path / "data"))
    for arguments in EXPORTING:
        run = CliRunner().invoke(cli, [*arguments])
        assert run.exit_code == 0, run.output
        assert "created_at" in run.stdout or "feedback" in run.stdout


def test_the_limits_are_those_of_the_code() -> None:
    defaults = {option.name: option.default for option in serve_command.params}
    for told in (
        f"`--rate-limit`, {defaults['rate_limit']} |",
        f"`--feedback-rate-limit`, {defaults['feedback_rate_limit']} |",
        f"| {state.LONGEST_QUERY} bytes |",
        f"| {bodies.LARGEST_BODY // 1024} KiB; {bodies.LARGEST_MODEL / 1e6:g} MB with",
        f"head has arrived | {server.LONGEST_HEAD:g} s |",
        f"body has arrived | {bodies.LONGEST_ARRIVAL:g} s |",
        f"within {server.LONGEST_FAREWELL} seconds",
    ):
        assert told in PAGE


def test_every_option_of_the_page_is_one() -> None:
    options = {name for option in serve_command.params for name in (*option.opts, *option.secondary_opts)}
    known = options | {"--help", "--since", "--until", "--json"}
    assert "--metrics" in options
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= known


def test_help_shows_examples_that_are_understood() -> None:
    shown = CliRunner().invoke(cli, ["serve", "--help"], prog_name="batchfit").stdout
    examples = [line.strip() for line in shown.partition("Examples:")[2].splitlines() if line.strip()]
    assert len(examples) == 5
    for line in examples:
        arguments = shlex.split(line)[2:]
        serve_command.make_context("serve", arguments)
