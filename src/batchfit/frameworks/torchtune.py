"""torchtune: the keys of a recipe's YAML that decide the batch and the memory."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from batchfit.frameworks._reading import Reading, Section, keys_of, load
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    Remark,
    commented,
    counts,
    elsewhere,
    head,
    idle_targets,
    yaml_text,
)
from batchfit.sentences import Code, Sentence
from batchfit.settings import TrainingSettings

NAME = "torchtune"
TITLE = Sentence("torchtune recipe configuration")
FILENAME = "torchtune.yaml"

_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"_component_": "torch.optim.AdamW", "fused": False},
    "adamw-fused": {"_component_": "torch.optim.AdamW", "fused": True},
    "adamw-single": {"_component_": "torch.optim.AdamW", "foreach": False},
    "adamw-8bit": {"_component_": "bitsandbytes.optim.AdamW8bit"},
    "adam": {"_component_": "torch.optim.Adam"},
    "adafactor": {"_component_": "torch.optim.Adafactor"},
    "lion": {"_component_": "bitsandbytes.optim.Lion"},
    "muon": {"_component_": "torch.optim.Muon"},
    "momentum": {"_component_": "torch.optim.SGD", "momentum": 0.9},
    "sgd": {"_component_": "torch.optim.SGD"},
}
#: torchtune's names for the attention projections; the three of the MLP are one switch.
_ATTENTION_MODULES = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "output_proj"}
_MLP_MODULES = ("gate_proj", "up_proj", "down_proj")
ALL_LINEAR = (*_ATTENTION_MODULES, *_MLP_MODULES)


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML to lay over a recipe's own configuration, whose model, tokenizer and data it does not repeat."""
    micro, steps = counts(settings, TITLE)
    notes = _notes(settings)
    config: dict[str, Any] = {
        "batch_size": Remark(micro, Sentence("the micro-batch, on each GPU")),
        "gradient_accumulation_steps": steps,
        "dtype": _dtype(settings.precision),
        "enable_activation_checkpointing": _checkpointing(settings.checkpointing),
        **_selective(settings),
        "tokenizer": {"max_seq_len": settings.seq_len},
        "optimizer": _OPTIMIZERS.get(settings.optimizer or "", {}),
        "model": _adapter(settings),
        **_sharding(settings),
    }
    lines = head(
        TITLE,
        settings,
        notes,
        Sentence(
            "Start from a recipe's own file (tune cp), set these keys in it, and launch: {command}",
            command=Code(_launch(settings)),
        ),
        lang=lang,
    )
    return Emitted(commented(lines) + yaml_text(config, lang), FILENAME, tuple(notes))


def _launch(settings: TrainingSettings) -> str:
    kind = "lora_finetune" if settings.lora_rank else "full_finetune"
    if settings.replicas == 1 or settings.sharding == "none":
        return f"tune run {kind}_single_device --config {FILENAME}"
    nodes = f"--nnodes {settings.nodes} " if (settings.nodes or 1) > 1 else ""
    each = settings.replicas_per_node or "GPUS"
    return f"tune run {nodes}--nproc_per_node {each} {kind}_distributed --config {FILENAME}"


def _dtype(precision: str | None) -> str | None:
    """torchtune trains in bf16 or in fp32, and mixes neither."""
    return None if precision is None else "fp32" if precision == "fp32" else "bf16"


def _checkpointing(kind: str | None) -> bool | None:
    return None if kind is None else kind == "full"


def _selective(settings: TrainingSettings) -> dict[str, Any]:
    return {"ac_mode": "selective", "ac_option": "op"} if settings.checkpointing == "selective" else {}


def _adapter(settings: TrainingSettings) -> dict[str, Any]:
    if not settings.lora_rank:
        return {}
    said: dict[str, Any] = {"lora_rank": settings.lora_rank}
    if settings.lora_targets:
        targets = _spelt(settings.lora_targets)
        said["lora_attn_modules"] = [
            _ATTENTION_MODULES[name] for name in targets if name in _ATTENTION_MODULES
        ]
        said["apply_lora_to_mlp"] = any(name in _MLP_MODULES for name in targets)
        said["apply_lora_to_output"] = "lm_head" in targets
    if settings.quantize == "nf4":
        said["quantize_base"] = Remark(True, Sentence("or the model's qlora_ builder"))
    return said


def _spelt(targets: tuple[str, ...]) -> tuple[str, ...]:
    return ALL_LINEAR if targets == ("all-linear",) else targets


