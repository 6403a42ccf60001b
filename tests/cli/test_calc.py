"""`batchfit calc` as a person calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchfit import calculators
from batchfit.cli import cli

GOLDEN = Path(__file__).parent / "golden"


def calc(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(cli, ["calc", *arguments], prog_name="batchfit")


def outputs(*arguments: str) -> dict[str, object]:
    run = calc(*arguments, "--json")
    assert run.exit_code == 0, run.output
    answer = json.loads(run.stdout)
    assert isinstance(answer["outputs"], dict)
    return answer["outputs"]


def test_the_defaults() -> None:
    assert outputs() == {"effective_batch_size": 32, "activation_memory_bytes": 2_000_000_000}
    assert outputs() == outputs("gradient-accumulation")


def test_gib_and_four_replicas() -> None:
    given = ("--micro-batch", "4", "--accumulation-steps", "8", "--replicas", "4")
    assert outputs(*given, "--activation-per-sample", "0.5GiB") == {
        "effective_batch_size": 128,
        "activation_memory_bytes": 2147483648,
    }


def test_a_target_batch() -> None:
    found = outputs("--target-batch", "250", "--micro-batch", "4", "--replicas", "8")
    assert (found["accumulation_steps"], found["drift"]) == (8, 6)
    assert found["choices"] == [
        {"accumulation_steps": 7, "effective_batch_size": 224, "drift": -26},
        {"accumulation_steps": 8, "effective_batch_size": 256, "drift": 6},
    ]


def test_numbers_are_read_as_the_language_writes_them() -> None:
    assert outputs("--activation-per-sample", "0,75", "--lang", "de")["activation_memory_bytes"] == 3 * 10**9
    assert outputs("--activation-per-sample", "0.75", "--lang", "de")["activation_memory_bytes"] == 3 * 10**9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--micro-batch", "2.5"],
            "--micro-batch must be a whole number from 1 to 1,048,576; you typed 2.5",
        ),
        (
            ["--target-batch", "64", "--accumulation-steps", "8"],
            "--accumulation-steps is what --target-batch finds: give one of the two",
        ),
        (
            ["no-such-calculator"],
            f"there is no calculator 'no-such-calculator'; there are: {', '.join(calculators.slugs())}",
        ),
        (["--activation-per-sample", "big"], "must be a size from 0 to 1,000,000 GB; you typed big"),
        (["--lang", "tlh"], "'tlh' is not one of"),
    ],
)
def test_wrong_words_exit_with_2_and_say_what_is_wrong(arguments: list[str], message: str) -> None:
    run = calc(*arguments)
    assert run.exit_code == 2
    assert message in " ".join(run.stderr.split())
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calc", []),
        ("calc-target", ["--target-batch", "250", "--micro-batch", "4", "--replicas", "8"]),
        ("calc-exact", ["--target-batch", "256", "--replicas", "8"]),
        ("calc-gib", ["--activation-per-sample", "512MiB"]),
        ("calc-ambiguous", ["--lang", "de", "--activation-per-sample", "1.500"]),
        ("calc-de", ["--lang", "de", "--activation-per-sample", "0,75"]),
        ("calc-fr", ["--lang", "fr", "--target-batch", "250", "--replicas", "8"]),
        ("calc-zh-Hant", ["--lang", "zh-Hant"]),
        ("calc-ja", ["--lang", "ja", "--target-batch", "250", "--replicas", "8"]),
        ("calc-ko", ["--lang", "ko", "--target-batch", "250", "--replicas", "8"]),
        ("calc-ar", ["--lang", "ar", "--target-batch", "250", "--replicas", "8"]),
        ("calc-explain", ["--explain", "--activation-per-sample", "0.123456"]),
        ("calc-gradient-accumulation-help", ["gradient-accumulation", "--help"]),
    ],
)
def test_what_a_person_sees(name: str, arguments: list[str], overwrite: bool) -> None:
    run = calc(*arguments)
    assert run.exit_code == 0, run.output
    golden = GOLDEN / f"{name}.txt"
    if overwrite:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(run.stdout)
    assert run.stdout == golden.read_text(), "look at the difference; if it is meant: pytest --overwrite"


def test_the_program_itself_runs() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "batchfit", "calc", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout)["outputs"]["effective_batch_size"] == 32
    wrong = subprocess.run(
        [sys.executable, "-m", "batchfit", "calc", "--micro-batch", "2.5"], capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
