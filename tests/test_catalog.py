"""The catalogue of models: published sizes, and profiles that are what the tracer finds."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from batchfit.cache import versions
from batchfit.cli import cli
from batchfit.models import ModelEntry, Variant, find_model, load_models, load_profiles, variants
from batchfit.profile import MemoryProfile, SeqRange

ROOT = Path(__file__).parent.parent
CATALOG = ROOT / "src" / "batchfit" / "catalog"

#: Of each kind of model some, with the way of training that is retraced.
SAMPLE = (
    ("gpt2", "bf16.adamw.full.none.256-1024"),
    ("smollm2-135m", "bf16-mixed.adamw.lora16.full.256-8192"),
    ("bert-base", "bf16-mixed.adamw.full.none.128-512"),
    ("resnet-50", "bf16-mixed.adamw.full.none"),
)


@cache
def script() -> Any:
    """scripts/trace-catalog as a module."""
    loader = SourceFileLoader("trace_catalog", str(ROOT / "scripts" / "trace-catalog"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def config_of(entry: ModelEntry) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(entry.config.read_text("utf-8"))
    return config


# ---- Models -------------------------------------------------------------------------------------------------


def test_the_models_that_people_train_are_there() -> None:
    families = Counter(entry.family for entry in load_models())
    assert len(load_models()) >= 40
    wanted = {"Llama", "Mistral", "Qwen", "Gemma", "Phi", "GPT", "OLMo", "SmolLM", "DeepSeek", "BERT", "T5"}
    assert wanted | {"Vision", "CLIP", "Audio", "Diffusion"} <= set(families)


def test_every_name_means_one_model() -> None:
    names = Counter(
        name.lower() for entry in load_models() for name in {entry.name, *(a for a in entry.aliases)}
    )
    assert [name for name, count in names.items() if count > 1] == []
    assert all(entry.name == entry.name.lower() for entry in load_models())
    assert find_model("hf:meta-llama/Meta-Llama-3-8B-Instruct") is find_model("llama-3.1-8b") is not None


def test_every_model_has_its_configuration_and_none_is_left_over() -> None:
    files = {file.stem for file in (CATALOG / "configs").iterdir()}
    assert files == {entry.name for entry in load_models()}


@pytest.mark.parametrize("entry", load_models(), ids=lambda entry: entry.name)
def test_samples_are_of_a_length_or_said(entry: ModelEntry) -> None:
    assert entry.context or entry.sample
    config = config_of(entry)
    config = config.get("text_config", config)
    reads = config.get("max_position_embeddings") or config.get("n_positions")
    if entry.context and "relative_attention_num_buckets" not in config:
        # RoBERTa keeps two of its positions for padding.
        assert entry.context == reads - 2 * (config["model_type"] == "roberta")


@pytest.mark.torch
@pytest.mark.parametrize("entry", load_models(), ids=lambda entry: entry.name)
def test_a_model_has_the_published_number_of_parameters(entry: ModelEntry) -> None:
    if "_class_name" in config_of(entry):
        pytest.importorskip("diffusers", reason=f"{entry.name} is a model of diffusers")
    from batchfit.trace.gpu import Gpu
    from batchfit.trace.inputs import Inputs
    from batchfit.trace.settings import Settings
    from batchfit.trace.sources import open_source

    source: Any = open_source(str(entry.config), Gpu(), Settings(), Inputs())
    assert sum(p.numel() for p in source.training.model.parameters()) == entry.parameters


# ---- Profiles -----------------------------------------------------------------------------------------------

#: The models with profiles; the others are traced when they are asked for.
PROFILED = tuple(entry for entry in load_models() if variants(entry.name))


def test_most_that_people_train_can_be_planned_without_torch() -> None:
    assert len(PROFILED) >= 100
    assert {entry.family for entry in PROFILED} == {entry.family for entry in load_models()}
    assert {file.name for file in (CATALOG / "profiles").iterdir()} == {entry.name for entry in PROFILED}


@pytest.mark.parametrize("entry", PROFILED, ids=lambda entry: entry.name)
def test_a_model_has_a_profile_for_each_way_of_training(entry: ModelEntry) -> None:
    wanted = {work.path.name for work in script().works(entry)}
    assert {file.name for file in (CATALOG / "profiles" / entry.name).iterdir()} == wanted


@pytest.mark.parametrize("entry", PROFILED, ids=lambda entry: entry.name)
def test_profiles_say_what_their_names_say(entry: ModelEntry) -> None:
    profiles = load_profiles(entry.name)
    assert {Variant.of(profile) for profile in profiles} == set(variants(entry.name))
    for profile in profiles:
        check(profile, entry)


def in_float32(entry: ModelEntry) -> int:
    """Parameters that the library keeps in float32 whatever the others are in: the routers of DeepSeek's models
    (`_keep_in_fp32_modules_strict` in transformers)."""
    config = json.loads(entry.config.read_text("utf-8"))
    if not config.get("model_type", "").startswith("deepseek"):
        return 0
    layers = config["num_hidden_layers"] - config["first_k_dense_replace"]
    return int(layers * config["n_routed_experts"] * config["hidden_size"])


def check(profile: MemoryProfile, entry: ModelEntry) -> None:
    assert profile.model.name == entry.name
    assert profile.provenance.how == "catalogue"
    assert profile.affinity.affine
    width = 2 if profile.settings["precision"] == "bf16" else 4
    if profile.settings["lora"] is None:
        assert profile.model.parameters == entry.parameters
        wider = (4 - width) * in_float32(entry)
        assert profile.states.weights_bytes == width * entry.parameters + wider
        # Whisper's encoder does not learn its positions, and text gives Gemma 3's eyes no gradients.
        trained = width * profile.model.trainable_parameters
        assert 0.98 * width * entry.parameters <= trained <= width * entry.parameters
        assert 0.85 * trained <= profile.states.gradients_bytes <= trained + wider
    else:
        assert profile.model.parameters > entry.parameters
        assert profile.model.trainable_parameters < entry.parameters / 4
        assert profile.states.weights_bytes > width * entry.parameters
    lines = [line for lines in profile.phases.values() for line in lines]
    assert all(line.activations for line in lines if "activations" in line.parts)
    if profile.seq_len:
        assert profile.seq_len.deviation is None or profile.seq_len.deviation < 0.001


def test_checkpointing_saves_activations_and_adapters_save_states() -> None:
    for entry in PROFILED:
        # A variant may be several profiles, each of a range of lengths.
        profiles = {
            (
                p.settings["precision"],
                p.settings["lora"] is not None,
                p.settings["checkpointing"],
                p.seq_len,
            ): p
            for p in (replace(p, seq_len=_plain(p.seq_len)) for p in load_profiles(entry.name))
        }
        for (precision, lora, checkpointing, lengths), profile in profiles.items():
            longest = lengths.maximum if lengths else None
            kept = profiles[precision, lora, "none", lengths].peak(8, 2, longest).allocated_bytes
            assert profile.peak(8, 2, longest).allocated_bytes <= kept, (entry.name, precision, lora)
            # Not their peak: over long samples, adapters' inputs in fp32 can outweigh the states they save.
            if lora:
                whole = profiles[precision, False, checkpointing, lengths].states
                assert profile.states.total_bytes < whole.total_bytes, (entry.name, precision, checkpointing)


def _plain(lengths: SeqRange | None) -> SeqRange | None:
    """A range of lengths without how well it was met, which differs between profiles."""
    return replace(lengths, deviation=None) if lengths else None


def test_the_profiles_are_small() -> None:
    files = [file for file in (CATALOG / "profiles").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 3_000_000


@pytest.mark.torch
@pytest.mark.parametrize(("name", "variant"), SAMPLE)
def test_a_trace_gives_what_the_catalogue_has(name: str, variant: str) -> None:
    entry = find_model(name)
    assert entry is not None
    (work,) = (work for work in script().works(entry) if work.path.name == f"{variant}.json.gz")
    kept = script().kept(work)
    same = {p: v for p, v in versions().items() if kept.provenance.versions.get(p, v) == v}
    if "transformers" not in same or "torch" not in same:
        pytest.skip(f"traced with {kept.provenance.versions}, and other versions are installed")
    assert script().difference(kept, script().traced(work)) <= script().TOLERANCE


def test_a_difference_is_seen() -> None:
    mixed, pure = (
        load_profiles("resnet-50", precision=p, checkpointing="none")[0] for p in ("bf16-mixed", "bf16")
    )
    assert script().difference(mixed, mixed) == 0
    assert script().difference(mixed, pure) > 0.1


def test_planning_from_the_catalogue_needs_no_torch() -> None:
    program = """
