"""The models that the planner's page offers, with their profiles, read once and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from batchfit.errors import BadInput
from batchfit.models import ModelEntry, Variant, find_model, load_models, load_profiles, variants
from batchfit.profile import MemoryProfile

#: The model and the card that the page opens with, where the catalogue has it.
USUAL_MODEL = "llama-3.1-8b"
USUAL_GPU = "h100-80gb"


class ModelCatalogue:
    """The models that have profiles. Profiles are read when first asked for; `warm` reads them all."""

    def __init__(self) -> None:
        self.variants: dict[str, tuple[Variant, ...]] = {
            entry.name: found for entry in load_models() if (found := variants(entry.name))
        }
        self.entries = tuple(entry for entry in load_models() if entry.name in self.variants)
        self._profiles: dict[str, tuple[MemoryProfile, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def usual(self) -> str:
        """The name of the model to begin with; empty where there is none."""
        names = [entry.name for entry in self.entries]
        return USUAL_MODEL if USUAL_MODEL in names else next(iter(names), "")

    def families(self) -> dict[str, list[ModelEntry]]:
        """The models by family, the smallest first."""
        found: dict[str, list[ModelEntry]] = {}
        for entry in sorted(self.entries, key=lambda entry: (entry.family.lower(), entry.parameters)):
            found.setdefault(entry.family, []).append(entry)
        return found

    def find(self, name: str) -> ModelEntry | None:
        """The model of that name or alias that has profiles."""
        entry = find_model(name)
        return entry if entry is not None and entry.name in self.variants else None

    def profiles(self, name: str) -> tuple[MemoryProfile, ...]:
        """All profiles of a model, by its name in the catalogue."""
        if name not in self._profiles:
            self._profiles[name] = load_profiles(name)
        return self._profiles[name]

    def warm(self, then: Callable[[], None]) -> None:
        """Reads all profiles in the background, so that nobody has to wait for them, and does what is to be done
        then."""
        threading.Thread(target=self._read_all, args=(then,), name="profiles", daemon=True).start()

    def _read_all(self, then: Callable[[], None]) -> None:
        for entry in self.entries:
            # Nobody has asked yet: what cannot be read is told to whoever asks for it.
            with suppress(BadInput):
                self.profiles(entry.name)
        then()
