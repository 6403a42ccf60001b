"""torchtitan: Llama under FSDP2 with float32 shards, bf16 computation and float32 reduction.

Facts about the runs: pytorch/torchtitan, `train.py` (the logits are deleted before backward), `parallelisms` and
train_configs. Selective checkpointing by operation keeps every second matrix product, as batchfit's does. Only its
first policy, of March 2024, is another one.
"""

from __future__ import annotations

import re

from batchfit.sharding import FSDP, FSDP1
from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("torchtitan",)

_GPUS = {
    "H100-96GB": "h100-96gb",
    "A100-80GB": "a100-80gb",
    "H200-141GB": "h200-141gb",
    "B200-180GB": "b200-180gb",
}
_PARALLEL = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    for column, name in _PARALLEL.items():
        if (row.number(column) or 1) > 1:
            raise CannotExpress(f"{name} parallelism")
    if not row["model"].startswith(("Llama-3-8B", "Llama-3.1-8B", "Llama-7B", "Llama-2-13B")):
        raise CannotExpress("models other than Llama, by torchtitan's own code")
    if row["parallelism"] not in ("FSDP1", "FSDP2"):
        raise CannotExpress(f"{row['parallelism']}, which compiles")
    if row["compile"] not in ("no", ""):
        stated = row["compile"] != "unstated"
        raise CannotExpress("torch.compile" if stated else "the row does not say whether it was compiled")
    if "float8" in row["notes"].lower() or "fp8" in row["notes"].lower() or "NVFP4" in row["notes"]:
        raise CannotExpress("linear layers in 8 or 4 bits")
    if row["offload"]:
        raise CannotExpress("activations offloaded to the host")
    return _asked(row)


def _asked(row: Row) -> Question:
    replicas = needed(row, "n_gpus")
    return Question(
        trace={
            "config": decoder(row, "torchtitan-llama", ""),
            "seq_len": needed(row, "seq_len"),
            "weights": "bf16",
            "checkpointing": _checkpointing(row),
            "attention": "flash",
            "max_grad_norm": 1.0,
        },
        group="FSDP without tensor, pipeline or context parallelism",
        measure=_measure(row),
        micro_batch=needed(row, "micro_batch"),
        sharding=(FSDP1 if row["parallelism"] == "FSDP1" else FSDP)(
            sharded_dtype="fp32",
            param_dtype="bf16",
            reduce_dtype="fp32",
            reshard_after_forward="ZeRO-2" not in row["shard_stage"],
        ),
        replicas=replicas,
        gpu=_GPUS.get(row["gpu"].split(" ")[0]),
        assumptions=("a model written after torchtitan's of that time",),
    )


def _measure(row: Row) -> str:
    if row["outcome"] != "measured":
        return {"fits": "fits", "OOM": "oom"}[row["outcome"]]
    return "reserved" if "reserved" in row["metric"] or "log" in row["metric"] else "allocated"


def _checkpointing(row: Row) -> str:
    said = row["act_ckpt"]
    if "2024-03 policy" in said:
        raise CannotExpress("the selective checkpointing policy of March 2024")
    if "every other" in said:
        raise CannotExpress("checkpointing of every second layer")
    if "chunked" in row["notes"]:
        raise CannotExpress("torchtitan's chunked cross-entropy")
    if re.match(r"selective|config default \(SAC op\)", said):
        return "selective"
    if said in ("full", "none"):
        return said
    raise CannotExpress("the row does not say what was checkpointed")
