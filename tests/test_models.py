"""The catalogue of models: names, variants, and profiles read only as far as they are wanted."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchfit import models
from batchfit.cli import cli
from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile
from tests.planning.decoder import LLAMA_8B, family

TOML = """
[[model]]
name = "llama-3.1-8b"
title = "Llama 3.1 8B"
family = "Llama"
kind = "decoder"
parameters = 8030261248
context = 131072
source = "published configuration"
aliases = ["meta-llama/Llama-3.1-8B"]
"""


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A catalogue of one model in place of the package's."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "models.toml").write_text(TOML)
    for profile in family():
        models.write_profile(profile, tmp_path / "catalog" / "profiles" / LLAMA_8B.name)
    models.load_models.cache_clear()
    monkeypatch.setattr(models, "_package", lambda: tmp_path)
    yield tmp_path
    models.load_models.cache_clear()


def test_profiles_come_back_as_they_were_written(catalogue: Path) -> None:
    found = models.load_profiles("Llama-3.1-8B")
    assert found == models.load_profiles("hf:meta-llama/Llama-3.1-8B")
    assert sorted(map(repr, found)) == sorted(map(repr, family()))
    assert {models.Variant.of(p) for p in found} == set(models.variants("llama-3.1-8b"))


def test_the_same_profile_is_the_same_bytes(catalogue: Path) -> None:
    path = next((catalogue / "catalog" / "profiles" / "llama-3.1-8b").iterdir())
    before = path.read_bytes()
    models.write_profile(models.read_profile(before, path.name), path.parent)
    assert path.read_bytes() == before


def test_only_what_is_wanted_is_read(catalogue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = models.read_profile

    def noted(data: bytes, name: str) -> MemoryProfile:
        read.append(name)
        return real(data, name)

    monkeypatch.setattr(models, "read_profile", noted)
    (found,) = models.load_profiles("llama-3.1-8b", precision="bf16", trained="lora16", checkpointing="full")
    assert read == ["bf16.adamw.lora16.full.512-16384.json.gz"]
    assert found.settings["checkpointing"] == "full"


@pytest.mark.parametrize(
    ("name", "wanted", "complaint"),
    [
        ("llama-3.1-8c", {}, "did you mean llama-3.1-8b"),
        ("zzz", {}, "which `batchfit models` lists"),
        ("llama-3.1-8b", {"precision": "fp8"}, "has no profile of llama-3.1-8b with precision fp8"),
    ],
)
def test_what_is_not_there_is_named(
    catalogue: Path, name: str, wanted: dict[str, str], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        models.load_profiles(name, **wanted)


@pytest.mark.parametrize(
    "damage",
    [b"", b"not gzip", gzip.compress(b"\xff\xfe"), gzip.compress(b"{}")],
    ids=[
        "empty",
        "not gzip",
        "no text",
        "no profile",
    ],  # compressed bytes hold the time: no two workers agree on them
)
def test_a_damaged_file_is_named(damage: bytes) -> None:
    with pytest.raises(BadInput) as wrong:
        models.read_profile(damage, "bad.json.gz")
    assert "bad.json.gz" in str(wrong.value)


@pytest.mark.parametrize(
    "text", ["[[model]]\nname='x'", TOML.replace("8030261248", "'many'"), TOML + "colour = 'red'"]
)
def test_a_wrong_catalogue_is_named(text: str) -> None:
    with pytest.raises(BadInput, match="model"):
        models.parse_models(text)


def test_planning_by_name_and_listing(catalogue: Path) -> None:
    run = CliRunner().invoke
    asked = [
        "plan",
        "llama-3.1-8b",
        "--batch",
        "256",
        "--seq-len",
        "4096",
        "--gpu",
        "h100-80gb",
        "--gpus",
        "8",
    ]
    result = run(cli, asked, catch_exceptions=False)
    assert result.exit_code == 0
    assert "256 samples of llama-3.1-8b" in result.output.replace("\n", " ")
    assert "llama-3.1-8b" in run(cli, ["models"]).output
    described = " ".join(run(cli, ["models", "llama-3.1-8b"]).output.split())
    assert "8,030,261,248 parameters" in described
    assert re.search(r"bf16, full +59.\d+ GiB +and for each sample .+ \(full\), .+ \(none\)", described)
    assert "4,096 tokens" in described
    assert "Also called meta-llama/Llama-3.1-8B" in described
    assert run(cli, ["models", "llama-3.1-8x"]).exit_code == 2
