"""LLaMA-Factory: the YAML of `llamafactory-cli train`."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._huggingface import arguments, from_arguments, launch_notes
from batchfit.frameworks._reading import Section, keys_of, load
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    Remark,
    added,
    commented,
    head,
    idle_targets,
    launch_line,
    yaml_text,
)
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

NAME = "llamafactory"
TITLE = "LLaMA-Factory"
FILENAME = "llamafactory.yaml"
EXTENDS = "trainer"

_ATTENTION = {"flash": "fa2", "sdpa": "sdpa", "eager": "disabled"}


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML for `llamafactory-cli train`."""
    said, notes = arguments(settings, TITLE)
    said = _without_checkpointing(said) | _precision(settings)
    notes += launch_notes(settings) + _notes(settings)
    config: dict[str, Any] = {
        "model_name_or_path": settings.model,
        "flash_attn": _ATTENTION.get(settings.attention or ""),
        **_quantize(settings),
        "stage": "sft",
        "do_train": True,
        **_method(settings),
        **_optimizer(settings),
        "cutoff_len": Remark(settings.seq_len, Sentence("tokens in a sample")) if settings.seq_len else None,
        "output_dir": "out",
        **said,
    }
    if settings.checkpointing == "none":
        config["disable_gradient_checkpointing"] = True
    launch = launch_line(f"FORCE_TORCHRUN=1 llamafactory-cli train {FILENAME}")
    return Emitted(
        commented(head(TITLE, settings, notes, launch, lang=lang)) + yaml_text(config, lang),
        FILENAME,
        tuple(notes),
    )


def _without_checkpointing(said: dict[str, Any]) -> dict[str, Any]:
    """Its own switch turns checkpointing off; the Trainer's arguments are not used for it."""
    return {key: value for key, value in said.items() if not key.startswith("gradient_checkpointing")}


def _precision(settings: TrainingSettings) -> dict[str, Any]:
    """It loads weights in 16 bits and raises what it trains to 32, unless pure_bf16 says not to.

    So under LoRA `bf16` means frozen 16-bit weights, and without LoRA the mixed kind.
    """
    if settings.lora_rank and settings.precision:
        return {name: settings.precision.startswith(name) for name in ("bf16", "fp16")}
    if settings.precision == "bf16":
        return {"bf16": False, "pure_bf16": Remark(True, Sentence("weights stay in 16 bits; no autocast"))}
    return {}


def _quantize(settings: TrainingSettings) -> dict[str, Any]:
    if settings.quantize == "nf4":
        return {"quantization_bit": 4, "quantization_method": "bnb", "quantization_type": "nf4"}
    return {"quantization_bit": 8, "quantization_method": "bnb"} if settings.quantize else {}


def _method(settings: TrainingSettings) -> dict[str, Any]:
    if settings.lora_rank is None:
        return {"finetuning_type": "full"}
    targets = ",".join("all" if name == "all-linear" else name for name in settings.lora_targets or ())
    return {
        "finetuning_type": "lora",
        "lora_rank": settings.lora_rank,
        "lora_target": targets or None,
    }


def _optimizer(settings: TrainingSettings) -> dict[str, Any]:
    return {"use_muon": True} if settings.optimizer == "muon" else {}


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = [Note("dataset", added("dataset, template"))]
    if settings.model is None:
        notes.append(Note("model", added("model_name_or_path")))
    if settings.lora_rank and (settings.precision or "").endswith("-mixed"):
        notes.append(
            Note("precision", Sentence("Frozen weights stay in 16 bits; only the adapters have 32."))
        )
    elif settings.lora_rank and settings.precision == "fp32":
        notes.append(
            Note("precision", Sentence("Frozen weights are loaded in the dtype they were saved in."))
        )
    elif settings.precision == "fp16" and not settings.lora_rank:
        notes.append(
            Note("precision", Sentence("What is trained is kept in 32 bits; only bf16 can be pure."))
        )
    if settings.quantize and not settings.lora_rank:
        notes.append(Note("quantize", Sentence("Quantized weights can only be trained through LoRA here.")))
    notes += idle_targets(settings)
    return notes


def detect(text: str, filename: str) -> bool:
    """Keys of LLaMA-Factory's own, beside TrainingArguments' or the model's."""
    keys = keys_of(text, filename)
    own = {"finetuning_type", "cutoff_len", "template"}
    return bool(keys & own) and bool(keys & {"model_name_or_path", "per_device_train_batch_size"})


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a LLaMA-Factory YAML. Its default is LoRA of rank 8 on all linear layers.

    Activation checkpointing is on unless disabled, and trained weights are upcast to 32 bits.
    """
    file = Section(load(text, filename))
    reading = from_arguments(file)
    reading.fields |= {
        "seq_len": file.count("cutoff_len", 2048),
        "model": file.word("model_name_or_path"),
        "attention": _read_attention(file),
        "checkpointing": "none" if file.flag("disable_gradient_checkpointing") else "full",
    }
    if file.flag("pure_bf16"):
        reading.fields["precision"] = "bf16"
    if file.flag("use_muon"):
        reading.fields["optimizer"] = "muon"
    bits = file.count("quantization_bit")
    if bits in (4, 8):
        reading.fields["quantize"] = "nf4" if bits == 4 else "int8"
    elif bits:
        reading.notes.append(f"quantization_bit {bits} is not one batchfit models.")
    kind = file.word("finetuning_type", "lora")
    if kind == "lora":
        targets = file.words("lora_target") or ("all",)
        reading.fields["lora_rank"] = file.count("lora_rank", 8)
        reading.fields["precision"] = (reading.fields["precision"] or "").removesuffix("-mixed") or None
        reading.fields["lora_targets"] = tuple("all-linear" if name == "all" else name for name in targets)
    elif reading.fields["precision"] is None:
        reading.fields["precision"] = "fp32"  # all that is trained is raised to 32 bits
    if kind not in ("lora", "full"):
        reading.notes.append(
            f"finetuning_type {kind} trains only a part; batchfit counts every weight as trained."
        )
    for key in ("use_galore", "use_badam", "use_apollo", "use_adam_mini"):
        if file.flag(key):
            reading.fields["optimizer"] = None
            reading.notes.append(f"{key} is not one of batchfit's optimizers.")
    return reading.settings()


def _read_attention(file: Section) -> str | None:
    said = file.choice("flash_attn", ("auto", "disabled", "sdpa", "fa2", "fa3"))
    return "flash" if said == "fa3" else {value: key for key, value in _ATTENTION.items()}.get(said or "")
