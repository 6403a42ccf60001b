"""What people name a model by on the command line, and the profiles behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchfit.errors import BadInput
from batchfit.extras import need
from batchfit.models import find_model, load_profiles, nearby
from batchfit.profile import MemoryProfile

#: Traced where checkpointing is not pinned: the two that most people choose between.
_CHECKPOINTING = ("none", "full")


def profiles_of(
    models: tuple[str, ...], wanted: Mapping[str, Any] | None = None, *, keep: bool = True
) -> tuple[MemoryProfile, ...]:
    """The profiles that MODEL names: saved ones, those of a model of the catalogue, or traces of any other model.

    `wanted` says how a model that has to be traced is trained, by the command's option names. `keep` takes traces
    from the cache and puts them there. Raises BadInput on `model`.
    """
    return tuple(profile for model in models for profile in _profiles(model, wanted or {}, keep))


def _profiles(model: str, wanted: Mapping[str, Any], keep: bool) -> tuple[MemoryProfile, ...]:
    if find_model(model) is not None:
        return load_profiles(model)
    path = Path(model)
    if path.is_file() and path.suffix == ".json" and path.name != "config.json":
        return (MemoryProfile.load(model),)
    if path.name == "config.json" or path.is_dir() or ":" in model:
        return _traced(model, wanted, keep)
    near = nearby(model)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput(
        "model",
        "must be a model of the catalogue (`batchfit models` lists them), a saved profile, a config.json or its "
        "folder, hf:owner/name, timm:name, FILE.py:FUNCTION or package.module:FUNCTION; you gave {given}.{hint}",
        given=repr(model),
        hint=hint,
    )


def _traced(model: str, wanted: Mapping[str, Any], keep: bool) -> tuple[MemoryProfile, ...]:
    """Traces of a model, one for each kind of checkpointing, each made once and kept."""
    need("torch", extra="trace", wanted_for="tracing a model")
    names = ("precision", "optimizer", "attention", "lora", "quantize", "trainer", "seq_len")
    asked = {name: wanted[name] for name in names if wanted.get(name) is not None}
    if wanted.get("image") is not None:
        asked["image"] = _image(wanted["image"])
    kinds = (wanted["checkpointing"],) if wanted.get("checkpointing") else _CHECKPOINTING
    return tuple(_trace_once(model, {**asked, "checkpointing": kind}, keep) for kind in kinds)


def _trace_once(model: str, asked: dict[str, Any], keep: bool) -> MemoryProfile:
    from batchfit.cache import cached

    def make() -> MemoryProfile:
        return _trace(model, asked)

    return cached(model, asked, make) if keep else make()


def _trace(model: str, asked: Mapping[str, Any]) -> MemoryProfile:
    """One trace, with its progress where a person looks on."""
    from rich.console import Console
    from rich.progress import Progress

    from batchfit.trace import Lora, trace

    settings = {**asked, "lora": Lora(asked["lora"])} if "lora" in asked else dict(asked)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"tracing {model}, checkpointing {asked['checkpointing']}", total=1.0)
        return trace(model, progress=lambda what, done: progress.update(task, completed=done), **settings)


def _image(text: str) -> tuple[int, ...]:
    """Channels, height and width in "3x224x224"."""
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text.strip().lower())
    if not found:
        raise BadInput(
            "image",
            "must be channels, height and width such as 3x224x224; you gave {given}",
            given=repr(text),
        )
    return tuple(int(size) for size in found.groups())
