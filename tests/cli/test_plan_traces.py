"""`batchfit plan` with a model that has to be traced first."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchfit.cli import cli

pytestmark = pytest.mark.torch


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with the configuration of a small Llama, and a cache of its own."""
    monkeypatch.setenv("BATCHFIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "small-llama"
    folder.mkdir()
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    described = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000, **sizes}
    (folder / "config.json").write_text(json.dumps(described))
    return str(folder)


def planned(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["plan", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_a_model_is_traced_planned_and_kept(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [config, "--batch", "64", "--gpu", "l4", "--gpus", "2", "--top", "500", "--seq-len", "256"]
    first = planned(*asked)
    assert {plan["checkpointing"] for plan in first["plans"]} == {"none", "full"}
    assert all(plan["effective_batch"] == 64 for plan in first["plans"])
    assert first["plans"][0]["relative_step_time"] is not None
    assert len(list((tmp_path / "cache" / "profiles").iterdir())) == 2

    def never(*_: object) -> None:
        raise AssertionError("traced again")

    monkeypatch.setattr("batchfit.cli._profiles._trace", never)
    assert planned(*asked) == first
    with pytest.raises(AssertionError, match="traced again"):
        planned(*asked, "--no-cache")
    with pytest.raises(AssertionError, match="traced again"):
        planned(*asked[:-1], "512")


def test_adapters_are_traced_as_asked(config: str) -> None:
    asked = [
        config,
        "--batch",
        "8",
        "--gpu",
        "l4",
        "--seq-len",
        "128",
        "--lora",
        "4",
        "--checkpointing",
        "full",
    ]
    (best, *_) = planned(*asked)["plans"]
    assert (best["lora_rank"], best["checkpointing"]) == (4, "full")
    assert best["parts_bytes"]["optimizer"] < best["parts_bytes"]["weights"]
