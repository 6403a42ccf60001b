"""What people name a model by on the command line, and the profiles behind it."""

from __future__ import annotations

from pathlib import Path

from batchfit.errors import BadInput
from batchfit.models import find_model, load_profiles, nearby
from batchfit.profile import MemoryProfile


def profiles_of(models: tuple[str, ...]) -> tuple[MemoryProfile, ...]:
    """The profiles that MODEL names: saved profiles, one or several, or those of a model of the catalogue.

    Raises BadInput on `model`.
    """
    return tuple(profile for model in models for profile in _profiles(model))


def _profiles(model: str) -> tuple[MemoryProfile, ...]:
    if find_model(model) is not None:
        return load_profiles(model)
    if Path(model).is_file() and Path(model).suffix == ".json":
        return (MemoryProfile.load(model),)
    near = nearby(model)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput(
        "model",
        "must be a model of the catalogue (`batchfit models` lists them) or a saved profile; you gave {given}.{hint} "
        "Any other model: batchfit trace {model} --save P.json, then plan P.json",
        given=repr(model),
        model=model,
        hint=hint,
    )
