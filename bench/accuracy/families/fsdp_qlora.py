"""Answer.AI's notebooks nbs/00-profile_lora_qlora.ipynb and its twin with HQQ: what is allocated after forward and
after backward of a Llama of one billion parameters.

Outputs, key and value caches included, are kept by their name; weights and adapters are bf16. They are of January and
February 2024, when bitsandbytes was at 0.42: between them Llama's attention began to be given a mask, of which each
layer keeps a copy, and copies of queries, keys and values beside those that the cache keeps, while PyTorch 2.2 stopped
keeping the input of a mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.accuracy.families.configs import llama, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("fsdp_qlora_phase_alloc",)


_COLUMNS = {"forward": "alloc_after_fwd_gb", "backward": "alloc_after_bwd_gb"}


def figures(row: Row) -> Iterator[Row]:
    """The figures of a row, each as one of its own: after forward, and after backward where there was one."""
    for moment, column in _COLUMNS.items():
        if row[column]:
            values = {**row.values, "mem_raw": row[column], "mem_unit": "GB (1e9)"}
            yield Row(f"{row.id}/{moment}", row.family, values)


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["mode"].startswith("training"):
        raise CannotExpress("inference without gradients")
    if "HQQ" in row["options"]:
        raise CannotExpress("weights in 4 bits by HQQ, whose kernels are not modelled")
    moment = "after_backward" if row.id.endswith("/backward") else "after_forward"
    trace: dict[str, Any] = {
        "config": llama(row, tie_word_embeddings=False),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "labels": "none",
        "step": "mean of logits",
        "moments": True,
        "checkpointing": "full" if "gc_enabled=True" in row["options"] else "none",
    }
    if row["builder"] != "create_model":
        lora = {"rank": 8, "targets": ["q_proj", "v_proj"], "alpha": 32, "dropout": 0.1}
        trace["adapters"] = {"lora": lora, "dtype": "bf16"}
    if row["builder"] == "create_qlora_model":
        trace |= {"quantize": "nf4", "holds_inputs": "always"}
    return Question(
        trace=trace,
        group=moment.replace("_", " "),
        measure=moment,
        micro_batch=needed(row, "micro_batch"),
        era="transformers-4.38" if "hqq" in row["source"] else "transformers-4.36-torch-2.1",
        assumptions=("logits are float32, as transformers returned them until 4.45",),
    )
