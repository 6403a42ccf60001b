"""`batchfit calc` as a person calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchfit import calculators
from batchfit.calculator import Calculator
from batchfit.cli import cli
from batchfit.fields import Field
from batchfit.languages import languages

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


#: Options without effect, by how they come to have none, and what is said of them.
WITHOUT_EFFECT = [
    (
        "pipeline-bubble --chunks 4",
        ["--chunks 4 counts only with --schedule interleaved, which is not chosen."],
    ),
    (
        "learning-rate-warmup --scaling none --base-batch 64 --schedule constant --final-share 10",
        [
            "--base-batch 64 counts only with --scaling square-root|linear, which is not chosen.",
            "--final-share 10 counts only with --schedule cosine|linear|wsd, which is not chosen.",
        ],
    ),
    (
        "learning-rate-warmup --warmup-share 5 --warmup-steps 0",
        ["--warmup-share 5 has no effect: --warmup-steps takes its place."],
    ),
    (
        "chinchilla-tokens --model llama-3.1-8b --parameters 7B",
        ["--model llama-3.1-8b has no effect: what it would fill in is given with --parameters."],
    ),
    ("pipeline-bubble --schedule interleaved --chunks 4", []),
    ("learning-rate-warmup --warmup-share 5", []),
    ("chinchilla-tokens --model llama-3.1-8b", []),
]


@pytest.mark.parametrize(("words", "said"), WITHOUT_EFFECT)
def test_an_option_without_effect_is_told_beside_the_answer(words: str, said: list[str]) -> None:
    run = calc(*words.split())
    assert run.exit_code == 0, run.output
    assert run.stderr.splitlines() == said
    as_data = calc(*words.split(), "--json")
    assert (as_data.stderr.splitlines(), as_data.exit_code) == (said, 0)
    json.loads(as_data.stdout)


def test_an_option_without_effect_leaves_the_answer_as_it_is() -> None:
    usual = ["learning-rate-warmup", "--schedule", "constant"]
    assert calc(*usual, "--final-share", "10").stdout == calc(*usual).stdout


def test_an_option_without_effect_is_told_in_the_language() -> None:
    run = calc("pipeline-bubble", "--chunks", "4", "--lang", "de")
    assert run.stderr == "--chunks 4 zählt nur mit --schedule interleaved; das ist nicht gewählt.\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            ["compute-optimal-model-size", "--gpu", "h100-80gb"],
            ["--gpu", "--peak-tflops", "--budget-in gpu-hours"],
        ),
        (["--target-batch", "64", "--accumulation-steps", "8"], ["--target-batch", "--accumulation-steps"]),
        (["--micro-batch", "2.5"], ["--micro-batch"]),
        (["llm-training-memory", "--model", "none-such"], ["--model"]),
    ],
)
def test_a_refusal_is_in_the_language(arguments: list[str], named: list[str]) -> None:
    told = {lang: calc(*arguments, "--lang", lang).stderr.partition("Error: ")[2] for lang in languages()}
    assert all(name in text for text in told.values() for name in named)
    assert len(set(told.values())) == len(told)


SOMETIMES = [
    (calculator, field)
    for calculator in map(calculators.load, calculators.slugs())
    for field in calculator.fields
    if field.only_when or field.replaced_by
]


@pytest.mark.parametrize(
    ("calculator", "field"), SOMETIMES, ids=lambda each: getattr(each, "slug", None) or each.name
)
def test_every_option_that_may_have_no_effect_says_so(calculator: Calculator, field: Field) -> None:
    given = [field.option, field.default or str(field.minimum)]
    if field.only_when:
        choice = calculator.field(field.only_when.field)
        given += [
            choice.option,
            next(e.value for e in choice.choices if e.value not in field.only_when.values),
        ]
    if field.replaced_by:
        other = calculator.field(field.replaced_by)
        given += [other.option, str(max(1, other.minimum))]
    assert f"{field.option} " in calc(calculator.slug, *given).stderr


@pytest.mark.parametrize("slug", calculators.slugs())
def test_the_examples_of_the_help_have_options_with_effect_only(slug: str) -> None:
    lines = calc(slug, "--help").stdout.partition("Examples:")[2].splitlines()
    examples = [line.split()[2:] for line in lines if line.lstrip().startswith("batchfit calc")]
    assert examples
    for words in examples:
        run = calc(*words)
        assert (run.exit_code, run.stderr) == (0, ""), words


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
