"""`batchfit plan` as a person or a program calls it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchfit import frameworks
from batchfit.cli import cli
from batchfit.cli.plan import NOTHING_FITS
from batchfit.frameworks import read_settings
from batchfit.languages import languages
from tests.planning.decoder import SMALL, decoder, family

CONTRACT = {
    "micro_batch",
    "accumulation_steps",
    "replicas",
    "effective_batch",
    "drift",
    "sharding",
    "checkpointing",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "capacity_bytes",
    "headroom_bytes",
    "verdict",
    "binding_phase",
    "relative_step_time",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The paths of a model's profiles."""
    folder = tmp_path_factory.mktemp("profiles")
    paths = []
    for number, profile in enumerate(family()):
        profile.save(folder / f"{number}.json")
        paths.append(str(folder / f"{number}.json"))
    return paths


@pytest.fixture
def small(tmp_path: Path) -> str:
    decoder(SMALL, seq_len=None).save(tmp_path / "small.json")
    return str(tmp_path / "small.json")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments], catch_exceptions=False)


def answered(*arguments: str, status: int = 0) -> dict[str, Any]:
    """What `--json` prints, and nothing else."""
    result = call(*arguments, "--json")
    assert result.exit_code == status, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_eight_h100(saved: list[str]) -> None:
    data = answered(*saved, "--batch", "256", "--seq-len", "4096", "--gpu", "h100-80gb", "--gpus", "8")
    assert len(data["plans"]) == 10
    for plan in data["plans"]:
        assert set(plan) >= CONTRACT
        assert plan["micro_batch"] * plan["accumulation_steps"] * plan["replicas"] == 256
        assert plan["verdict"] == "fits"
        assert all(
            isinstance(size, int)
            for name, size in plan.items()
            if name.endswith("_bytes") and name != "parts_bytes"
        )
    assert set(data) >= {"plans", "nearest", "advice"}


def test_nothing_fits_is_status_3_and_still_an_answer(saved: list[str]) -> None:
    asked = ["--batch", "256", "--seq-len", "4096", "--gpu", "rtx-4090", "--gpus", "1"]
    data = answered(*saved, *asked, status=NOTHING_FITS)
    assert data["plans"] == []
    assert data["nearest"]
    assert data["advice"]
    assert data["nearest"][0]["verdict"] == "does not fit"
    text = call(*saved, *asked)
    assert text.exit_code == NOTHING_FITS
    assert "do not fit" in text.output.splitlines()[0]
    assert "--lora 16" in text.output


def test_the_optimizer_step_binds(saved: list[str]) -> None:
    asked = [
        "--batch",
        "64",
        "--seq-len",
        "4096",
        "--gpu",
        "a100-80gb",
        "--checkpointing",
        "full",
        "--precision",
        "bf16",
    ]
    data = answered(*saved, *asked, "--headroom", "0%")
    assert data["plans"][0]["binding_phase"] == "optimizer_step"
    assert any("optimizer step binds" in note for note in data["notes"])


def test_drift_is_told(saved: list[str]) -> None:
    data = answered(*saved, "--batch", "250", "--gpus", "8", "--gpu", "a100-80gb")
    assert all(plan["drift"] == 0 for plan in data["plans"])
    assert {near["side"]: near["drift"] for near in data["nearest"]} == {"below": -2, "above": 6}


def test_one_batch_on_several_counts(saved: list[str]) -> None:
    asked = ["--batch", "4Mi-tokens", "--seq-len", "8192", "--gpu", "h100-80gb", "--gpus", "8,1,4,2"]
    asked += ["--precision", "bf16-mixed"]
    data = answered(*saved, *asked)
    assert [row["gpus"] for row in data["elastic"]] == [1, 2, 4, 8]
    assert all(row["plan"]["effective_batch"] == 512 for row in data["elastic"])
    fitting = [str(row["gpus"]) for row in data["elastic"] if row["plan"]["verdict"] != "does not fit"]
    assert 1 < len(fitting) < 4
    text = call(*saved, *asked)
    assert f"fit on {', '.join(fitting)} × h100-80gb" in " ".join(text.output.split())


def test_the_terminal_says_it_in_order(saved: list[str]) -> None:
    result = call(
        *saved, "--batch", "256", "--seq-len", "4096", "--gpu", "h100-80gb", "--gpus", "8", "--curve"
    )
    assert result.exit_code == 0
    places = [
        result.output.index(part)
        for part in (
            "256 samples",
            "█ weights",
            "sharding",
            "is the card",
            "Memory is highest",
            "To get ready settings",
        )
    ]
    assert places == sorted(places)
    (command,) = (line.strip() for line in result.output.splitlines() if "--emit" in line)
    assert command.startswith("batchfit plan ")
    assert command.endswith("--emit trainer")


