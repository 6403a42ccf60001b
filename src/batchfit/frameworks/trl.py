"""TRL: the configuration of `trl sft`, which is SFTConfig, ModelConfig and ScriptArguments in one YAML."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._huggingface import (
    arguments,
    attention_of,
    from_arguments,
    kernel_of,
    launch_notes,
    with_weights,
)
from batchfit.frameworks._reading import Reading, Section, file_format, keys_of, load, python_calls
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

NAME = "trl"
TITLE = "TRL SFTConfig"
FILENAME = "sft.yaml"
EXTENDS = "trainer"

_WEIGHTS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_CALL = r"(.*\.)?(SFT|DPO|ORPO|KTO|Reward)Config"
#: Keys that TRL's scripts have and TrainingArguments have not.
_OWN_KEYS = frozenset(
    {
        "max_length",
        "max_seq_length",
        "packing",
        "use_peft",
        "lora_r",
        "dataset_name",
        "dataset_mixer",
        "dataset_mixture",
    }
)


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML for `trl sft --config`."""
    said, notes = arguments(settings, TITLE, recomputes=True)
    notes += launch_notes(settings)
    config: dict[str, Any] = {
        "model_name_or_path": settings.model,
        "dtype": _dtype(settings),
        "attn_implementation": kernel_of(settings.attention),
        **_adapter(settings),
        "output_dir": "out",
        **said,
        "max_length": Remark(settings.seq_len, Sentence("tokens in a sample")) if settings.seq_len else None,
        "packing": Remark(False, Sentence("true fills every sample to max_length; the peak is the same")),
    }
    if settings.model is None:
        notes.append(Note("model", added("model_name_or_path")))
    notes += idle_targets(settings)
    launch = f"trl sft --config {FILENAME} --dataset_name YOUR/DATA"
    processes = f" --num_processes {settings.replicas}" if (settings.replicas or 1) > 1 else ""
    lines = head(TITLE, settings, notes, launch_line(f"{launch}{processes}"), lang=lang)
    return Emitted(commented(lines) + yaml_text(config, lang), FILENAME, tuple(notes))


def _dtype(settings: TrainingSettings) -> Any:
    if settings.precision is None:
        return None
    if settings.precision.endswith("-mixed"):
        short = settings.precision.removesuffix("-mixed") if settings.quantize else "fp32"
        return Remark(_WEIGHTS[short], Sentence("the weights; autocast computes in 16 bits"))
    return Remark(_WEIGHTS[settings.precision], Sentence("the weights; no autocast"))


def _adapter(settings: TrainingSettings) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if settings.quantize == "nf4":
        said |= {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    elif settings.quantize == "int8":
        said |= {"load_in_8bit": True}
    if settings.lora_rank:
        said |= {
            "use_peft": True,
            "lora_r": settings.lora_rank,
            "lora_target_modules": list(settings.lora_targets) if settings.lora_targets else None,
        }
    return said


def detect(text: str, filename: str) -> bool:
    """TrainingArguments with a key of TRL's own, or Python that makes one of its configurations."""
    if file_format(text, filename) == "python":
        return python_calls(text, _CALL) is not None
    keys = keys_of(text, filename)
    theirs = {"stage", "finetuning_type", "template"}  # LLaMA-Factory's, which knows max_length too
    any_of_both = {"per_device_train_batch_size", "model_name_or_path"}
    return bool(keys & any_of_both) and bool(keys & _OWN_KEYS) and not keys & theirs


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a YAML of TRL's scripts, or in Python that makes an SFTConfig.

    Defaults are TRL 1's: activation checkpointing is on, and bf16 autocast unless fp16 is asked for.
    """
    if file_format(text, filename) == "python":
        return _of(python_calls(text, _CALL) or Section({})).settings()
    file = Section(load(text, filename))
    reading = _of(file)
    _read_model(file, reading)
    return reading.settings()


def _of(file: Section) -> Reading:
    reading = from_arguments(file)
    if "gradient_checkpointing" not in file and "activation_checkpointing" not in file:
        reading.fields["checkpointing"] = "full"
    if file.value("bf16") is None and not file.flag("fp16"):
        reading.fields["precision"] = "bf16-mixed"
    reading.fields["seq_len"] = file.count("max_length") or file.count("max_seq_length")
    return reading


def _read_model(file: Section, reading: Reading) -> None:
    four, eight = file.flag("load_in_4bit"), file.flag("load_in_8bit")
    quantize = "nf4" if four else "int8" if eight else None
    dtype = file.word("dtype") or file.word("torch_dtype")
    reading.fields |= {
        "quantize": quantize,
        "attention": attention_of(file.word("attn_implementation")),
        "model": file.word("model_name_or_path"),
    }
    if file.flag("use_peft"):
        reading.fields["lora_rank"] = file.count("lora_r", 16)
        reading.fields["lora_targets"] = file.words("lora_target_modules")
    with_weights(reading, dtype)
    if file.flag("use_dora"):
        reading.notes.append("use_dora holds more than the LoRA that batchfit models.")
    if file.flag("use_liger_kernel"):
        reading.notes.append("use_liger_kernel never holds the whole logits.")
