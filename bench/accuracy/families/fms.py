"""foundation-model-stack's fms-acceleration benchmarks: SFTTrainer of its time on one A100 80 GB or several.

Facts about the runs: scripts/benchmarks of the repository (scenarios.yaml, defaults.yaml, accelerate.yaml,
benchmark.py) and plugins/accelerated-peft. Its TRL (0.9 to 0.13) trains as transformers' Trainer does, with the model's
own loss. Every run checkpoints all layers, clips gradients to the norm of 1 (the Trainer's default), and packs samples
to 2048 or 4096 tokens. Checkpointing is reentrant.
"""

from __future__ import annotations

import re
from typing import Any

from bench.accuracy.families.configs import needed
from bench.accuracy.families.fms_models import config, quantisation
from bench.accuracy.families.fms_runs import dropout, era, holds_inputs, scenario_dtype, sharding
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("fms-acceleration benchmarks",)

_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    framework = _framework(row)
    if row["outcome"].startswith("failed"):
        raise CannotExpress("the run failed for a reason that is not published")
    if "padding-free" in framework or not row["seq_len"].isdigit():
        raise CannotExpress("samples of lengths that are not published")
    if framework not in ("none", "baseline-peft-bnb", "accelerated-peft-bnb", "accelerated-peft-autogptq"):
        raise CannotExpress(f"fused kernels of {_kind(framework)} are not modelled")
    if row["metric"].startswith("nvidia-smi"):
        raise CannotExpress("nvidia-smi's figure: the context of these runs is not published")
    return _asked(row, framework)


def _framework(row: Row) -> str:
    found = re.search(r"framework=([^;]*)", row["notes"])
    return found[1] if found else "none"


def _kind(framework: str) -> str:
    return "its expert-parallel layers" if "moe" in framework else "its plugin foak or liger"


def _asked(row: Row, framework: str) -> Question:
    dtype, autocast = _precision(row)
    adapters, replicas = row["peft"] != "none", row.number("n_gpus") or 1
    quantized = row["peft"] == "qlora"
    if quantized and framework == "baseline-peft-bnb" and replicas == 1:
        raise CannotExpress(
            "TRL's own preparation of 4-bit models, which casts modules to and fro, of its time"
        )
    trace: dict[str, Any] = {
        "config": config(row),
        "seq_len": needed(row, "seq_len"),
        "weights": dtype,
        "attention": "flash",
        "checkpointing": "full",
        "trainer": "hf",
        "reentrant": True,
    }
    if autocast:
        trace["autocast"] = autocast
    if adapters:
        trace["adapters"] = {"lora": _lora(row)}
        if replicas > 1:
            trace["frozen_units"] = True
            if autocast:
                trace["adapters"]["dtype"] = autocast  # that is what FSDP gathers
    if quantized:
        trace["quantize"] = quantisation(row)
        if holds_inputs(row):
            trace["holds_inputs"] = True
    return Question(
        trace=trace,
        group=_group(row, replicas),
        measure=_measure(row),
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=sharding(row, autocast) if replicas > 1 else None,
        replicas=replicas,
        keeps_gradients=replicas > 1,
        gpu="a100-80gb",
        era=era(row),
        assumptions=("the trainer is transformers' Trainer, as TRL's was",),
    )


def _measure(row: Row) -> str:
    if row["outcome"] == "OOM":
        return "oom"
    return "steady" if "steady" in row["metric"] else "allocated"


def _group(row: Row, replicas: int) -> str:
    kind = {"none": "full", "lora": "LoRA", "qlora": "QLoRA"}[row["peft"]]
    kind = "GPTQ LoRA" if "GPTQ" in row["model"] else kind
    return f"{kind}, {replicas} GPU{'s' if replicas > 1 else ''}"


def _precision(row: Row) -> tuple[str, str | None]:
    """The type of the weights, and the type autocast computes in."""
    said = dict(re.findall(r"(torch_dtype|bf16|fp16)=(\w*)", row["precision"]))
    autocast = next((name for name in ("bf16", "fp16") if said.get(name, "").lower() == "true"), None)
    dtype = _DTYPES.get(said.get("torch_dtype", "")) or scenario_dtype(row) or autocast
    if not dtype:
        raise CannotExpress("the row does not say the type of the weights")
    return dtype, autocast


def _lora(row: Row) -> dict[str, Any]:
    found = dict(part.strip().split("=") for part in row["peft_details"].split(";") if "=" in part)
    targets = found["targets"].split()
    own = {"c_attn"} if "santacoder" in row["model"] else {"q_proj", "k_proj", "v_proj", "o_proj"}
    return {
        "rank": int(float(found["r"])),
        "targets": [target for target in targets if target in own],
        "alpha": 16,
        "dropout": dropout(row),
    }
