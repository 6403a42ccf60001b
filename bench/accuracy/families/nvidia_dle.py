"""NVIDIA's tables of BERT in PyTorch and TensorFlow, and Google's largest batches for fine-tuning BERT on 12 GB.

Facts about the runs: NVIDIA/DeepLearningExamples, README of LanguageModeling/BERT in PyTorch/, TensorFlow/ and
TensorFlow2/; google-research/bert, README, "Out-of-memory issues".

Pre-training predicts 20 masked tokens of 128, and 80 of 512. With XLA, TensorFlow fuses what PyTorch has fused
kernels for. LAMB keeps what Adam keeps; NVIDIA's and apex's work in one kernel, TensorFlow's variable by variable.
ELECTRA ran with XLA in every precision (its scripts/configs), its generator a third as wide.
Notes tell of batches that ran out of memory in another precision; those of pre-training accumulated, as every run of
that table on one GPU. Google's table tells the largest batch, so the next one is a figure, too; but its batches are
even or 1, as if no others had been tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from batchfit.gpus import find_gpu
from batchfit.planning.fit import capacity
from batchfit.sharding import DDP
from bench.accuracy.families.configs import needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("nvidia_dle", "google_bert")

_GPUS = {"V100-16": "v100-16gb", "V100-32": "v100-32gb", "A100-40": "a100-40gb", "A100-80": "a100-80gb"}

#: TensorFlow leaves 5 % of what is free on a card to the system (MinSystemMemory in
#: tensorflow/core/common_runtime/gpu/gpu_device.cc).
_TENSORFLOW_SHARE = 0.95

#: TensorFlow 1 runs an operation as soon as its inputs are there. The Adam that BERT came with multiplies both of its
#: moments and the decayed weights before any gradient is needed, so three tensors of all weights wait through the step
#: (`AdamWeightDecayOptimizer` in optimization.py); under loss scaling it waits until gradients are known to be finite.
_EARLY_PRODUCTS = 3

#: What TensorFlow finds free on a Titan X ("freeMemory: 11.76GiB" of 11.91 in its log).
_TITAN_X_BYTES = int(11.76 * 2**30)


def figures(row: Row) -> Iterator[Row]:
    """The row; for a largest batch also the next one, which failed."""
    yield row
    failed = row.number("oom_bound")
    if row["outcome"] == "fits" and failed:
        next_one = {"micro_batch": str(failed), "outcome": "OOM"}
        yield Row(f"{row.id}/next", row.family, {**row.values, **next_one})


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if row["act_ckpt"] not in ("none", "none (not mentioned)"):
        raise CannotExpress(f"checkpointing: {row['act_ckpt']}")
    if row["offload"] not in ("none", ""):
        raise CannotExpress("offloading to the host")
    micro_batch = needed(row, "micro_batch")
    if micro_batch < 1:
        raise CannotExpress("no batch ran")
    framework = _framework(row)
    replicas = row.number("n_gpus") or 1
    gpu = _GPUS.get(row["gpu"])
    return Question(
        trace=_trace(row, framework),
        group=_group(row, framework),
        measure="oom" if row["outcome"] == "OOM" else "fits",
        micro_batch=micro_batch,
        accumulation_steps=row.number("grad_accum") or (2 if _predictions(row) else 1),
        sharding=DDP() if replicas > 1 else None,
        replicas=replicas,
        gpu=gpu or row["gpu"],
        beside_bytes=_early_products(row, framework),
        room_bytes=_room(row, framework, gpu, replicas),
        assumptions=(f"BERT written after {framework}'s", "TensorFlow's memory as PyTorch's would be")
        if framework != "pytorch"
        else (),
    )


def _group(row: Row, framework: str) -> str:
    if row.family == "google_bert":
        return "the batch after the largest" if row["outcome"] == "OOM" else "the largest batch"
    name = {"pytorch": "PyTorch", "tensorflow1": "TensorFlow 1", "tensorflow2": "TensorFlow 2"}[framework]
    return f"{name}, {'pre-training' if _predictions(row) else 'fine-tuning'}"


def _early_products(row: Row, framework: str) -> int | None:
    """Bytes of what the optimizer computes too early."""
    if framework != "tensorflow1" or "FP16" in row["precision"] or _predictions(row):
        return None
    return _EARLY_PRODUCTS * 4 * round(float(row["params_b"]) * 1e9)


def _framework(row: Row) -> str:
    for folder, name in (("/TensorFlow2/", "tensorflow2"), ("/PyTorch/", "pytorch")):
        if folder in row["url_or_path"]:
            return name
    return "tensorflow1"


def _predictions(row: Row) -> int | None:
    if not row["notes"].startswith("pretrain"):
        return None
    length = needed(row, "seq_len")
    known = {128: 19, 512: 79} if _is_electra(row) else {128: 20, 512: 80}
    if length not in known:
        raise CannotExpress(f"how many of {length} tokens are predicted is not published")
    return known[length]


def _is_electra(row: Row) -> bool:
    return "electra" in row["model"].lower()


def _trace(row: Row, framework: str) -> dict[str, Any]:
    predictions = _predictions(row)
    config: dict[str, Any] = {
        "model_type": "bert-of-its-time",
        "operations": "pytorch" if row["compile"] == "XLA" or _is_electra(row) else framework,
        "hidden_size": needed(row, "hidden"),
        "intermediate_size": needed(row, "ffn"),
        "num_hidden_layers": needed(row, "layers"),
        "num_attention_heads": needed(row, "heads"),
        "vocab_size": needed(row, "vocab"),
    }
    if predictions:
        config["predictions"] = predictions
        if _is_electra(row):
            config |= {
                "model_type": "electra-of-its-time",
                "generator_hidden_size": needed(row, "hidden") // 3,
            }
    trace: dict[str, Any] = {
        "config": config,
        "seq_len": needed(row, "seq_len"),
        "weights": "fp32",
        "optimizer": "adamw-fused" if framework == "pytorch" else "adamw-single",
    }
    if "FP16" in row["precision"]:
        trace["mixed"] = "fp16"
    return trace


def _room(row: Row, framework: str, gpu: str | None, replicas: int) -> int | None:
    """What a framework's allocator may take; None for what PyTorch may, which the catalogue knows."""
    if gpu is None:
        if row["gpu"] != "Titan X":
            raise CannotExpress(f"the catalogue has no {row['gpu']}")
        return int(_TITAN_X_BYTES * _TENSORFLOW_SHARE)
    if framework == "pytorch":
        return None
    return int(capacity(find_gpu(gpu), replicas).capacity_bytes * _TENSORFLOW_SHARE)
