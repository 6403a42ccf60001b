"""DeepSpeed: ds_config.json. train_batch_size is always the product of the other two and the GPUs."""

from __future__ import annotations

import json
from typing import Any

from batchfit.errors import BadInput
from batchfit.frameworks._reading import Reading, Section, keys_of, load
from batchfit.frameworks._writing import MODEL_TURNS_ON, Emitted, Note, counts, elsewhere, head, launch_line
from batchfit.frameworks._zero import STAGES, precision_of_config, sharding_of_config, zero_sections
from batchfit.sentences import Code, Sentence
from batchfit.settings import TrainingSettings

NAME = "deepspeed"
TITLE = Sentence("DeepSpeed configuration")
FILENAME = "ds_config.json"

#: DeepSpeed's AdamW is its own fused kernel; `torch_adam` asks for PyTorch's. A name it does not know is
#: looked up in torch.optim.
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"type": "AdamW", "params": {"torch_adam": True}},
    "adamw-single": {"type": "AdamW", "params": {"torch_adam": True, "foreach": False}},
    "adamw-fused": {"type": "AdamW", "params": {}},
    "adam": {"type": "Adam", "params": {"adam_w_mode": False}},
    "lion": {"type": "Lion", "params": {}},
    "muon": {"type": "Muon", "params": {}},
    "sgd": {"type": "SGD", "params": {}},
    "momentum": {"type": "SGD", "params": {"momentum": 0.9}},
    "adafactor": {"type": "Adafactor", "params": {}},
}
#: ZeRO runs these only when told that nobody promised it.
_UNTESTED = ("sgd", "momentum", "adafactor")
_BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """JSON for `deepspeed --deepspeed_config`. JSON has no comments, so they stand under "_comment"."""
    micro, steps = counts(settings, TITLE)
    notes = _notes(settings)
    config: dict[str, Any] = {"_comment": head(TITLE, settings, notes, _launch(settings), lang=lang)}
    if settings.replicas:
        config["train_batch_size"] = micro * steps * settings.replicas
    config |= {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps}
    config |= zero_sections(settings)
    if settings.optimizer in _OPTIMIZERS:
        config["optimizer"] = _OPTIMIZERS[settings.optimizer]
    if settings.optimizer in _UNTESTED and settings.sharding in (*STAGES, "fsdp"):
        config["zero_allow_untested_optimizer"] = True
    if settings.checkpointing in ("full", "selective"):
        config["activation_checkpointing"] = {"partition_activations": False, "cpu_checkpointing": False}
    return Emitted(json.dumps(config, indent=2, ensure_ascii=False) + "\n", FILENAME, tuple(notes))


def _launch(settings: TrainingSettings) -> Sentence:
    nodes = f"--num_nodes {settings.nodes} " if (settings.nodes or 1) > 1 else ""
    gpus = f"--num_gpus {settings.replicas_per_node} " if settings.replicas else ""
    return launch_line(f"deepspeed {nodes}{gpus}train.py --deepspeed --deepspeed_config {FILENAME}")


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = []
    if settings.optimizer in _OPTIMIZERS:
        notes.append(
            Note(
                "learning_rate",
                Sentence("Add lr to optimizer.params; without it DeepSpeed takes its default."),
            )
        )
    elif settings.optimizer:
        given = Sentence("Give {name} to deepspeed.initialize as an object.", name=Code(settings.optimizer))
        notes.append(Note("optimizer", given))
    if settings.sharding == "fsdp":
        notes.append(
            Note("sharding", Sentence("ZeRO stage 3 shards what FSDP shards: weights, gradients and states."))
        )
    if settings.sharding == "none":
        notes.append(Note("sharding", Sentence("Stage 0 on one GPU shards nothing.")))
    if settings.precision in ("bf16", "fp16") and settings.sharding not in (*STAGES, "fsdp"):
        notes.append(
            Note(
                "precision",
                Sentence(
                    "All in {dtype} needs ZeRO stage 1 or more; this keeps 32-bit copies.",
                    dtype=Code(settings.precision),
                ),
            )
        )
    if settings.checkpointing == "none":
        notes.append(MODEL_TURNS_ON)
    elif settings.checkpointing:
        notes.append(
            Note(
                "checkpointing",
                Sentence(
                    "The file only says how checkpoints are kept. The model turns them on: {enable}, or {checkpoint} "
                    "around each block.",
                    enable=Code("gradient_checkpointing_enable()"),
                    checkpoint=Code("deepspeed.checkpointing.checkpoint"),
                ),
            )
        )
    beyond = ("attention", "seq_len", "nodes", "lora_rank", "lora_targets", "quantize", "model")
    return notes + elsewhere(settings, *beyond)


def detect(text: str, filename: str) -> bool:
    """A file of DeepSpeed's own batch keys, or of ZeRO alone (as other trainers' "auto" files are)."""
    keys = keys_of(text, filename)
    return bool(keys & {"train_micro_batch_size_per_gpu", "train_batch_size", "zero_optimization"}) and not (
        keys & {"per_device_train_batch_size", "compute_environment"}
    )


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a ds_config.json. "auto" is left to whoever fills it in, and is not known here.

    Raises BadInput where the three batch numbers contradict each other.
    """
    file = Section(load(text, filename))
    batch, micro, steps = (file.count(key) for key in _BATCH_KEYS)
    if micro and not batch and "gradient_accumulation_steps" not in file:
        steps = 1  # DeepSpeed's own default, which does not hold where the whole batch is given
    if batch and not micro and file.value(_BATCH_KEYS[1]) is None and file.value(_BATCH_KEYS[2]) is None:
        steps = 1
    if batch and batch % ((micro or 1) * (steps or 1)):
        raise BadInput(
            "train_batch_size",
            "must be train_micro_batch_size_per_gpu × gradient_accumulation_steps × GPUs; "
            "{batch} is no multiple of {micro} × {steps}",
            batch=batch,
            micro=micro or 1,
            steps=steps or 1,
        )
    reading = Reading(
        micro_batch=micro,
        accumulation_steps=steps,
        effective_batch=batch,
        precision=precision_of_config(file),
        sharding=sharding_of_config(file),
    )
    _read_optimizer(file, reading)
    zero = file.section("zero_optimization") if file.sections("zero_optimization") else Section({})
    for key in ("offload_optimizer", "offload_param"):
        if zero.section(key).word("device", "none") != "none":
            reading.notes.append(f"zero_optimization.{key} keeps it on the host; it is counted on the GPU.")
    if (split := file.section("tensor_parallel").count("autotp_size", 1) or 1) > 1:
        reading.notes.append(f"tensor_parallel.autotp_size splits each replica over {split} GPUs.")
    return reading.settings()


def _read_optimizer(file: Section, reading: Reading) -> None:
    section = file.section("optimizer")
    kind = (section.word("type") or "").lower()
    params = section.section("params") if section.sections("params") else Section({})
    if not kind:
        return
    if kind in ("adam", "adamw"):
        decays = kind == "adamw" or params.flag("adam_w_mode", True)
        by_torch = "adamw-single" if params.flag("foreach") is False else "adamw"
        found = ("adamw-fused" if not params.flag("torch_adam") else by_torch) if decays else "adam"
    elif kind == "sgd":
        found = "momentum" if params.value("momentum") else "sgd"
    elif kind in ("lion", "muon", "adafactor"):
        found = kind
    else:
        reading.notes.append(f"optimizer.type {kind} is not one of batchfit's optimizers.")
        return
    reading.fields["optimizer"] = found
