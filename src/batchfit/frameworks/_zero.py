"""DeepSpeed's ZeRO sections, which stand in its own file and inside those of other frameworks."""

from __future__ import annotations

from typing import Any

from batchfit.frameworks._reading import UNSAID, Section
from batchfit.settings import TrainingSettings

STAGES = {"zero1": 1, "zero2": 2, "zero3": 3}
_NAMES = {0: "ddp"} | {stage: name for name, stage in STAGES.items()}


def stage_of(sharding: str | None) -> int | None:
    """The stage that holds what `sharding` holds: FSDP shards all that ZeRO-3 does, DDP nothing."""
    return None if sharding is None else STAGES.get(sharding, 3 if sharding == "fsdp" else 0)


def zero_sections(settings: TrainingSettings) -> dict[str, Any]:
    """`zero_optimization` and the precision, as DeepSpeed spells them.

    Its plain "bf16" keeps 16-bit weights with 32-bit master copies, gradients summed in 32 bits: mixed
    precision. All in 16 bits is possible from stage 1 on. torch_autocast is for 32-bit weights, and not
    written: DeepSpeed's own mixed precision is what people mean by it.
    """
    stage = stage_of(settings.sharding)
    out: dict[str, Any] = {}
    if settings.precision:
        short = settings.precision.removesuffix("-mixed")
        for name in ("bf16", "fp16"):
            out[name] = {"enabled": name == short}
        if settings.precision == "bf16" and stage:
            out["bf16"] |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
        if settings.precision == "fp16" and stage:
            out["fp16"] |= {"fp16_master_weights_and_grads": True}
    if stage is not None:
        out["zero_optimization"] = {"stage": stage}
    return out


def named(section: Section, key: str) -> str | None:
    """The sharding that the stage under `key` means. Raises BadInput where it is not 0 to 3."""
    value = section.value(key)
    if value in UNSAID:
        return None
    if isinstance(value, str) and value.isdecimal():  # Accelerate's files quote it
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value not in _NAMES:
        raise section.bad(key, "0, 1, 2 or 3")
    return _NAMES[value]


def sharding_of_config(config: Section) -> str | None:
    """The sharding of a DeepSpeed configuration: its `zero_optimization.stage`, and stage 0 without one."""
    if isinstance(config.value("zero_optimization"), bool):  # the first releases wrote true for stage 1
        return "zero1" if config.value("zero_optimization") else "ddp"
    return named(config.section("zero_optimization"), "stage") or "ddp"


def precision_of_config(config: Section) -> str | None:
    """The precision of a DeepSpeed configuration; None where it is "auto" or nothing is enabled."""
    bf16 = config.section("bf16" if "bf16" in config else "bfloat16")
    fp16 = config.section("fp16")
    if bf16.flag("enabled") and fp16.flag("enabled"):
        raise fp16.bad("enabled", "false where bf16 is enabled")
    if bf16.flag("enabled"):
        return "bf16" if bf16.flag("bf16_master_weights_and_grads") else "bf16-mixed"
    if fp16.flag("enabled"):
        return "fp16" if fp16.flag("fp16_master_weights_and_grads") else "fp16-mixed"
    autocast = config.section("torch_autocast")
    if autocast.flag("enabled"):
        return "fp16-mixed" if autocast.word("dtype") == "float16" else "bf16-mixed"
    return "fp32" if bf16.flag("enabled") is False and fp16.flag("enabled") is False else None
