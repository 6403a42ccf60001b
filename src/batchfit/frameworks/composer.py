"""Composer: the YAML of LLM Foundry's train.py, whose batch keys are the arguments of Composer's Trainer."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._huggingface import DTYPES, attention_of, kernel_of, read_fsdp
from batchfit.frameworks._reading import Reading, Section, keys_of, load
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    Remark,
    added,
    commented,
    counts,
    elsewhere,
    head,
    idle_targets,
    launch_line,
    yaml_text,
)
from batchfit.sentences import Counted, Sentence
from batchfit.settings import TrainingSettings

NAME = "composer"
TITLE = "Composer (LLM Foundry)"
FILENAME = "composer.yaml"

_AMP = {"bf16": "amp_bf16", "fp16": "amp_fp16"}
#: Composer's own optimizers loop over the parameters.
_OPTIMIZERS = {"adamw-single": "decoupled_adamw", "lion": "decoupled_lionw"}
_STRATEGIES = {"fsdp": "FULL_SHARD", "zero3": "FULL_SHARD", "zero2": "SHARD_GRAD_OP"}


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML for `composer train.py`. Composer is given the global batch, and derives the steps."""
    micro, steps = counts(settings, TITLE, whole_batch=True)
    notes = _notes(settings)
    config: dict[str, Any] = {
        "max_seq_len": settings.seq_len,
        "model": _model(settings),
        "optimizer": _optimizer(settings),
        "global_train_batch_size": Remark(
            settings.batch,
            Sentence("Composer derives {steps} from it", steps=Counted("{n} step", "{n} steps", steps)),
        ),
        "device_train_microbatch_size": Remark(micro, Sentence("the micro-batch, on each GPU")),
        "precision": _precision(settings),
        "fsdp_config": _fsdp(settings),
    }
    launch = launch_line(f"composer -n {settings.replicas_per_node} train.py {FILENAME}")
    return Emitted(
        commented(head(TITLE, settings, notes, launch, lang=lang)) + yaml_text(config, lang),
        FILENAME,
        tuple(notes),
    )


def _model(settings: TrainingSettings) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if settings.model:
        said |= {"name": "hf_causal_lm", "pretrained_model_name_or_path": settings.model}
    if settings.attention:
        said["attn_implementation"] = kernel_of(settings.attention)
    if settings.precision in ("bf16", "fp16"):
        said["master_weights_dtype"] = Remark(
            settings.precision, Sentence("weights in 16 bits, with no 32-bit copy")
        )
    if settings.lora_rank:
        targets = settings.lora_targets
        one = targets == ("all-linear",)
        said["peft_config"] = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": settings.lora_rank,
            "target_modules": (targets[0] if one else list(targets)) if targets else None,
        }
    return said


def _optimizer(settings: TrainingSettings) -> dict[str, Any]:
    if settings.optimizer is None:
        return {}
    if settings.optimizer.startswith("adam"):
        return {"name": "decoupled_adamw"}
    return {"name": _OPTIMIZERS[settings.optimizer]} if settings.optimizer in _OPTIMIZERS else {}


def _precision(settings: TrainingSettings) -> str | None:
    if settings.precision is None:
        return None
    return _AMP.get(settings.precision.removesuffix("-mixed"), "fp32")


def _fsdp(settings: TrainingSettings) -> dict[str, Any]:
    if settings.sharding not in _STRATEGIES:
        return {}
    said: dict[str, Any] = {
        "sharding_strategy": _STRATEGIES[settings.sharding],
        "mixed_precision": "DEFAULT",
    }
    if settings.checkpointing:
        on = settings.checkpointing != "none"
        said |= {
            "activation_checkpointing": on,
            "activation_checkpointing_reentrant": False if on else None,
        }
    return said


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = elsewhere(settings, "nodes", "quantize")
    notes.append(
        Note("replicas", Sentence("The launcher decides them; with another number the steps change."))
    )
    notes.append(
        Note("accumulation_steps", Sentence("Global batch / GPUs / micro-batch, when the run starts."))
    )
    if settings.model is None:
        notes.append(Note("model", added("model.name, tokenizer, train_loader, scheduler")))
    if settings.optimizer and settings.optimizer not in _OPTIMIZERS:
        notes.append(
            Note(
                "optimizer",
                Sentence("LLM Foundry has AdamW and Lion of its own, which loop over the parameters."),
            )
        )
    if settings.sharding in ("none", "ddp", "zero1"):
        notes.append(Note("sharding", Sentence("Without fsdp_config, more than one GPU is DDP.")))
    if settings.sharding == "zero3":
        notes.append(Note("sharding", Sentence("FSDP shards what ZeRO-3 shards.")))
    if settings.checkpointing == "selective":
        notes.append(Note("checkpointing", Sentence("Every block is recomputed whole.")))
    elif settings.checkpointing and settings.sharding not in _STRATEGIES:
        notes.append(Note("checkpointing", Sentence("Composer recomputes only under FSDP.")))
    notes += idle_targets(settings)
    return notes


def detect(text: str, filename: str) -> bool:
    """Composer's name for the micro-batch, or LLM Foundry's for the whole batch."""
    return bool(keys_of(text, filename) & {"device_train_microbatch_size", "global_train_batch_size"})


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in an LLM Foundry YAML. References such as ${variables.max_seq_len} are followed."""
    file = Section(load(text, filename))
    model = file.section("model")
    reading = Reading(
        micro_batch=file.count("device_train_microbatch_size"),
        effective_batch=file.count("global_train_batch_size"),
        seq_len=file.count("max_seq_len"),
        precision=_read_precision(file, model),
        model=model.word("pretrained_model_name_or_path"),
        attention=_read_attention(model),
        sharding="ddp",
    )
    if file.section("fsdp_config").value("sharding_strategy") or file.value("fsdp_config"):
        plugin = file.section("fsdp_config")
        read_fsdp(plugin, "", reading)
        reading.fields["checkpointing"] = "full" if plugin.flag("activation_checkpointing") else "none"
    _read_optimizer(file.section("optimizer"), reading)
    if model.sections("peft_config"):
        peft = model.section("peft_config")
        reading.fields["lora_rank"] = peft.count("r", 8)
        reading.fields["lora_targets"] = peft.words("target_modules")
    return reading.settings()


def _read_precision(file: Section, model: Section) -> str | None:
    names = ("fp32", "amp_fp16", "amp_bf16", "amp_fp8")
    said = file.choice("precision", names)
    if said in (None, "fp32", "amp_fp8"):
        return "fp32" if said == "fp32" else None
    weights = DTYPES.get(model.word("master_weights_dtype") or "fp32", "fp32")
    return weights if weights != "fp32" else f"{said.removeprefix('amp_')}-mixed"


def _read_attention(model: Section) -> str | None:
    if model.flag("use_flash_attention_2"):
        return "flash"
    own = model.section("attn_config").word("attn_impl")  # MPT's own models
    return attention_of(model.word("attn_implementation") or {"torch": "eager"}.get(own or "", own))


def _read_optimizer(section: Section, reading: Reading) -> None:
    name = section.word("name")
    found = {value: key for key, value in _OPTIMIZERS.items()}.get(name or "")
    if name and found is None:
        reading.notes.append(f"optimizer {name} is not one of batchfit's optimizers.")
    reading.fields["optimizer"] = found
