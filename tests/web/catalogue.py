"""A small catalogue of models with hand-made profiles, in place of the package's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from batchfit import models
from batchfit.profile import MemoryProfile
from tests.planning.decoder import SMALL, decoder, family

_MODEL = """
[[model]]
name = "{name}"
title = "{title}"
family = "{family}"
kind = "decoder"
parameters = {parameters}
source = "its published configuration"
aliases = ["{alias}"]
"""

LLAMA, GPT2 = "llama-3.1-8b", "gpt2"


def profiles() -> dict[str, tuple[MemoryProfile, ...]]:
    """The profiles by model: one with two precisions, LoRA and a range of lengths, one of a single kind and length."""
    return {LLAMA: family(), GPT2: (decoder(SMALL, seq_len=None),)}


@contextmanager
def catalogue_in(
    folder: Path, contents: Mapping[str, tuple[MemoryProfile, ...]], title: str = "Llama 3.1 8B"
) -> Iterator[None]:
    """The catalogue is what is written into `folder`."""
    texts = {
        LLAMA: _MODEL.format(
            name=LLAMA, title=title, family="Llama", parameters=8_030_261_248, alias="meta-llama/Llama-3.1-8B"
        ),
        GPT2: _MODEL.format(
            name=GPT2, title="GPT-2 small", family="GPT-2", parameters=124_439_808, alias="openai/gpt2"
        ),
    }
    (folder / "catalog").mkdir()
    (folder / "catalog" / "models.toml").write_text("".join(texts[name] for name in contents))
    for name, found in contents.items():
        for profile in found:
            models.write_profile(profile, folder / "catalog" / "profiles" / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_package", lambda: folder)
        models.load_models.cache_clear()
        yield
    models.load_models.cache_clear()
