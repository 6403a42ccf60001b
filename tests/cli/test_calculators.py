"""`batchfit calculators`, and `batchfit calc` for a calculator with everything that a record can have."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from batchfit import calculators
from batchfit.cli import cli
from batchfit.cli.calc import calculator_command
from tests.everything import CALCULATOR


def everything(*arguments: str) -> Result:
    return CliRunner().invoke(calculator_command(CALCULATOR), list(arguments), terminal_width=100)


def words(run: Result) -> str:
    return " ".join(run.output.split()).replace("\xa0", " ")


def test_every_calculator_is_listed_with_its_title_and_fields() -> None:
    run = CliRunner().invoke(cli, ["calculators", "--json"])
    listed = {each["slug"]: each for each in json.loads(run.stdout)["calculators"]}
    assert tuple(listed) == calculators.slugs()
    for slug, each in listed.items():
        calculator = calculators.load(slug)
        assert each["title"] == calculator.title
        assert [field["option"] for field in each["fields"]] == [
            field.option for field in calculator.all_fields
        ]
        assert [output["name"] for output in each["outputs"]] == [
            output.name for output in calculator.outputs
        ]


def test_people_see_the_calculators_by_group() -> None:
    run = CliRunner().invoke(cli, ["calculators"])
    assert run.output.startswith("Training\n")
    lines = [line.split(maxsplit=1) for line in run.output.splitlines() if line.startswith("  ")]
    assert [tuple(line) for line in sorted(lines)] == [
        (slug, calculators.load(slug).title) for slug in calculators.slugs()
    ]


def test_the_help_of_calc_lists_every_calculator() -> None:
    run = CliRunner().invoke(cli, ["calc", "--help"])
    assert "batchfit calc gradient-accumulation --help" in run.output
    for slug in calculators.slugs():
        assert f"\n  {slug}" in run.output


def test_help_names_choices_presets_and_defaults() -> None:
    shown = words(everything("--help"))
    assert "--precision NAME Help. [bf16: bfloat16; fp32: Single precision] [default: bf16]" in shown
    assert "--modules NAME,NAME Help. [q: Query; k: Key] [default: q,k]" in shown
    assert "--shard PERCENT Help. [default: 50 %]" in shown
    assert "--step-time TIME Help. [default: 1.5 s]" in shown
    assert "--model NAME Fills in" in shown
    assert "batchfit calc everything --model" in shown


def test_a_preset_asks_for_the_choice_with_which_it_counts() -> None:
    command = calculator_command(calculators.load("compute-optimal-model-size"))
    run = CliRunner().invoke(command, ["--gpu", "h100-80gb"])
    assert run.exit_code == 2
    assert "--gpu fills in --peak-tflops, which counts only with --budget-in gpu-hours" in words(run)
    example = ["--budget-in", "gpu-hours", "--gpu", "h100-80gb", "--json"]
    assert json.loads(CliRunner().invoke(command, example).stdout)["inputs"]["gpu"] == "h100-80gb"
    shown = words(CliRunner().invoke(command, ["--help"], terminal_width=100))
    assert "calc compute-optimal-model-size --budget-in gpu-hours --gpu" in shown


def test_everything_can_be_typed() -> None:
    run = everything(
        *(
            "--model",
            "llama-3.1-8b",
            "--layers",
            "40",
            "--precision",
            "fp32",
            "--modules",
            "k",
            "--shard",
            "25%",
        ),
        *("--step-time", "2min", "--budget", "5K", "--json"),
    )
    answer = json.loads(run.stdout)
    assert answer["inputs"] == {
        "model": "llama-3.1-8b",
        "parameters": 8_030_261_248,
        "layers": 40,
        "precision": "fp32",
        "modules": ["k"],
        "shard": 0.25,
        "steps": 1000,
        "warmup": 100,
        "step_time_seconds": 120.0,
        "budget": 5000.0,
    }
    assert answer["outputs"]["weights_bytes"] == 8_030_261_248
    assert answer["outputs"]["steps_left"] == 4000
    assert [row["precision"] for row in answer["tables"][0]["rows"]] == ["bf16", "fp32"]
    assert any(card["fits"] for card in answer["cards"])


def test_the_answer_has_its_tables_and_cards() -> None:
    shown = words(everything())
    assert shown.startswith("7 GB with bfloat16, adapting Query, Key, in 50 minutes.")
    assert (
        "By precision (Memory, Training time): → bfloat16 7 GB 50 minutes Single precision 14 GB 50 minutes"
        in shown
    )
    assert "Cards it fits on: " in shown
    assert "Parameters read as 7,000,000,000" in shown
    assert "It fits on no single card of the catalogue." in words(everything("--parameters", "10T"))


def test_an_explanation_has_its_sources() -> None:
    shown = words(everything("--explain"))
    assert "M = M_w + M_a" in shown
    assert "M_a = n_l · 1,000 · (c_q + 2 · c_k) = 32 · 1,000 · (1 + 2 · 1) = 96 kB" in shown
    assert "Source: Somebody, 2020, equation 1, https://example.org/paper" in shown
    assert "Source: A book" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "fp8"], "--precision must be one of bf16, fp32; you typed fp8"),
        (["--modules", ""], "--modules Choose at least one"),
        (["--model", "gpt-9"], "--model must be a name of the catalogue, such as"),
        (["--warmup", "2000"], "--warmup must be at most 1,000"),
        (
            ["--parameters", "7Q"],
            "--parameters must be a whole number from 1,000 to 10,000,000,000,000; you typed 7Q",
        ),
    ],
)
def test_wrong_words_exit_with_2_and_say_what_is_wrong(arguments: list[str], message: str) -> None:
    run = everything(*arguments)
    assert run.exit_code == 2
    assert message in words(run)
