"""Axolotl: the YAML of `axolotl train`."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._huggingface import (
    attention_of,
    kernel_of,
    launch_notes,
    optim_of,
    read_fsdp,
    read_optim,
)
from batchfit.frameworks._reading import Reading, Section, keys_of, load
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    Remark,
    added,
    commented,
    counts,
    head,
    idle_targets,
    launch_line,
    yaml_text,
)
from batchfit.frameworks._zero import STAGES, precision_of_config, sharding_of_config, zero_sections
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

NAME = "axolotl"
TITLE = "Axolotl"
FILENAME = "axolotl.yaml"

_LEGACY_KERNELS = {
    "flash_attention": "flash",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
#: Axolotl's own optimizers that batchfit knows; the others are the Trainer's.
_OWN = {"muon": "muon", "ao_adamw_8bit": "adamw-8bit"}


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML for `axolotl train`."""
    micro, steps = counts(settings, TITLE)
    optim, notes = _optimizer(settings)
    notes += _notes(settings) + launch_notes(settings)
    config: dict[str, Any] = {
        "base_model": settings.model,
        "attn_implementation": kernel_of(settings.attention),
        **_adapter(settings),
        "sequence_len": Remark(settings.seq_len, Sentence("tokens in a sample"))
        if settings.seq_len
        else None,
        "micro_batch_size": micro,
        "gradient_accumulation_steps": steps,
        **_precision(settings),
        **_checkpointing(settings),
        **optim,
        **_sharding(settings),
    }
    launch = launch_line(f"axolotl train {FILENAME}")
    return Emitted(
        commented(head(TITLE, settings, notes, launch, lang=lang)) + yaml_text(config, lang),
        FILENAME,
        tuple(notes),
    )


def _optimizer(settings: TrainingSettings) -> tuple[dict[str, Any], list[Note]]:
    if settings.optimizer == "muon" and settings.sharding not in STAGES:  # it refuses Muon under DeepSpeed
        return {"optimizer": "muon"}, []
    said, notes = optim_of(settings)
    return {"optimizer" if key == "optim" else key: value for key, value in said.items()}, notes


def _adapter(settings: TrainingSettings) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if settings.quantize:
        said["load_in_4bit" if settings.quantize == "nf4" else "load_in_8bit"] = True
    if settings.lora_rank:
        said |= {
            "adapter": "qlora" if settings.quantize == "nf4" else "lora",
            "lora_r": settings.lora_rank,
            "lora_alpha": Remark(2 * settings.lora_rank, Sentence("a scale; costs no memory")),
        }
        if settings.lora_targets == ("all-linear",):
            said["lora_target_linear"] = True
        elif settings.lora_targets:
            said["lora_target_modules"] = list(settings.lora_targets)
    return said


def _precision(settings: TrainingSettings) -> dict[str, Any]:
    if settings.precision is None:
        return {}
    return {name: settings.precision.startswith(name) for name in ("bf16", "fp16")}


def _checkpointing(settings: TrainingSettings) -> dict[str, Any]:
    """FSDP's own switch stands in fsdp_config. Selective checkpointing saves the attention outputs."""
    on = settings.checkpointing in ("full", "selective")
    if settings.checkpointing is None or (on and settings.sharding == "fsdp"):
        return {}
    if settings.checkpointing == "selective":
        return {"gradient_checkpointing": True, "selective_checkpointing": {"save": ["attention"]}}
    return {"gradient_checkpointing": on}


def _sharding(settings: TrainingSettings) -> dict[str, Any]:
    if settings.sharding == "fsdp":
        return {
            "fsdp_version": 2,
            "fsdp_config": {
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "reshard_after_forward": True,
                "offload_params": False,
                "state_dict_type": "FULL_STATE_DICT",
                "activation_checkpointing": settings.checkpointing in ("full", "selective") or None,
            },
        }
    if settings.sharding in STAGES:
        auto = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
        return {"deepspeed": auto | zero_sections(settings)}
    return {}


def _raised(sharding: str | None, lora_rank: int | None) -> bool:
    """Whether what is trained has 32-bit copies: FSDP and ZeRO make them; alone, weights stay as loaded."""
    return sharding in (*STAGES, "fsdp") and not lora_rank


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = [Note("dataset", added("datasets, learning_rate"))]
    if settings.model is None:
        notes.append(Note("model", added("base_model")))
    notes += idle_targets(settings)
    if settings.checkpointing == "selective" and settings.sharding == "fsdp":
        notes.append(Note("checkpointing", Sentence("Under FSDP every block is recomputed whole.")))
    mixed = (settings.precision or "").endswith("-mixed")
    if settings.precision == "fp32" and settings.quantize == "int8":
        notes.append(Note("precision", Sentence("Beside 8-bit weights the rest is loaded in fp16.")))
    if settings.precision in ("fp32", None):
        return notes
    raised = _raised(settings.sharding, settings.lora_rank)
    pure_zero = settings.sharding in STAGES and settings.precision == "bf16"
    if mixed and not raised:
        notes.append(
            Note("precision", Sentence("Axolotl loads weights in 16 bits, so it needs less than planned."))
        )
    elif not mixed and raised and not pure_zero:
        notes.append(
            Note(
                "precision",
                Sentence("Sharded, what is trained gets 32-bit copies: plan with the mixed precision."),
            )
        )
    return notes


