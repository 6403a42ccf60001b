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
from bench.accuracy.families.fms_runs import (
    adapters_dtype,
    commit,
    dropout,
    era,
    holds_inputs,
    kernels,
    scenario_autocast,
    scenario_dtype,
    sharding,
)
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("fms-acceleration benchmarks",)

#: Tokens of a sample where a run's lengths are not published, and what is asked about it does not depend on them.
_LENGTH = 4096

_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    framework = _framework(row)
    if row["outcome"].startswith("failed"):
        raise CannotExpress("the run failed for a reason that is not published")
    if "moe" in framework:
        raise CannotExpress("its plugin's layers of experts are not modelled")
    if not row["seq_len"].isdigit() and _measure(row) != "steady":
        raise CannotExpress("samples of lengths that are not published")
    return _asked(row, framework)


def _framework(row: Row) -> str:
    found = re.search(r"framework=([^;]*)", row["notes"])
    return found[1] if found else "none"


def _asked(row: Row, framework: str) -> Question:
    dtype, autocast = _precision(row)
    replicas = row.number("n_gpus") or 1
    replaced, fused = kernels(row, framework)
    apart = fused is not None and replicas > 1
    if apart and commit(row) == "8103238":
        raise CannotExpress("attention was left out of FSDP with its adapters, by a fault of that commit")
    trace: dict[str, Any] = {
        "config": config(row),
        "seq_len": row.number("seq_len") or _LENGTH,
        "weights": dtype,
        "attention": "flash",
        "checkpointing": "full",
        "trainer": "hf",
        "reentrant": True,
        **({"autocast": autocast} if autocast else {}),
        **({"kernels": replaced} if replaced else {}),
        **({"fused_lora": fused} if fused else {}),
        **_prepared(row, framework, autocast),
        **_frozen(row, sharded=replicas > 1, gathered=adapters_dtype(row, autocast, apart=apart)),
    }
    return Question(
        trace=trace,
        group=_group(row, framework, replicas),
        measure=_measure(row),
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=sharding(row, autocast, apart=apart) if replicas > 1 else None,
        replicas=replicas,
        keeps_gradients=replicas > 1 and not apart,
        misses_trained=apart,
        gpu="a100-80gb",
        era=era(row),
        needs_era=bool(replaced) and era(row) is not None,
        assumptions=("the trainer is transformers' Trainer, as TRL's was",),
    )


def _prepared(row: Row, framework: str, autocast: str | None) -> dict[str, Any]:
    """TRL prepares 4-bit models itself where the plugin does not (`no_peft_model`), unless they are sharded."""
    if row["peft"] != "qlora" or framework != "baseline-peft-bnb" or row["n_gpus"] != "1":
        return {}
    return {"kbit": "trl-bf16" if autocast == "bf16" else True}


def _frozen(row: Row, *, sharded: bool, gathered: str | None) -> dict[str, Any]:
    """What is asked of the trace where the base is frozen; `gathered` is the adapters' type where PEFT does not choose
    it."""
    if row["peft"] == "none":
        return {}
    asked: dict[str, Any] = {"adapters": {"lora": _lora(row)}}
    if sharded:
        asked["frozen_units"] = True
        if gathered:
            asked["adapters"]["dtype"] = gathered
    if row["peft"] == "qlora":
        asked["quantize"] = quantisation(row)
        if holds_inputs(row):
            asked["holds_inputs"] = True
    return asked


def _measure(row: Row) -> str:
    if row["outcome"] == "OOM":
        return "oom"
    if row["metric"].startswith("nvidia-smi"):
        return "device"
    return "steady" if "steady" in row["metric"] else "allocated"


def _group(row: Row, framework: str, replicas: int) -> str:
    kind = {"none": "full", "lora": "LoRA", "qlora": "QLoRA"}[row["peft"]]
    kind = "GPTQ LoRA" if "GPTQ" in row["model"] else kind
    fused = ", fused kernels" if "foak" in framework else ""
    return f"{kind}{fused}, {replicas} GPU{'s' if replicas > 1 else ''}"


def _precision(row: Row) -> tuple[str, str | None]:
    """The type of the weights, and the type autocast computes in."""
    said = dict(re.findall(r"(torch_dtype|bf16|fp16)=(\w*)", row["precision"]))
    named = next((name for name in ("bf16", "fp16") if said.get(name, "").lower() == "true"), None)
    autocast = named or scenario_autocast(row)
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
