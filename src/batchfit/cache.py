"""Traced profiles kept under the user's cache folder, each under a key of everything that decides it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from batchfit import __version__
from batchfit.errors import BadInput
from batchfit.profile import VERSION, MemoryProfile

#: Packages whose versions decide what a trace finds.
_PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "timm", "bitsandbytes")


def cache_folder() -> Path:
    """Where profiles are kept: BATCHFIT_CACHE, else the platform's folder for caches."""
    if asked := os.environ.get("BATCHFIT_CACHE"):
        return Path(asked)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "batchfit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "batchfit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchfit"


def key_of(model: str, asked: Mapping[str, Any]) -> str:
    """The key of a trace: the model with the contents of its files, what was asked, and all versions that matter."""
    everything = {
        "model": model,
        "contents": contents_of(model),
        "asked": dict(asked),
        "versions": {
            "batchfit": __version__,
            "profile": VERSION,
            "python": sys.version_info[:2],
            **versions(),
        },
    }
    canonical = json.dumps(everything, sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def contents_of(model: str) -> str | None:
    """A digest of the files a model is given as: "FILE.py:FUNCTION", a `config.json` or its folder. None for names.

    A program's imports are not followed: who changes those traces anew (`--no-cache`).
    """
    path = Path(
        model.rpartition(":")[0] if ":" in model and model.rpartition(":")[0].endswith(".py") else model
    )
    try:
        if path.is_dir():
            path = path / "config.json"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def versions() -> dict[str, str]:
    """The versions of the packages that decide a trace, of those installed. Imports none of them."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cached(model: str, asked: Mapping[str, Any], make: Callable[[], MemoryProfile]) -> MemoryProfile:
    """The profile kept under this key, else the one that `make` makes, which is kept.

    A damaged file is made anew; a folder that cannot be written to only means that nothing is kept.
    """
    path = cache_folder() / "profiles" / f"{key_of(model, asked)}.json"
    try:
        return MemoryProfile.load(path)
    except BadInput:
        pass
    profile = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.save(path)
    return profile
