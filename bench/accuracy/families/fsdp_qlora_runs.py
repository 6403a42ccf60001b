"""Answer.AI's fsdp_qlora: Llama 2 with LoRA or QLoRA over a few consumer cards, by FSDP1 or with whole replicas.

Facts about the runs: AnswerDotAI/fsdp_qlora, train.py, benchmarks_03_2024.md and benchmarking/*.sh. Weights and
adapters are bf16; adapters are FSDP units of their own. Attention and the gated layers of a block are, too, which
batchfit has as one unit.
"""

from __future__ import annotations

from typing import Any

from batchfit.sharding import DDP, FSDP1, Sharding
from bench.accuracy.families.configs import llama, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("fsdp_qlora",)

_GPUS = {"A5000": "rtx-a5000", "RTX 3090": "rtx-3090", "RTX 4090": "rtx-4090", "A100-40": "a100-40gb"}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if row["offload"] != "none":
        raise CannotExpress("offloading to the host")
    if row["peft"].startswith("HQQ"):
        raise CannotExpress("weights in 4 bits by HQQ, whose kernels are not modelled")
    if "(custom)" in row["peft"]:
        raise CannotExpress("its own LoRA layers")
    if row["metric"].startswith("nvidia-smi"):
        raise CannotExpress("samples of lengths that are not published")
    trace: dict[str, Any] = {
        "config": llama(row),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "checkpointing": "none" if row["act_ckpt"] == "none" else "full",
    }
    if row["peft"] != "none":
        targets = ["k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"]
        rank = 64 if "64" in row["peft_details"] else 8
        trace["adapters"] = {
            "lora": {"rank": rank, "targets": targets, "alpha": 16, "dropout": 0.1},
            "dtype": "bf16",
        }
    if row["peft"] == "QLoRA":
        trace["quantize"] = "nf4"
    return Question(
        trace=trace,
        group="fits" if row["outcome"] == "fits" else row["peft"],
        measure=_measure(row),
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=_sharding(row),
        replicas=needed(row, "n_gpus"),
        gpu=_GPUS[row["gpu"]],
        assumptions=("attention and gated layers are one FSDP unit with their block",),
    )


def _sharding(row: Row) -> Sharding:
    if row["shard_stage"].startswith("NO_SHARD"):
        return DDP()
    return FSDP1(backward_prefetch="none" if "reentrant" in row["act_ckpt"] else "pre")


def _measure(row: Row) -> str:
    if row["outcome"] == "fits":
        return "fits"
    return "allocated" if "allocated" in row["metric"] else "reserved"