def detect(text: str, filename: str) -> bool:
    """Axolotl's name for the micro-batch, or for the model beside one of its other keys."""
    keys = keys_of(text, filename)
    return "micro_batch_size" in keys or ("base_model" in keys and bool(keys & {"sequence_len", "datasets"}))


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in an Axolotl YAML, with Axolotl's defaults for what it leaves out."""
    file = Section(load(text, filename))
    reading = Reading(
        micro_batch=file.count("micro_batch_size", 1),
        accumulation_steps=file.count("gradient_accumulation_steps", 1),
        seq_len=file.count("sequence_len", 512),
        model=file.word("base_model"),
        attention=_read_attention(file),
        optimizer="adamw-fused",
    )
    _read_optimizer(file, reading)
    _read_adapter(file, reading)
    _read_sharding(file, reading)
    _read_checkpointing(file, reading)
    _read_precision(file, reading)
    _read_parallelism(file, reading)
    if file.flag("gptq"):
        reading.notes.append("gptq holds weights in 4 bits, which batchfit does not model.")
    if file.flag("sample_packing"):
        reading.notes.append("sample_packing fills every sample to sequence_len.")
    return reading.settings()


def _read_parallelism(file: Section, reading: Reading) -> None:
    """Replicas, where the file sets how many GPUs shard and copy; the launcher decides otherwise."""
    shards, copies = file.count("dp_shard_size"), file.count("dp_replicate_size")
    if shards or copies:
        reading.fields["replicas"] = (shards or 1) * (copies or 1)
    if (copies or 1) > 1:
        reading.notes.append(f"dp_replicate_size: {copies} groups of GPUs hold a whole copy each.")
    for key in ("tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree"):
        if (file.count(key) or 1) > 1:
            reading.notes.append(f"{key} splits each replica over {file.count(key)} GPUs.")


def _read_optimizer(file: Section, reading: Reading) -> None:
    name = (file.word("optimizer") or "").lower()
    if name in _OWN:
        reading.fields["optimizer"] = _OWN[name]
    else:
        read_optim(file, "optimizer", reading)


def _read_attention(file: Section) -> str | None:
    if kernel := file.word("attn_implementation"):
        return attention_of(kernel)
    return next((name for key, name in _LEGACY_KERNELS.items() if file.flag(key)), None)


def _read_adapter(file: Section, reading: Reading) -> None:
    adapter = file.word("adapter")
    if file.flag("load_in_4bit") or file.flag("load_in_8bit"):
        reading.fields["quantize"] = "nf4" if file.flag("load_in_4bit") else "int8"
    if adapter in ("lora", "qlora"):
        linear = file.flag("lora_target_linear")
        reading.fields["lora_rank"] = file.count("lora_r")
        reading.fields["lora_targets"] = ("all-linear",) if linear else file.words("lora_target_modules")
        if file.words("lora_modules_to_save"):
            reading.notes.append("lora_modules_to_save trains whole modules beside the adapters.")
    elif adapter:
        reading.notes.append(f"adapter {adapter} is not one batchfit models.")
    elif file.words("unfrozen_parameters"):
        reading.notes.append(
            "unfrozen_parameters trains only a part; batchfit counts every weight as trained."
        )


def _read_sharding(file: Section, reading: Reading) -> None:
    if file.sections("deepspeed"):
        reading.fields["sharding"] = sharding_of_config(file.section("deepspeed"))
    elif path := file.word("deepspeed"):
        reading.notes.append(f"The sharding is in {path}: give that file too.")
    elif file.value("fsdp") or file.value("fsdp_config"):
        words = " ".join(file.words("fsdp") or ())
        read_fsdp(file.section("fsdp_config"), words, reading)


def _read_checkpointing(file: Section, reading: Reading) -> None:
    value = file.value("gradient_checkpointing")
    offloaded = isinstance(value, str) and value.startswith("offload")
    plugin = file.section("fsdp_config")
    inner = ("activation_checkpointing", "fsdp_activation_checkpointing")
    on = offloaded or file.flag("gradient_checkpointing") or any(plugin.flag(key) for key in inner)
    selective = bool(on and file.value("selective_checkpointing"))
    reading.fields["checkpointing"] = "selective" if selective else "full" if on else "none"
    if offloaded or file.value("activation_offloading"):
        reading.notes.append("Checkpoints are offloaded to the host; they are counted on the GPU.")


def _read_precision(file: Section, reading: Reading) -> None:
    """`bf16: auto`, the default, is true on every card since Ampere. The weights load in the same dtype."""
    bf16 = True if file.value("bf16") == "full" else file.flag("bf16", not file.flag("fp16"))
    if bf16 or file.flag("bfloat16"):
        short = "bf16"
    elif file.flag("fp16") or file.flag("float16") or file.flag("load_in_8bit"):
        short = "fp16"
    else:
        reading.fields["precision"] = "fp32"
        return
    fields = reading.fields
    raised = _raised(fields.get("sharding"), fields.get("lora_rank"))
    inner = precision_of_config(file.section("deepspeed")) if file.sections("deepspeed") else None
    fields["precision"] = inner or (f"{short}-mixed" if raised else short)
