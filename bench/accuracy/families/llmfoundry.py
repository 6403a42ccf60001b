"""MosaicML's llm-foundry tables: MPT under FSDP1 that was published to run, so it must be judged to fit.

Facts about the runs: mosaicml/llm-foundry, scripts/train/benchmarking. Composer's mixed precision DEFAULT reduces in
float32, PURE in bf16; its backward gathers a block after the one before is freed (BACKWARD_POST). Weights and Adam's
states are float32 in both, and the model computes under autocast in bf16.
"""

from __future__ import annotations

from batchfit.sharding import FSDP1
from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("llm-foundry",)

#: The tables of 15 February 2023, whose rows say "none" of activation checkpointing in this collection: what the README
#: of that version prints is TRUE for these models, of the one with 3 billion parameters on the smaller cards only.
_README = "88a84d94"
_RECOMPUTED = ("MosaicGPT-7b", "MosaicGPT-13b")
_RECOMPUTED_ON_40GB = ("MosaicGPT-3b",)


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if row["offload"] not in ("none", "FALSE", "", "False"):
        raise CannotExpress("offloading to the host")
    if (row.number("tp") or 1) > 1 or (row.number("pp") or 1) > 1:
        raise CannotExpress("tensor or pipeline parallelism")
    reduce = "bf16" if "mixed_precision=PURE" in row["notes"] else "fp32"
    return Question(
        trace={
            "config": decoder(row, "llmfoundry-mpt", ""),
            "seq_len": needed(row, "seq_len"),
            "weights": "fp32",
            "mixed": "bf16",
            "checkpointing": "full" if _recomputes(row) else "none",
            "attention": "flash",
        },
        group="published runs",
        measure="oom" if row["outcome"] == "OOM" else "fits",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=FSDP1(backward_prefetch="post", param_dtype="bf16", reduce_dtype=reduce),
        replicas=needed(row, "n_gpus"),
        gpu=row["gpu"].lower(),
        assumptions=("a model written after MPT's of that time",),
    )


def _recomputes(row: Row) -> bool:
    if row["commit_or_version"].startswith(_README):
        small = row["gpu"].endswith("40GB") and row["model"] in _RECOMPUTED_ON_40GB
        return small or row["model"] in _RECOMPUTED
    return row["act_ckpt"].startswith("full")
