"""torchtitan: Llama under FSDP2 with float32 shards, bf16 computation and float32 reduction.

Facts about the runs: pytorch/torchtitan, `train.py`, `components/loss.py`, `models/llama`, `parallelisms`,
train_configs, run_llama_train.sh and their history, by the date of a row. Selective checkpointing by operation keeps
every second matrix product, as batchfit's does. Compiled means each block, and in its times the loss.
"""

from __future__ import annotations

import re
from typing import Any

from batchfit.sharding import FSDP, FSDP1
from bench.accuracy.families import torchtitan_parallel
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

#: Before this day the logits were a variable of the training loop until it had the next ones.
_LOGITS_DELETED = "2024-06-12"
#: Before this day the model brought its logits to float32; from then on the loss does, and is compiled.
_FLOAT_IN_LOSS = "2024-10-22"
#: Between these days the loss was not compiled.
_LOSS_NOT_COMPILED = ("2024-12-18", "2025-04-02")
#: Pieces of the sequence in the chunked loss (`chunked_cross_entropy_loss`).
_PIECES = 8
#: From this day on the scripts set expandable segments.
_EXPANDABLE = "2024-10-22"
#: From this day on the norms are PyTorch's. Before, they were a kernel that fuses as much in the first weeks.
_NORM_OF_PYTORCH = "2025-03-19"
_NORM_FUSED = ("2024-04-05", "2024-05-02")


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    torchtitan_parallel.check(row)
    asked = _undivided(row)
    return torchtitan_parallel.question(row, asked) if torchtitan_parallel.is_parallel(row) else asked


def _undivided(row: Row) -> Question:
    """What a row asks, or would if nothing but data parallelism were used."""
    if not row["model"].startswith("Llama-"):
        raise CannotExpress("models other than Llama, by torchtitan's own code")
    if row["parallelism"] not in ("FSDP1", "FSDP2"):
        raise CannotExpress(f"{row['parallelism']}, which compiles")
    if row["compile"] not in ("no", "", "yes"):
        stated = row["compile"] != "unstated"
        raise CannotExpress(f"compiled by {row['compile'].split(' ')[0]}" if stated else _UNSTATED_COMPILE)
    if "compile state unstated" in row["notes"]:
        raise CannotExpress(_UNSTATED_COMPILE)
    _check_few_bits(row)
    if row["offload"]:
        raise CannotExpress("activations offloaded to the host")
    return _asked(row)


def _check_few_bits(row: Row) -> None:
    """Linear layers in 8 bits are expressed where blocks are compiled and recomputed: then the 8-bit copies of inputs
    and weights are made anew in backward, and what stays are the results of products, in 16 bits."""
    notes = row["notes"].lower()
    if not re.search(_EIGHT_BITS, notes):
        if "fp4" in notes:
            raise CannotExpress("linear layers in 4 bits")
        return
    if row["compile"] != "yes" or row["act_ckpt"] == "none":
        raise CannotExpress("linear layers in 8 bits whose copies stay")
    if "all-gather" in notes:
        raise CannotExpress("weights gathered in 8 bits")
    if ("saving abs()" in notes and "not saving" not in notes) or "with abs saved" in notes:
        raise CannotExpress("a policy that keeps absolute values")


_EIGHT_BITS = r"float8|fp8"

_UNSTATED_COMPILE = "the row does not say whether it was compiled"


def _asked(row: Row) -> Question:
    replicas = needed(row, "n_gpus")
    date = _date(row)
    checkpointing, more = _checkpointing(row)
    compiled = row["compile"] == "yes"
    first, last = _LOSS_NOT_COMPILED
    config = decoder(
        row,
        "torchtitan-llama",
        "",
        own_norm=date < _NORM_OF_PYTORCH and not _NORM_FUSED[0] <= date < _NORM_FUSED[1],
        float_logits=date < _FLOAT_IN_LOSS,
        compiled_loss=compiled and date >= _FLOAT_IN_LOSS and not first <= date < last,
        loss_pieces=_PIECES if "chunked" in row["notes"] else 1,
        **more,
    )
    trace: dict[str, Any] = {
        "config": config,
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "checkpointing": checkpointing,
        "attention": "flash",
        "max_grad_norm": 1.0,
        "compile": "block" if compiled else "none",
    }
    if date < _LOGITS_DELETED:
        trace["step"] = "torchtitan until June 2024"
    if date >= _EXPANDABLE or "expandable" in row["notes"]:
        trace["allocator"] = "expandable_segments:True"
    return Question(
        trace=trace,
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
        assumptions=(
            "a model and a step written after torchtitan's of that time",
            *(_RECOMPUTED if re.search(_EIGHT_BITS, row["notes"].lower()) else ()),
        ),
    )


_RECOMPUTED = (
    "8-bit copies of inputs and weights take no more than the 16-bit ones would: they are recomputed with their block",
)


def _date(row: Row) -> str:
    """The day of a row's commit; where only the month is known, its last; what is not dated is of today's code."""
    found = re.search(r"(20\d\d-\d\d)(-\d\d)?", row["commit_or_version"])
    return found[1] + (found[2] or "-31") if found else "9999"


def _measure(row: Row) -> str:
    if row["outcome"] != "measured":
        return {"fits": "fits", "OOM": "oom"}[row["outcome"]]
    return "reserved" if "reserved" in row["metric"] or "log" in row["metric"] else "allocated"


def _checkpointing(row: Row) -> tuple[str, dict[str, Any]]:
    """The setting, and what the model does by itself."""
    said = row["act_ckpt"]
    if "every other" in said:
        return "none", {"recompute_every": 2}
    if re.match(r"selective|config default \(SAC op\)", said):
        return "selective", {}
    if said in ("full", "none"):
        return said, {}
    raise CannotExpress("the row does not say what was checkpointed")
