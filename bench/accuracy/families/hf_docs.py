"""The documentation of transformers on training with one GPU: BERT-large for classification on a V100 16 GB, with
transformers' Trainer, 512 samples of 512 tokens. The figure is the whole device's; the page gives what it shows before
any training, 1343 MB, once kernels are loaded. Its AdamW is transformers' own, which steps parameter by parameter.

Facts about the runs: huggingface/transformers, docs/source/en/perf_train_gpu_one.mdx, 2022.
"""

from __future__ import annotations

from typing import Any

from bench.accuracy.families.configs import needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("transformers docs", "PEFT README", "PEFT docs deepspeed")

_OPTIMIZERS = {"AdamW": "adamw-single", "Adafactor": "adafactor", "Adam8bit (bnb)": "adamw-8bit"}
_BESIDE = 1343 * 2**20


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["model"].startswith("bert-large"):
        missing = (
            "offloading to the host" if row["offload"] else "the batch and the lengths are not published"
        )
        raise CannotExpress(missing)
    if row["optimizer"] not in _OPTIMIZERS:
        raise CannotExpress("nothing was trained")
    trace: dict[str, Any] = {
        "config": {
            "model_type": "bert",
            "architectures": ["BertForSequenceClassification"],
            "hidden_size": needed(row, "hidden"),
            "intermediate_size": needed(row, "ffn"),
            "num_hidden_layers": needed(row, "layers"),
            "num_attention_heads": needed(row, "heads"),
            "vocab_size": needed(row, "vocab"),
        },
        "seq_len": needed(row, "seq_len"),
        "labels": "sample",
        "weights": "fp32",
        "attention": "eager",
        "optimizer": _OPTIMIZERS[row["optimizer"]],
        "checkpointing": row["act_ckpt"] or "none",
        "trainer": "hf",
    }
    if row["precision"] == "AMP fp16":
        trace["mixed"] = "fp16"
    return Question(
        trace=trace,
        group="BERT-large on one V100",
        measure="device",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        beside_bytes=_BESIDE,
        gpu="v100-16gb",
        assumptions=("the context and the kernels take the 1343 MB that the page states",),
    )
