"""`batchfit oom --model`: from the message to the settings that fit."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchfit.cli import cli
from tests.planning.decoder import decoder

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.89 GiB memory in use. Of the "
    "allocated memory 75.10 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    decoder(precision="bf16", checkpointing="full").save(tmp_path / "P.json")
    return str(tmp_path / "P.json")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["oom", *arguments], input=MESSAGE, catch_exceptions=False)


def test_the_card_is_read_from_the_message(saved: str) -> None:
    data = json.loads(call("--model", saved, "--batch", "64", "--gpus", "4", "--json").stdout)
    assert data["plan"]["plans"][0]["gpu"].startswith("h100")
    assert data["plan"]["plans"][0]["effective_batch"] == 64
    assert data["messages"]
    text = call("--model", saved, "--batch", "64", "--gpus", "4").output
    assert text.index("What to change") < text.index("What to set")
    assert "= 64 samples of llama-3.1-8b" in text


def test_without_a_model_nothing_is_planned() -> None:
    assert "plan" not in json.loads(call("--json").stdout)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--batch", "8", "--model", "no-such"], "--model must be a model of the catalogue"),
        (["--model", "P"], "--batch is needed with --model"),
    ],
)
def test_what_cannot_be_planned_is_named(saved: str, options: list[str], complaint: str) -> None:
    result = call(*[saved if word == "P" else word for word in options])
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
