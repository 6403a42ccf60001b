"""Traced profiles are kept under everything that decides them."""

import sys
from pathlib import Path

import pytest

from batchfit import cache
from batchfit.profile import MemoryProfile
from tests.planning.decoder import SMALL, decoder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHFIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    """Counts how often a profile is made."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> MemoryProfile:
        self.times += 1
        return decoder(SMALL)


def test_a_profile_is_made_once(folder: Path) -> None:
    make = Maker()
    first = cache.cached("hf:gpt2", {"precision": "bf16"}, make)
    assert cache.cached("hf:gpt2", {"precision": "bf16"}, make) == first
    assert make.times == 1
    assert len(list((folder / "profiles").iterdir())) == 1


def test_a_damaged_file_is_made_anew(folder: Path) -> None:
    make = Maker()
    cache.cached("hf:gpt2", {}, make)
    (file,) = (folder / "profiles").iterdir()
    file.write_text("{")
    assert cache.cached("hf:gpt2", {}, make) == decoder(SMALL)
    assert make.times == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BATCHFIT_CACHE", str(tmp_path / "file"))
    make = Maker()
    assert cache.cached("hf:gpt2", {}, make) == cache.cached("hf:gpt2", {}, make)
    assert make.times == 2


def test_everything_that_matters_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "model.py"
    program.write_text("def make(): ...")
    keys = {cache.key_of(f"{program}:make", {}), cache.key_of(f"{program}:other", {})}
    keys.add(cache.key_of(f"{program}:make", {"seq_len": 512}))
    program.write_text("def make(): return 1")
    keys.add(cache.key_of(f"{program}:make", {}))
    config = tmp_path / "config.json"
    for text in ("{}", '{"layers": 2}'):
        config.write_text(text)
        keys.add(cache.key_of(str(tmp_path), {}))
    monkeypatch.setattr(cache, "versions", lambda: {"torch": "9.9"})
    keys.add(cache.key_of(str(tmp_path), {}))
    assert len(keys) == 7


def test_the_platforms_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCHFIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/tmp/somewhere")
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache.cache_folder() == Path("/tmp/somewhere/batchfit")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.cache_folder().parts[-3:] == ("Library", "Caches", "batchfit")
