"""README and docs are true: every command in them runs and prints what they say, every Python example holds."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchfit.cli import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What test_scripts.py runs, since these do not end or start everything anew.
ELSEWHERE = {"scripts/serve", "scripts/test"}


def commands(page: Path) -> list[tuple[str, str]]:
    """The commands of a page with the output shown under each."""
    found = []
    for block in CONSOLE.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.split("  #")[0].strip(), output))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_print_what_the_page_shows(page: Path, overwrite: bool) -> None:
    for command, shown in commands(page):
        program, *arguments = shlex.split(command)
        if program in ELSEWHERE:
            continue
        assert program == "batchfit", f"{page.name} shows a command that no test runs: {command}"
        run = CliRunner(env={"COLUMNS": "100"}).invoke(cli, arguments, prog_name="batchfit")
        assert run.exit_code == 0, f"{command}: {run.output}"
        if overwrite:
            text = page.read_text()
            page.write_text(text.replace(f"$ {command}\n{shown}", f"$ {command}\n{run.stdout}", 1))
        else:
            assert run.stdout == shown, f"{command}: if the difference is meant, pytest --overwrite"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_examples_hold(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_the_readme_opens_with_the_two_commands_then_calc() -> None:
    shown = [command for command, _ in commands(ROOT / "README.md")]
    assert shown[:3] == ["scripts/serve", "scripts/test", "batchfit calc"]
