"""Accelerate: the configuration that `accelerate launch --config_file` reads."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._huggingface import read_fsdp
from batchfit.frameworks._reading import Reading, Section, keys_of, load
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    Remark,
    commented,
    counts,
    elsewhere,
    head,
    launch_line,
    lone_replica,
    yaml_text,
)
from batchfit.frameworks._zero import STAGES, named
from batchfit.sentences import Code, Sentence
from batchfit.settings import TrainingSettings

NAME = "accelerate"
TITLE = Sentence("Accelerate configuration")
FILENAME = "accelerate.yaml"

_MIXED = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """YAML for `accelerate launch --config_file`. It is about processes: the script makes the batches."""
    _, steps = counts(settings, TITLE)
    notes = _notes(settings, steps)
    config = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _distributed_type(settings),
        "mixed_precision": _MIXED.get(settings.precision or "", "no"),
        "num_machines": settings.nodes or 1,
        "num_processes": Remark(settings.replicas, Sentence("the replicas, over all machines")),
        "machine_rank": Remark(0, Sentence("differs on each machine")) if (settings.nodes or 1) > 1 else 0,
        "main_training_function": "main",
        "use_cpu": False,
        **_plugin(settings, steps),
    }
    if settings.replicas is None:
        del config["num_processes"]
    launch = launch_line(f"accelerate launch --config_file {FILENAME} train.py")
    return Emitted(
        commented(head(TITLE, settings, notes, launch, lang=lang)) + yaml_text(config, lang),
        FILENAME,
        tuple(notes),
    )


def _distributed_type(settings: TrainingSettings) -> str:
    if settings.sharding in STAGES:
        return "DEEPSPEED"
    if settings.sharding == "fsdp":
        return "FSDP"
    return "NO" if settings.sharding == "none" or settings.replicas == 1 else "MULTI_GPU"


def _plugin(settings: TrainingSettings, steps: int) -> dict[str, Any]:
    if settings.sharding in STAGES:
        return {
            "deepspeed_config": {
                "gradient_accumulation_steps": steps,
                "zero_stage": STAGES[settings.sharding],
                "offload_optimizer_device": "none",
                "offload_param_device": "none",
                "zero3_init_flag": settings.sharding == "zero3",
            }
        }
    if settings.sharding != "fsdp":
        return {}
    return {
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": True,
            "fsdp_auto_wrap_policy": Remark(
                "TRANSFORMER_BASED_WRAP", Sentence("one unit per block of the model")
            ),
            "fsdp_activation_checkpointing": settings.checkpointing and settings.checkpointing != "none",
            "fsdp_offload_params": False,
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
    }


def _notes(settings: TrainingSettings, steps: int) -> list[Note]:
    notes = [
        *elsewhere(settings, "micro_batch"),
        Note(
            "accumulation_steps",
            Sentence("{code} in the script.", code=Code(f"Accelerator(gradient_accumulation_steps={steps})")),
        ),
    ]
    if settings.precision in ("fp32", "bf16", "fp16"):
        loaded = Sentence(
            "No autocast; the script loads the weights in {dtype}.", dtype=Code(settings.precision)
        )
        notes.append(Note("precision", loaded))
    if settings.checkpointing == "selective":
        notes.append(
            Note(
                "checkpointing", Sentence("There is no selective kind; under FSDP every block is recomputed.")
            )
        )
    elif settings.checkpointing and settings.sharding != "fsdp":
        notes.append(
            Note(
                "checkpointing",
                Sentence("Only under FSDP; else {code}.", code=Code("model.gradient_checkpointing_enable()")),
            )
        )
    notes += lone_replica(settings)
    beyond = ("optimizer", "attention", "seq_len", "lora_rank", "lora_targets", "quantize", "model")
    return notes + elsewhere(settings, *beyond)


def detect(text: str, filename: str) -> bool:
    """Every Accelerate configuration says what is distributed."""
    return "distributed_type" in keys_of(text, filename)


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in an Accelerate configuration: replicas, sharding and autocast; rarely the steps."""
    file = Section(load(text, filename))
    reading = Reading(nodes=file.count("num_machines"), precision=_precision(file))
    _read_processes(file, reading)
    kind = (file.scalar("distributed_type") or "no").upper()
    if kind == "FSDP":
        plugin = file.section("fsdp_config")
        read_fsdp(plugin, "", reading)
        recomputes = plugin.flag("fsdp_activation_checkpointing")
        if recomputes is not None:
            reading.fields["checkpointing"] = "full" if recomputes else "none"
    elif kind == "DEEPSPEED":
        _read_deepspeed(file.section("deepspeed_config"), reading)
    elif kind in ("NO", "MULTI_GPU"):
        reading.fields["sharding"] = "none" if kind == "NO" else "ddp"
    else:
        reading.notes.append(f"distributed_type {kind} is not one of batchfit's kinds of sharding.")
    return reading.settings()


def _precision(file: Section) -> str | None:
    """ "no" (which YAML reads as false) leaves it to the dtype the script loads the weights in."""
    value = file.value("mixed_precision")
    if value is None or file.scalar("mixed_precision") in ("false", "no", "fp8"):
        return None
    return {short: name for name, short in _MIXED.items()}[
        file.choice("mixed_precision", _MIXED.values()) or ""
    ]


def _read_processes(file: Section, reading: Reading) -> None:
    """Tensor and context parallel processes share one replica."""
    processes = file.value("num_processes")
    if processes == -1:  # the launcher's own number
        return
    count = file.count("num_processes")
    if file.sections("parallelism_config"):
        plan = file.section("parallelism_config")
        shared = 1
        for key in ("parallelism_config_tp_size", "parallelism_config_cp_size", "parallelism_config_sp_size"):
            shared *= plan.count(key, 1) or 1
        if count and count % shared:
            raise file.bad("num_processes", f"a multiple of {shared}, the processes that share a replica")
        count = count // shared if count else None
        if (copies := plan.count("parallelism_config_dp_replicate_size", 1) or 1) > 1:
            reading.notes.append(f"{copies} groups of GPUs hold a whole copy each.")
    reading.fields["replicas"] = count


def _read_deepspeed(plugin: Section, reading: Reading) -> None:
    reading.fields["accumulation_steps"] = plugin.count("gradient_accumulation_steps")
    if other := plugin.word("deepspeed_config_file"):
        reading.notes.append(f"The sharding is in {other}: give that file too.")
    else:
        reading.fields["sharding"] = named(plugin, "zero_stage") or "zero2"  # Accelerate's default stage
    for key in ("offload_optimizer_device", "offload_param_device"):
        if plugin.word(key, "none") != "none":
            reading.notes.append(f"deepspeed_config.{key} keeps it on the host; it is counted on the GPU.")
