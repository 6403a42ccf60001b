"""Grids and configurations that ran, or ran out of memory: Hugging Face's blog, DeepSpeed's autotuner, Pythia's
training, and small GPTs trained for speed.

Facts about the runs: huggingface/blog, 4bit-transformers-bitsandbytes.md (TRL's SFTTrainer of May 2023, whose example
adapts by rank 64, and PEFT adapts queries and values), pytorch-fsdp.md, accelerate-deepspeed.md and
zero-deepspeed-fairscale.md (its commands stand in huggingface/transformers, issue 8771: 128 tokens each way, and
embeddings are frozen); microsoft/DeepSpeedExamples, training/autotuning/hf (transformers' Trainer); EleutherAI/pythia,
models/*/*.yml (ZeRO-1 with overlapped communication, no dropout). Transformers' own AdamW stepped parameter by
parameter, DeepSpeed's in one kernel.

Where a row with a length tells of the next batch, which failed, that is a row of its own, but for batches beyond what
the trials were allowed (distilbert/README.md and bert-base/test_tune.sh there). A run without a published length that
ran out of memory is asked with the fewest tokens there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from batchfit.sharding import DDP, FSDP1, Sharding, ZeRO
from bench.accuracy.families.configs import needed
from bench.accuracy.families.misc_models import config_and_labels
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("hf_blog", "deepspeed_autotuning", "pythia", "nanochat", "modded_nanogpt", "galore")

#: By the beginning of a GPU's name.
_GPUS = {
    "T4": "t4",
    "Titan RTX": "titan-rtx",
    "RTX 3090": "rtx-3090",
    "V100-32": "v100-32gb",
    "A100-40": "a100-40gb",
}

#: Samples of a whole batch that the trials of a model were allowed, over all GPUs.
_ALLOWED = {"DistilBERT": 4096, "BERT-base": 4096}

_FEWEST_TOKENS = 2  # a language model predicts the second from the first

_OWN = {
    "nanochat": "a GPT of its own, with Muon",
    "modded_nanogpt": "a GPT of its own, with Muon and FlexAttention",
    "galore": "GaLore's projected optimizer states",
}


def figures(row: Row) -> Iterator[Row]:
    """The row; where the next batch is known to have failed, that one too."""
    yield row
    failed = row.number("oom_bound")
    if row["outcome"] == "fits" and failed and row["seq_len"]:
        yield Row(f"{row.id}/next", row.family, {**row.values, "micro_batch": str(failed), "outcome": "OOM"})


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    _check(row)
    return Question(
        trace=_trace(row),
        group=_group(row),
        measure="oom" if row["outcome"] == "OOM" else "fits",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=_sharding(row),
        replicas=needed(row, "n_gpus"),
        gpu=next(gpu for name, gpu in _GPUS.items() if row["gpu"].startswith(name)),
        # The oldest libraries with a Trainer that are kept; the grid is of transformers 4.30.
        era="transformers-4.39" if row["peft"] else None,
        assumptions=_assumptions(row),
    )


def _check(row: Row) -> None:
    if row.family in _OWN:
        raise CannotExpress(_OWN[row.family])
    allowed = _ALLOWED.get(row["model"])
    if allowed and needed(row, "micro_batch") * needed(row, "n_gpus") > allowed:
        raise CannotExpress("a larger batch than the trials were allowed, so it was not tried")
    if row["outcome"].startswith("failed"):
        raise CannotExpress("the trial failed, and why is not published")
    if row["offload"] not in ("none", ""):
        raise CannotExpress("offloading to the host")
    if (row.number("tp") or 1) > 1:
        raise CannotExpress("GPT-NeoX by tensor parallelism")
    if row["peft"] and (row.number("n_gpus") or 1) > 1:
        raise CannotExpress("layers spread over GPUs by device_map")
    if "fairscale" in row["shard_stage"]:
        raise CannotExpress("fairscale's sharded optimizer")
    if row["shard_stage"] == "ZeRO-0" and row["precision"] != "fp32":
        raise CannotExpress("DeepSpeed's float16 optimizer without ZeRO")
    if "target 64" in row["notes"]:
        raise CannotExpress("source and target of different lengths")
    if row["outcome"] == "OOM":
        return
    if "not stated" in row["precision"]:
        raise CannotExpress("float32 or mixed precision, which is not published")
    if "ambiguous" in row["notes"] + row["fit_quality"]:
        raise CannotExpress("the length in the command is cut off")


def _trace(row: Row) -> dict[str, Any]:
    config, labels = config_and_labels(row)
    is_deepspeed = row["shard_stage"].startswith("ZeRO-") and row["shard_stage"] != "ZeRO-0"
    trace: dict[str, Any] = {
        "config": config,
        "seq_len": _length(row),
        "labels": labels,
        "weights": "fp16" if is_deepspeed and row["precision"].startswith("fp16") else "fp32",
        "optimizer": "adamw-fused" if is_deepspeed else "adamw-single",
        "attention": "flash" if row["attn_impl"] == "flash" else "eager",
        "checkpointing": row["act_ckpt"],
    }
    if not is_deepspeed:
        trace["trainer"] = "hf"
        if row["precision"] == "fp16 AMP":
            trace["mixed"] = "fp16"
    if row["model"].startswith("T5"):
        trace["frozen"] = "embeddings"
    if row.family == "pythia":
        trace["step"] = "gpt-neox"
    if row["peft"]:
        trace |= {
            "weights": "bf16" if "bf16" in row["precision"] else "fp16",
            "quantize": _scheme(row),
            "kbit": "peft",
            "reentrant": row["act_ckpt"] != "none",
            "adapters": {"lora": {"rank": 64, "targets": ["q_proj", "v_proj"], "alpha": 16}, "dtype": "fp32"},
        }
    return trace


def _length(row: Row) -> int:
    if row["seq_len"]:
        return needed(row, "seq_len")
    if row["outcome"] == "OOM":
        return _FEWEST_TOKENS
    if row["model"].startswith("T5"):
        return 128
    raise CannotExpress("the sequence length is not published")


def _scheme(row: Row) -> str:
    if row["precision"].startswith("int8"):
        return "int8"
    # Weights in FP4 take what those in NF4 do.
    return "nf4-double" if "double" in row["precision"] or "nested" in row["precision"] else "nf4"


def _sharding(row: Row) -> Sharding:
    stage = row["shard_stage"]
    if needed(row, "n_gpus") == 1:
        return None
    if stage in ("none", "ZeRO-0"):
        return DDP()  # in float32 DeepSpeed without ZeRO reduces gradients by a copy of them, too
    if stage.startswith("ZeRO-"):
        return ZeRO(stage=int(stage[-1]), overlap_comm=row.family == "pythia")
    if stage.startswith("FSDP"):
        return FSDP1(reshard_after_forward="full" in stage)
    raise CannotExpress(f"sharding: {stage}")


def _group(row: Row) -> str:
    if row.family == "hf_blog":
        return "LLaMA on a T4" if row["peft"] else "larger models on 24 GB"
    return {"deepspeed_autotuning": "transformers on V100", "pythia": "GPT-NeoX with ZeRO-1"}[row.family]


def _assumptions(row: Row) -> tuple[str, ...]:
    if row["peft"]:
        return ("LoRA as in TRL's example of that time",)
    if row.family == "pythia":
        return ("transformers' GPT-NeoX with the loss of its own program",)
    samples = "samples as long as the command lets them be"
    if row["shard_stage"].startswith("ZeRO"):
        return (samples, "DeepSpeed's default sizes of buckets")
    return (samples,)
