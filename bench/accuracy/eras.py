"""Libraries of the time of a run, each era in a folder of its own in front of what is installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from batchfit.cache import cache_folder

FILE = Path(__file__).with_name("eras.toml")


@cache
def _eras() -> dict[str, dict[str, object]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def eras() -> tuple[str, ...]:
    """The eras known, by name."""
    return tuple(_eras())


def _installed_as(era: str) -> str:
    """The era whose packages it has: another one's, or its own."""
    return str(_eras()[era].get("like", era))


def era_pins(era: str) -> list[str]:
    """The exact packages of an era."""
    pins = _eras()[_installed_as(era)]["packages"]
    assert isinstance(pins, list)
    return [str(pin) for pin in pins]


def era_torch(era: str) -> str | None:
    """The PyTorch of an era, where what it kept for backward counts. It is not installed."""
    version = _eras()[era].get("torch")
    return None if version is None else str(version)


def era_path(era: str) -> Path:
    """The era's folder, installed or not; another one when its packages change."""
    digest = hashlib.sha256("\n".join(era_pins(era)).encode()).hexdigest()[:12]
    return cache_folder() / "eras" / f"{_installed_as(era)}-{digest}"


def is_installed(era: str) -> bool:
    """Whether the era can be used."""
    return (era_path(era) / ".complete").exists()


def install(era: str) -> None:
    """Installs an era's packages. Raises CalledProcessError where pip fails."""
    folder = era_path(era)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--upgrade", "--target", str(folder), *era_pins(era)], check=True)
    (folder / ".complete").touch()