def _sharding(settings: TrainingSettings) -> dict[str, Any]:
    if settings.sharding in ("fsdp", "zero3", "zero2"):
        return {"fsdp_reshard_after_forward": settings.sharding != "zero2"}
    if settings.sharding == "ddp" and (settings.replicas or 1) > 1:
        return {"data_parallel_replicate_dim": settings.replicas, "data_parallel_shard_dim": 1}
    return {}


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = elsewhere(settings, "nodes")
    if settings.model:
        chosen = Sentence("Choose the builder and the checkpointer of {model}.", model=Code(settings.model))
        notes.append(Note("model", chosen))
    if settings.replicas and (settings.sharding != "ddp" or settings.replicas == 1):
        notes += elsewhere(settings, "replicas")
    if settings.attention:
        notes.append(
            Note("attention", Sentence("torchtune uses PyTorch's own attention: SDPA, or flex when packed."))
        )
    if settings.precision in ("fp16", "bf16-mixed", "fp16-mixed"):
        notes.append(
            Note("precision", Sentence("torchtune trains in bf16 or fp32 throughout; bf16 is written."))
        )
    if settings.sharding in ("zero1", "none") or (
        settings.sharding == "ddp" and settings.replicas in (None, 1)
    ):
        notes.append(
            Note("sharding", Sentence("The distributed recipes are FSDP2; one GPU has a recipe of its own."))
        )
    if settings.sharding == "zero3":
        notes.append(Note("sharding", Sentence("FSDP2 shards what ZeRO-3 shards.")))
    targets = set(_spelt(settings.lora_targets or ()))
    idle = idle_targets(settings)
    notes += idle
    in_part = 0 < len(targets & set(_MLP_MODULES)) < len(_MLP_MODULES)
    if not idle and (targets - {*ALL_LINEAR, "lm_head"} or in_part):
        notes.append(
            Note("lora_targets", Sentence("The choice is among q, k, v, o, the whole MLP, and the head."))
        )
    if settings.quantize == "int8" or (settings.quantize and not settings.lora_rank):
        notes.append(Note("quantize", Sentence("Only NF4 under LoRA (QLoRA) is known.")))
    return notes


def detect(text: str, filename: str) -> bool:
    """A recipe's two batch keys, without another framework's name for the micro-batch."""
    keys = keys_of(text, filename)
    others = {"per_device_train_batch_size", "micro_batch_size", "base_model"}
    return {"batch_size", "gradient_accumulation_steps"} <= keys and not keys & others


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a torchtune configuration. References such as ${batch_size} are followed."""
    file = Section(load(text, filename))
    model = file.section("model")
    component = model.word("_component_") or ""
    reading = Reading(
        micro_batch=file.count("batch_size"),
        accumulation_steps=file.count("gradient_accumulation_steps", 1),
        seq_len=file.section("tokenizer").count("max_seq_len"),
        precision=file.choice("dtype", ("bf16", "fp16", "fp32")),
        model=_model_name(file, component),
        checkpointing=_read_checkpointing(file),
        **_read_sharding(file),
    )
    if "lora" in component or "lora_rank" in model:
        reading.fields |= _read_adapter(model, component)
    _read_optimizer(file.section("optimizer"), reading)
    if file.flag("optimizer_in_bwd"):
        reading.notes.append("optimizer_in_bwd never holds all gradients at once; batchfit counts them all.")
    if file.flag("enable_activation_offloading"):
        reading.notes.append("Activations are offloaded to the host; they are counted on the GPU.")
    if file.flag("fsdp_cpu_offload"):
        reading.notes.append("FSDP offloads parameters to the host; they are counted on the GPU.")
    return reading.settings()


def _model_name(file: Section, component: str) -> str | None:
    """The folder the weights are in says more than the builder's name."""
    folder = file.section("checkpointer").word("checkpoint_dir")
    return PurePosixPath(folder).name or None if folder else component.rpartition(".")[2] or None


def _read_checkpointing(file: Section) -> str | None:
    on = file.flag("enable_activation_checkpointing")
    if file.choice("ac_mode", ("full", "selective")) == "selective":
        return "selective"
    return None if on is None else "full" if on else "none"


def _read_sharding(file: Section) -> dict[str, Any]:
    """Sharding and replicas; None where the file leaves it to the recipe and its launcher."""
    copies = file.count("data_parallel_replicate_dim") or 1
    if copies > 1 and file.value("data_parallel_shard_dim") == 1:
        return {"sharding": "ddp", "replicas": copies}
    reshards = file.flag("fsdp_reshard_after_forward")
    return {"sharding": None if reshards is None else "fsdp" if reshards else "zero2"}


def _read_adapter(model: Section, component: str) -> dict[str, Any]:
    names = {value: key for key, value in _ATTENTION_MODULES.items()}
    targets = tuple(names.get(name, name) for name in model.words("lora_attn_modules") or ())
    targets += _MLP_MODULES if model.flag("apply_lora_to_mlp") else ()
    targets += ("lm_head",) if model.flag("apply_lora_to_output") else ()
    quantized = "qlora" in component or model.flag("quantize_base")
    return {
        "lora_rank": model.count("lora_rank", 8),
        "lora_targets": targets or None,
        "quantize": "nf4" if quantized else None,
    }


def _read_optimizer(optimizer: Section, reading: Reading) -> None:
    component = optimizer.word("_component_")
    if component is None:
        return
    last = component.rpartition(".")[2].lower()
    if last == "adamw":
        fused, foreach = optimizer.flag("fused"), optimizer.flag("foreach")
        found: str | None = "adamw-fused" if fused else "adamw-single" if foreach is False else "adamw"
    elif last == "sgd":
        found = "momentum" if optimizer.value("momentum") else "sgd"
    else:
        known = {"adamw8bit": "adamw-8bit", "pagedadamw8bit": "adamw-8bit", "pagedadamw": "adamw"}
        same = ("adam", "adafactor", "lion", "muon")
        found = known.get(last, last if last in same else None)
    if found is None:
        reading.notes.append(f"optimizer {component} is not one of batchfit's optimizers.")
    reading.fields["optimizer"] = found
