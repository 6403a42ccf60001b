"""Lightning's Trainer: its arguments, from settings and back; shared by its YAML and its Python."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._huggingface import read_fsdp
from batchfit.frameworks._reading import Reading, Section
from batchfit.frameworks._writing import MODEL_TURNS_ON, Note, elsewhere
from batchfit.frameworks._zero import STAGES
from batchfit.sentences import Code, Sentence
from batchfit.settings import TrainingSettings

PRECISION = {
    "fp32": "32-true",
    "bf16": "bf16-true",
    "fp16": "16-true",
    "bf16-mixed": "bf16-mixed",
    "fp16-mixed": "16-mixed",
}
#: Lightning 1 wrote bare widths.
_PRECISION_READ = {value: key for key, value in PRECISION.items()} | {
    "32": "fp32",
    "16": "fp16-mixed",
    "bf16": "bf16-mixed",
}
_STRATEGIES = {"none": "auto", "ddp": "ddp", "fsdp": "fsdp"} | {
    name: f"deepspeed_stage_{stage}" for name, stage in STAGES.items()
}


def trainer_arguments(settings: TrainingSettings) -> dict[str, Any]:
    """The Trainer's arguments. Lightning counts the GPUs of one node, and the nodes."""
    sharding = settings.sharding
    if sharding == "none" and (settings.replicas or 1) > 1:
        sharding = "ddp"
    return {
        "accelerator": "gpu",
        "devices": settings.replicas_per_node if settings.replicas else "auto",
        "num_nodes": settings.nodes or 1,
        "strategy": _STRATEGIES[sharding] if sharding else None,
        "precision": PRECISION[settings.precision] if settings.precision else None,
        "accumulate_grad_batches": settings.accumulation_steps,
    }


def trainer_notes(settings: TrainingSettings) -> list[Note]:
    """What the Trainer cannot be told."""
    notes = elsewhere(settings, "seq_len", "lora_rank", "lora_targets", "quantize", "model", "attention")
    if settings.optimizer:
        notes.append(
            Note(
                "optimizer",
                Sentence(
                    "configure_optimizers of your LightningModule makes it: {name}.",
                    name=Code(settings.optimizer),
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
                    "Your model calls {call}; under FSDP, give FSDPStrategy an activation_checkpointing_policy of your "
                    "blocks' classes.",
                    call=Code("gradient_checkpointing_enable()"),
                ),
            )
        )
    if settings.sharding == "none" and (settings.replicas or 1) > 1:
        notes.append(Note("sharding", Sentence("More than one replica without sharding is DDP.")))
    return notes


def from_trainer(trainer: Section) -> Reading:
    """What the Trainer's arguments say."""
    reading = Reading(
        accumulation_steps=trainer.count("accumulate_grad_batches", 1),
        precision=_precision(trainer),
        nodes=trainer.count("num_nodes", 1),
    )
    devices = _devices(trainer)
    reading.fields["replicas"] = devices * (reading.fields["nodes"] or 1) if devices else None
    _read_strategy(trainer, reading)
    if reading.fields["replicas"] == 1 and "sharding" not in reading.fields:
        reading.fields["sharding"] = "none"
    return reading


def _devices(trainer: Section) -> int | None:
    """A count, or a list of the GPUs' numbers; -1 and "auto" are all there are."""
    value = trainer.value("devices")
    if isinstance(value, list) and value:
        return len(value)
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value) or None
    return None if value in (-1, "-1") else trainer.count("devices")


def _precision(trainer: Section) -> str | None:
    if trainer.value("precision") is None:
        return "fp32"
    said = trainer.scalar("precision")
    others = ("64", "64-true", "transformer-engine", "transformer-engine-float16")
    if said not in _PRECISION_READ and said not in others:
        raise trainer.bad("precision", f"one of {', '.join(_PRECISION_READ)}")
    return _PRECISION_READ.get(said)


def _read_strategy(trainer: Section, reading: Reading) -> None:
    """A registered name, or a class with its arguments."""
    if trainer.sections("strategy"):
        strategy = trainer.section("strategy")
        name = (strategy.word("class_path") or "").rpartition(".")[2].removesuffix("Strategy").lower()
        options = strategy.section("init_args")
    else:
        name, options = (trainer.word("strategy") or "").lower(), Section({})
    if name.startswith("deepspeed"):
        stage = name.removeprefix("deepspeed_stage_")[:1]
        number = int(stage) if stage.isdecimal() else options.count("stage", 2)
        reading.fields["sharding"] = {1: "zero1", 2: "zero2", 3: "zero3"}.get(number or 2)
    elif name.startswith("fsdp"):
        read_fsdp(options, "", reading)
        if options.value("activation_checkpointing_policy"):
            reading.fields["checkpointing"] = "full"
    elif name.startswith("ddp"):
        reading.fields["sharding"] = "ddp"
    elif name in ("single_device", "singledevice"):
        reading.fields["sharding"] = "none"
    elif name:
        reading.notes.append(f"strategy {name} is not one of batchfit's kinds of sharding.")
    if "offload" in name:
        reading.notes.append(f"strategy {name} keeps states on the host; they are counted on the GPU.")
