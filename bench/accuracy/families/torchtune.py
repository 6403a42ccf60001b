"""torchtune's README and documentation: weights, gradients and states in bf16; only packed runs have a known length.

Facts about the runs: pytorch/torchtune, README.md and recipes/configs (8B_lora_single_device: rank 8 on attention and
on the gated layers, alpha 16, logits in pieces).
"""

from __future__ import annotations

from typing import Any

from batchfit.sharding import FSDP
from bench.accuracy.families.configs import llama, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("torchtune",)

_GPUS = {
    "RTX 4090": "rtx-4090",
    "RTX A6000": "rtx-a6000",
    "A6000": "rtx-a6000",
    "T4": "t4",
    "A100-80GB": "a100-80gb",
}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["seq_len"].isdigit():
        raise CannotExpress("samples of lengths that are not published")
    if not row["fit_quality"].startswith("packed"):
        raise CannotExpress("the length is a limit, and it is not published whether samples were packed")
    if "optimizer_in_bwd" in row["optimizer"]:
        raise CannotExpress("the optimizer runs within backward")
    if "unstated" in (row["act_ckpt"], row["optimizer"].split(" ")[0]):
        raise CannotExpress("the optimizer and the checkpointing are not published")
    return _asked(row)


def _asked(row: Row) -> Question:
    trace: dict[str, Any] = {
        "config": llama(row),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "loss": "chunked",
        "checkpointing": row["act_ckpt"].split(" ")[0],
    }
    if row["peft"] in ("lora", "qlora"):
        targets = ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        trace["adapters"] = {"lora": {"rank": 8, "targets": targets, "alpha": 16}, "dtype": "bf16"}
    if row["peft"] == "qlora":
        trace["quantize"] = "nf4-double"
    replicas = row.number("n_gpus") or 1
    return Question(
        trace=trace,
        group="packed",
        measure="reserved",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=FSDP() if replicas > 1 else None,
        replicas=replicas,
        gpu=_GPUS.get(row["gpu"]),
        assumptions=(
            "transformers' model of the same sizes, run without torch.compile, which the published run used",
            "the figure is taken to be reserved memory; the source does not say",
        ),
    )
