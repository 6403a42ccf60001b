"""The catalogue of models and their profiles. Planning from it needs no torch.

`catalog/models.toml` has one `[[model]]` for each model: `name` (what people type), `title`, `parameters`, `family`,
`kind` ("decoder", "encoder", "vision", ...), `source` (where its configuration is from), `aliases` (what else people
call it, such as its name on the hub), `context` (its longest sequence in tokens) where a sample's length is free to
choose, and `sample` (what a sample is, in words) where it is something else than tokens.
`catalog/configs/NAME.json` is its published configuration as data, which a trace starts from.
`catalog/profiles/NAME/VARIANT.json.gz` are its profiles, one for each way of training and range of sequence lengths;
the file's name says which, so that only those wanted are read:

    PRECISION.OPTIMIZER.TRAINED.CHECKPOINTING[.SHORTEST-LONGEST].json.gz
    bf16-mixed.adamw.full.none.256-32768.json.gz, bf16.adamw.lora16.full.json.gz, bf16.adamw.nf4-lora16.full.json.gz
"""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from batchfit.errors import BadInput
from batchfit.planning.traits import checkpointing_of, kind_of
from batchfit.profile import MemoryProfile
from batchfit.records import from_json
from batchfit.samples import AUDIO, IMAGES, SETTING

CATALOGUE = "catalog/models.toml"
CONFIGS = "catalog/configs"
PROFILES = "catalog/profiles"
_SUFFIX = ".json.gz"
_FILENAME = re.compile(r"([^.]+)\.([^.]+)\.([^.]+)\.([^.]+)(?:\.(\d+)-(\d+))?" + re.escape(_SUFFIX))


#: What the samples of a kind of models are.
_SAMPLES = {"vision": IMAGES, "diffusion": IMAGES, "audio": AUDIO}


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model of the catalogue. `context` is None where samples are of one size, which `sample` then says."""

    name: str
    title: str
    family: str
    kind: str
    parameters: int
    context: int | None
    source: str
    aliases: tuple[str, ...]
    sample: str | None

    @property
    def samples(self) -> str | None:
        """What its samples are, as a profile's setting says it; None where they have no name of their own."""
        return _SAMPLES.get(self.kind)

    @property
    def config(self) -> Traversable:
        """The file of its configuration: a `config.json` as transformers or diffusers read it."""
        return _package().joinpath(CONFIGS).joinpath(f"{self.name}.json")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of training a model, as the name of its profile's file has it. `trained` is "full", "lora16" or
    "nf4-lora16": what is trained, on weights quantised how; `seq_len` the range of lengths, None where it has none."""

    precision: str
    optimizer: str
    trained: str
    checkpointing: str
    seq_len: tuple[int, int] | None = None

    @property
    def filename(self) -> str:
        """Its file's name."""
        lengths = () if self.seq_len is None else ("{}-{}".format(*self.seq_len),)
        return (
            ".".join((self.precision, self.optimizer, self.trained, self.checkpointing, *lengths)) + _SUFFIX
        )

    @classmethod
    def of(cls, profile: MemoryProfile) -> Variant:
        """The variant that a profile is of."""
        kind = kind_of(profile)
        trained = "full" if kind.lora_rank is None else f"lora{kind.lora_rank}"
        span = profile.seq_len
        return cls(
            kind.precision or "fp32",
            kind.optimizer or "sgd",
            f"{kind.quantize}-{trained}" if kind.quantize else trained,
            checkpointing_of(profile),
            (span.minimum, span.maximum) if span and span.minimum < span.maximum else None,
        )

    @classmethod
    def named(cls, filename: str) -> Variant | None:
        """The variant that a file's name says, None where it is no such name."""
        found = _FILENAME.fullmatch(filename)
        if found is None:
            return None
        precision, optimizer, trained, checkpointing, shortest, longest = found.groups()
        lengths = None if shortest is None else (int(shortest), int(longest))
        return cls(precision, optimizer, trained, checkpointing, lengths)


@cache
def load_models() -> tuple[ModelEntry, ...]:
    """Every model of the catalogue, in its order; none where the catalogue is not built."""
    file = _package().joinpath(CATALOGUE)
    return parse_models(file.read_text("utf-8")) if file.is_file() else ()


