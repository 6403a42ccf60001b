"""Answer.AI's fsdp_qlora: Llama 2 with LoRA or QLoRA over a few consumer cards, by FSDP1 or with whole replicas.

Facts about the runs: AnswerDotAI/fsdp_qlora, train.py, benchmarks_03_2024.md and benchmarking/*.sh, February and March
2024. Weights and adapters are bf16; blocks are FSDP units, and in them each adapter layer is one of its own
(`get_wrapping_policy`). Checkpointing is inside of a block's unit. 4-bit weights keep bitsandbytes' default, nested
statistics, which are no parameters and so not sharded. Its README leaves transformers 4.38 and 4.39 out, of which
memory was known to grow.
"""

from __future__ import annotations

from typing import Any

from batchfit.sharding import FSDP1, Sharding
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
        "config": llama(row, max_position_embeddings=4096),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "checkpointing": "none" if row["act_ckpt"] == "none" else "full",
        "reentrant": "reentrant" in row["act_ckpt"],
    }
    if row["peft"] != "none":
        targets = ["k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"]
        rank = 64 if "64" in row["peft_details"] else 8
        trace["adapters"] = {
            "lora": {"rank": rank, "targets": targets, "alpha": 16, "dropout": 0.1},
            "dtype": "bf16",
        }
    if row["peft"] == "QLoRA":
        trace |= {"quantize": "nf4-double", "holds_inputs": "of its time"}
    return Question(
        trace=trace,
        group="fits" if row["outcome"] == "fits" else row["peft"],
        measure=_measure(row),
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=_sharding(row),
        replicas=needed(row, "n_gpus"),
        gpu=_GPUS[row["gpu"]],
        era="transformers-4.36",
    )


def _sharding(row: Row) -> Sharding:
    if row["shard_stage"].startswith("NO_SHARD"):
        return None  # whole replicas: FSDP reduces flat gradients where they are, without buckets
    return FSDP1()


def _measure(row: Row) -> str:
    if row["outcome"] == "fits":
        return "fits"
    return "allocated" if "allocated" in row["metric"] else "reserved"