import sys
from batchfit.models import load_profiles
from batchfit.planning import plan
plans = plan(load_profiles("llama-3.1-8b"), batch=256, seq_len=4096, gpu="h100-80gb", gpus=8).plans
assert plans and all(p.effective_batch == 256 for p in plans)
assert not {"torch", "transformers"} & set(sys.modules), "loaded"
"""
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.mark.parametrize(("seq_len", "longest"), [(2048, 4095), (4096, 32768)])
def test_a_window_of_attention_parts_the_lengths(seq_len: int, longest: int) -> None:
    from batchfit.planning import plan

    found = plan(load_profiles("mistral-7b"), batch=64, seq_len=seq_len, gpu="h100-80gb", gpus=8)
    assert found.plans
    held = [p for p in load_profiles("mistral-7b") if p.seq_len and p.seq_len.maximum == longest]
    best = found.plans[0]
    peaks = {p.peak(best.micro_batch, best.accumulation_steps, seq_len).allocated_bytes for p in held}
    assert best.sharding != "none" or best.peak_allocated_bytes in peaks


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        (["--seq-len", "512"], "catalogue"),
        (["--seq-len", "512", "--lora", "16", "--lora-targets", "all-linear"], "catalogue"),
        # These the catalogue has no profile of: they are traced from its configuration.
        pytest.param(["--seq-len", "64"], "traced", marks=pytest.mark.torch),
        pytest.param(["--seq-len", "512", "--precision", "fp16"], "traced", marks=pytest.mark.torch),
        pytest.param(["--seq-len", "512", "--lora", "16"], "traced", marks=pytest.mark.torch),
    ],
)
def test_a_model_by_its_name_is_looked_up_or_traced(asked: list[str], how: str) -> None:
    result = CliRunner().invoke(cli, ["trace", "gpt2", *asked, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    profile = json.loads(result.stdout)["profile"]
    assert profile["provenance"]["how"] == how
    assert profile["model"]["name"] == "gpt2"


# ---- The script ---------------------------------------------------------------------------------------------


def test_ranges_are_parted_where_attention_changes() -> None:
    def ranges(context: int | None, **config: Any) -> list[tuple[int, int] | None]:
        entry = ModelEntry("x", "X", "X", "decoder", 1, context, "test", (), None)
        found: list[tuple[int, int] | None] = script().ranges(entry, config)
        return found

    assert ranges(None) == [None]
    assert ranges(512) == [(128, 512)]
    assert ranges(131072) == [(256, 32768)]
    assert ranges(32768, sliding_window=4096) == [(256, 4095), (4096, 32768)]
    assert ranges(32768, sliding_window=4096, use_sliding_window=False) == [(256, 32768)]
    assert ranges(131072, text_config={"sliding_window": 1024}) == [(256, 1023), (1024, 32768)]
    assert ranges(131072, sliding_window=128) == [(256, 32768)]


def test_what_was_traced_is_not_traced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script()
    monkeypatch.setattr(module, "PROFILES", tmp_path)
    entry = find_model("resnet-50")
    assert entry is not None
    work = next(iter(module.works(entry)))
    assert not module.is_current(work)
    (profile,) = load_profiles("resnet-50", precision=work.precision, checkpointing=work.checkpointing)
    stamped = profile.provenance.versions | {module.TRACED_FROM: module.key_of(work)}
    module.write_profile(with_versions(profile, stamped), work.path.parent)
    assert module.is_current(work)
    monkeypatch.setattr(module, "_tracer", lambda: "another")
    assert not module.is_current(work)
    work.path.write_bytes(b"half a file")
    assert not module.is_current(work)


def with_versions(profile: MemoryProfile, found: dict[str, str]) -> MemoryProfile:
    from dataclasses import replace

    return replace(profile, provenance=replace(profile.provenance, versions=found))


def test_no_profile_says_where_its_libraries_lay() -> None:
    for entry in load_models():
        for profile in load_profiles(entry.name):
            assert not [line.where for line in profile.ledger if line.where.startswith("/")], entry.name