def parse_models(text: str) -> tuple[ModelEntry, ...]:
    """The models of a catalogue in TOML. Raises BadInput naming the entry and key that is wrong."""
    rows: list[dict[str, Any]] = tomllib.loads(text).get("model", [])
    return tuple(
        from_json(
            ModelEntry, {"context": None, "aliases": [], "sample": None, **row}, f"model {row.get('name')}"
        )
        for row in rows
    )


def find_model(name: str) -> ModelEntry | None:
    """The model that people call `name`, whatever its case, with or without "hf:"; None where there is none."""
    wanted = name.strip().lower().removeprefix("hf:")
    for entry in load_models():
        if wanted in (entry.name, *(alias.lower() for alias in entry.aliases)):
            return entry
    return None


def nearby(name: str) -> tuple[str, ...]:
    """Names of the catalogue that look like `name`, for "did you mean"."""
    from difflib import get_close_matches

    return tuple(
        get_close_matches(name.strip().lower(), [entry.name for entry in load_models()], n=3, cutoff=0.5)
    )


def load_profiles(
    name: str,
    *,
    precision: str | None = None,
    optimizer: str | None = None,
    trained: str | None = None,
    checkpointing: str | None = None,
) -> tuple[MemoryProfile, ...]:
    """The profiles of a model of the catalogue, one for each way of training that is not ruled out.

    Raises BadInput where the catalogue has no such model, or no profile of it.
    """
    entry = find_model(name)
    if entry is None:
        near = nearby(name)
        hint = f"; did you mean {' or '.join(near)}?" if near else ", which `batchfit models` lists"
        raise BadInput(
            "model", "must be a model of the catalogue{hint}; you gave {given}", hint=hint, given=repr(name)
        )
    wanted = {
        "precision": precision,
        "optimizer": optimizer,
        "trained": trained,
        "checkpointing": checkpointing,
    }
    folder = _package().joinpath(PROFILES).joinpath(entry.name)
    files = [(Variant.named(file.name), file) for file in (folder.iterdir() if folder.is_dir() else ())]
    found = [
        _of(entry, read_profile(file.read_bytes(), file.name))
        for variant, file in sorted(files, key=lambda pair: pair[1].name)
        if variant and all(value in (None, getattr(variant, key)) for key, value in wanted.items())
    ]
    if not found:
        asked = ", ".join(f"{key} {value}" for key, value in wanted.items() if value) or "any setting"
        there = ", ".join(sorted(v.filename.removesuffix(_SUFFIX) for v, _ in files if v)) or "none"
        template = "has no profile of {name} with {asked} in the catalogue; there are {there}"
        raise BadInput("model", template, name=entry.name, asked=asked, there=there)
    return tuple(found)


def _of(entry: ModelEntry, profile: MemoryProfile) -> MemoryProfile:
    """A model's profile with what its samples are."""
    if entry.samples is None:
        return profile
    return replace(profile, settings={**profile.settings, SETTING: entry.samples})


def read_profile(data: bytes, name: str) -> MemoryProfile:
    """The profile in a compressed file. Raises BadInput where it is damaged."""
    try:
        text = gzip.decompress(data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(name, "cannot be read: {error}", error=str(error)) from None
    return MemoryProfile.from_json(text, name)


def write_profile(profile: MemoryProfile, folder: Path) -> Path:
    """Writes a profile into a model's folder of the catalogue under its variant's name, whole or not at all, the same
    bytes for the same profile."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Variant.of(profile).filename
    partial = path.with_name(f".{path.name}.partial")
    compact = json.dumps(json.loads(profile.to_json()), separators=(",", ":"), ensure_ascii=False)
    partial.write_bytes(gzip.compress(compact.encode("utf-8"), 9, mtime=0))
    partial.replace(path)
    return path


def variants(name: str) -> tuple[Variant, ...]:
    """The ways of training that the catalogue has profiles of, without reading them."""
    folder: Traversable = _package().joinpath(PROFILES).joinpath(name)
    names: Iterable[str] = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else ()
    return tuple(variant for variant in map(Variant.named, names) if variant is not None)


def _package() -> Traversable:
    return resources.files("batchfit")
