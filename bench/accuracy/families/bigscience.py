"""BigScience's Megatron-DeepSpeed runs: GPT by tensor and pipeline parallelism, with ZeRO-1 over the replicas.

Facts about the runs: bigscience-workshop/bigscience, experiments/tr3m-1B3.md and its training script (the norm of the
embedding), experiments/gpt2-meg-ds-3d (sizes; ZeRO-0), train/tr11-176B-ml/chronicles-prequel.md: "max memory used by
the first (last) nodes", and what the context takes on either card. The first node has the first stage.
"""

from __future__ import annotations

from typing import Any

from batchfit.gpus import find_gpu
from batchfit.planning.fit import NCCL_BYTES, capacity
from bench.accuracy.families.configs import needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("BigScience", "MiniCPM-V finetune")

_GPUS = {"V100-32GB": "v100-32gb", "V100-16GB": "v100-16gb", "A100-80GB": "a100-80gb"}

#: What nvidia-smi shows of a process with one number on the card, by the card's generation: 1113 MiB
#: (tr3m-1B3.md, "calibration") and 1573 MiB (chronicles-prequel.md).
_CONTEXT = {"V100": 1113 * 2**20, "A100": 1573 * 2**20}

#: Sizes that a table leaves to its script: layers, hidden, heads (meg_ds_3d_gpt2_perf_n16.slurm).
_SIZES = {"GPT2-like 52B": (64, 8192, 32)}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    _check(row)
    ranks = {name: needed(row, name) for name in ("tp", "pp", "dp")}
    measure = {"measured": "device", "OOM": "oom", "fits": "fits"}[row["outcome"]]
    trace: dict[str, Any] = {
        "config": _config(row),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16" if "bf16" in row["precision"] else "fp16",
        "checkpointing": row["act_ckpt"],
        "rank": {
            "stage": "first" if measure == "device" else "fullest",
            "stages": ranks["pp"],
            "tensor": ranks["tp"],
            "replicas": ranks["dp"],
            "zero": 1 if row["shard_stage"] == "ZeRO-1" else 0,
            "micro_batches": needed(row, "grad_accum"),
        },
        "capacity_bytes": capacity(find_gpu(_GPUS[row["gpu"]]), ranks["dp"]).capacity_bytes,
    }
    return Question(
        trace=trace,
        group=_group(row),
        measure=measure,
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=needed(row, "grad_accum"),
        gpu=_GPUS[row["gpu"]],
        beside_bytes=_beside(row, ranks) if measure == "device" else None,
        assumptions=(
            "the figure is that of the first node, which has the first stage",
            "a communicator each for replicas, tensor and pipeline parallelism, with NCCL's own buffers",
        ),
    )


def _check(row: Row) -> None:
    if row.family != "BigScience":
        raise CannotExpress("a vision-language model with parameters offloaded by ZeRO-3")
    if row["model"] == "CUDA context only":
        raise CannotExpress("no training: what the context takes")
    if "misconfigured" in row["notes"] + row["fit_quality"] + row["model"]:
        raise CannotExpress("the source calls its feed-forward width misconfigured, and does not give it")
    if "CPU ckpt" in row["parallelism"]:
        raise CannotExpress("activations checkpointed on the host")
    if row["parallelism"] == "Megatron only":
        raise CannotExpress("Megatron's own pipeline and optimizer of 2021")
    if "bnb" in row["optimizer"].lower():
        raise CannotExpress("an 8-bit optimizer under ZeRO-1")
    if row["optimizer"].startswith("torch.optim"):
        raise CannotExpress("PyTorch's Adam under ZeRO-1")
    if row["act_ckpt"] not in ("full", "none"):
        raise CannotExpress(f"checkpointing: {row['act_ckpt']}")


def _config(row: Row) -> dict[str, Any]:
    size = next((size for name, size in _SIZES.items() if row["model"].startswith(name)), None)
    layers, hidden, heads = size or (needed(row, name) for name in ("layers", "hidden", "heads"))
    return {
        "model_type": "megatron-gpt",
        "hidden_size": hidden,
        "intermediate_size": row.number("ffn") or 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": needed(row, "vocab"),
    }


def _group(row: Row) -> str:
    return f"Megatron-DeepSpeed on {row['gpu'].split('-')[0]}, {row['act_ckpt']} checkpointing"


def _beside(row: Row, ranks: dict[str, int]) -> int:
    return _CONTEXT[row["gpu"].split("-")[0]] + sum(NCCL_BYTES for count in ranks.values() if count > 1)