@pytest.mark.parametrize("lang", ["en", "de", "ja"])
@pytest.mark.parametrize("width", ["60", "80", "130"])
def test_no_cell_is_cut_off(saved: list[str], width: str, lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for gpus, gpu in (("8", "h100-80gb"), ("1", "rtx-4090"), ("1,8,24", "a100-80gb")):
        result = call(
            *saved, "--batch", "250", "--seq-len", "4096", "--gpu", gpu, "--gpus", gpus, "--lang", lang
        )
        assert "…" not in result.output


@pytest.mark.parametrize("lang", [lang for lang in languages() if lang != "en"])
def test_the_answer_is_in_the_language_asked_for(saved: list[str], lang: str) -> None:
    english, other = (
        call(*saved, "--batch", "250", "--gpu", "h100-80gb", "--gpus", "8", "--curve", "--lang", tag)
        for tag in ("en", lang)
    )
    assert other.exit_code == 0
    lines = [{line.strip() for line in each.stdout.splitlines()} for each in (english, other)]
    same = [line for line in lines[0] & lines[1] if re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", line)]
    assert [line for line in same if not line.startswith("batchfit plan")] == []


def test_a_ready_file_and_its_notes_are_in_the_language_asked_for(saved: list[str]) -> None:
    asked = [*saved, "--batch", "256", "--gpu", "h100-80gb", "--gpus", "8", "--emit", "deepspeed"]
    german, english = call(*asked, "--lang", "de"), call(*asked)
    assert "geschrieben von batchfit" in german.stdout
    assert "attention: Das Skript wählt sie: from_pretrained(attn_implementation=...)." in german.stderr
    assert read_settings(german.stdout)[1] == read_settings(english.stdout)[1]
    assert answered(*asked, "--lang", "de") == answered(*asked)


def test_what_is_wrong_is_told_in_the_language_asked_for(saved: list[str]) -> None:
    wrong = call(*saved, "--batch", "x", "--gpu", "h100-80gb", "--lang", "de")
    assert wrong.exit_code == 2
    assert "--batch muss eine Zahl von Samples" in wrong.output


@pytest.mark.parametrize("framework", frameworks.names())
def test_every_framework_gets_its_file(saved: list[str], framework: str) -> None:
    asked = ["--batch", "256", "--seq-len", "4096", "--gpu", "h100-80gb", "--gpus", "8", "--emit", framework]
    result = call(*saved, *asked)
    assert result.exit_code == 0
    assert result.stdout.strip()
    assert "accumulation steps" in result.stderr
    emitted = answered(*saved, *asked)["emitted"]
    assert emitted["text"] == result.stdout
    assert ".json" not in emitted["text"].replace("ds_config.json", "")
    reader = frameworks.framework(framework)
    if reader.read is not None:
        settings = reader.read(emitted["text"], emitted["filename"])
        best = answered(*saved, *asked)["plans"][0]
        assert settings.micro_batch in (best["micro_batch"], None)
        assert settings.accumulation_steps in (best["accumulation_steps"], None)


def test_present_settings_are_predicted_and_compared(saved: list[str], tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text(
        json.dumps(
            {
                "train_batch_size": 256,
                "train_micro_batch_size_per_gpu": 16,
                "gradient_accumulation_steps": 2,
                "bf16": {"enabled": True},
                "zero_optimization": {"stage": 2},
            }
        )
    )
    _, settings = read_settings(config)
    assert settings.solved().replicas == 8
    data = answered(*saved, "--from", str(config), "--seq-len", "4096", "--gpu", "a100-80gb", "--gpus", "8")
    now, best = data["present"]["plan"], data["plans"][0]
    assert (now["micro_batch"], now["accumulation_steps"], now["replicas"], now["sharding"]) == (
        16,
        2,
        8,
        "zero2",
    )
    assert now["verdict"] == "does not fit"
    assert now["peak_allocated_bytes"] > best["peak_allocated_bytes"]
    assert best["effective_batch"] == 256
    assert data["present"]["changes"]["micro_batch"]["now"] == 16
    text = call(*saved, "--from", str(config), "--seq-len", "4096", "--gpu", "a100-80gb", "--gpus", "8")
    assert text.output.startswith("As set now, 16 × 2 × 8 = 256 (zero2")


@pytest.mark.parametrize("framework", [n for n in frameworks.names() if frameworks.framework(n).read])
def test_what_is_emitted_reads_back_as_the_present_settings(
    saved: list[str], tmp_path: Path, framework: str
) -> None:
    asked = ["--seq-len", "4096", "--gpu", "h100-80gb", "--gpus", "8", "--precision", "bf16-mixed"]
    data = answered(*saved, "--batch", "256", *asked, "--emit", framework)
    best, emitted = data["plans"][0], data["emitted"]
    file = tmp_path / emitted["filename"]
    file.write_text(emitted["text"])
    asked += ["--batch", "256", "--from", str(file)]
    if read_settings(file, name=framework)[1].micro_batch is None:
        # Accelerate's file leaves the batch to the script.
        refused = call(*saved, *asked)
        assert refused.exit_code == 2
        assert "--micro-batch is needed" in refused.stderr
        asked += [
            "--micro-batch",
            str(best["micro_batch"]),
            "--accumulation-steps",
            str(best["accumulation_steps"]),
        ]
    compared = answered(*saved, *asked)["present"]
    now = compared["plan"]
    for name in ("micro_batch", "accumulation_steps", "replicas", "effective_batch"):
        assert now[name] == best[name], name
    assert now["verdict"] == "fits"
    assert compared["speed"] is not None


def test_an_optimizer_that_was_not_traced_is_planned_with_its_neighbour(
    saved: list[str], tmp_path: Path
) -> None:
    config = tmp_path / "ds_config.json"
    sizes = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8}
    config.write_text(
        json.dumps({**sizes, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}})
    )
    asked = ["--from", str(config), "--seq-len", "1024", "--gpu", "h100-80gb", "--gpus", "8"]
    data = answered(*saved, *asked)
    assert "The file's optimizer is adamw-fused" in data["assumptions"][0]
    typed = call(*saved, *asked, "--optimizer", "lion")
    assert typed.exit_code == 2
    assert "--optimizer lion is not among" in typed.stderr


def test_pictures_are_written(saved: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    answered(*saved, "--batch", "256", "--gpu", "h100-80gb", "--gpus", "8", "--svg", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["memory.svg", "micro-batch.svg", "pareto.svg"]
    assert all("<style>" in path.read_text() for path in folder.iterdir())
    wanted = ["--batch", "256", "--gpu", "h100-80gb", "--gpus", "8", "--svg", str(folder), "--lang", "de"]
    assert call(*saved, *wanted).exit_code == 0
    assert 'aria-label="Speicher gegen Zeit: ' in (folder / "pareto.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--batch", "lots", "--gpu", "t4"], r"--batch must be a number of samples .* you gave 'lots'"),
        (
            ["--batch", "8", "--gpu", "rtx-9090"],
            r"--gpu must be a GPU of the catalogue; you typed 'rtx-9090'",
        ),
        (["--batch", "8", "--gpu", "t4", "--gpus", "two"], r"--gpus must be a number .* you typed 'two'"),
        (
            ["--batch", "8", "--gpu", "t4", "--gpus", "0"],
            r"--gpus must be a whole number of 1 or more; you gave 0",
        ),
        (
            ["--batch", "8", "--gpu", "t4", "--seq-len", "77"],
            r"--seq-len must be 4,096, the length traced; you gave 77",
        ),
        (
            ["--batch", "8", "--gpu", "t4", "--tolerance", "wide"],
            r"--tolerance must be a share .* you gave 'wide'",
        ),
        (
            ["--batch", "8", "--gpu", "t4", "--headroom", "x%"],
            r"--headroom must be a share such as 5%; you gave 'x%'",
        ),
        (
            ["--batch", "8", "--gpu", "t4", "--interconnect", "fast"],
            r"--interconnect must be a rate .* 'fast'",
        ),
        (
            ["--batch", "8", "--gpu", "t4", "--precision", "fp8"],
            r"--precision fp8 is not among .* bf16-mixed",
        ),
        (["--batch", "8", "--gpu", "t4", "--lora", "8"], r"--lora 8 is not among this model's profiles"),
        (["--batch", "8", "--gpu", "t4", "--emit", "magic"], r"--emit must be one of .* you gave 'magic'"),
        (["--batch", "8", "--gpu", "t4", "--from", "/no/such"], r"--from cannot be read: /no/such"),
        (["--gpu", "t4"], r"--batch is needed"),
        (["--batch", "8"], r"--gpu is needed"),
    ],
)
def test_what_cannot_be_used_is_status_2_and_named(small: str, options: list[str], complaint: str) -> None:
    result = call(small, *options)
    assert result.exit_code == 2
    assert re.search(complaint, " ".join(result.stderr.split()))
    assert "Traceback" not in result.output


def test_the_size_of_an_image_is_read_before_anything_is_traced(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = call(str(tmp_path), "--batch", "8", "--gpu", "t4", "--input", "224")
    assert result.exit_code == 2
    assert "--input must be channels, height and width such as 3x224x224; you gave '224'" in " ".join(
        result.stderr.split()
    )


def test_a_model_that_is_not_known(tmp_path: Path) -> None:
    result = call("llama-99", "--batch", "8", "--gpu", "t4")
    assert result.exit_code == 2
    assert "MODEL must be a model of the catalogue" in result.stderr
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{}")
    result = call(str(damaged), "--batch", "8", "--gpu", "t4")
    assert result.exit_code == 2
    assert "is not a batchfit profile" in result.stderr
    assert call("--batch", "8", "--gpu", "t4").exit_code == 2


def test_help_shows_examples() -> None:
    result = call("--help")
    assert "Examples:" in result.output
    assert "--emit deepspeed" in result.output
    assert "Exit status" in result.output
