"""litgpt's resource tables and config hub: weights, adapters, gradients and states in bf16, by its own model.

Facts about the runs: Lightning-AI/litgpt, tutorials/resource-tables.md (October 2023), config_hub (2024), `config.py`,
`finetune/{lora,full}.py`; see `bench.accuracy.litgpt_model`. Samples are padded to the longest of their batch. The
tables' runs take the longest sample of all in the first iteration and are as long again only by chance; those of the
config hub cut samples to a length that many have, so that a batch as long may have come just before. Under FSDP
gradients are reduced in the last micro-batch alone (`no_backward_sync`).
"""

from __future__ import annotations

import re
from typing import Any

from batchfit.sharding import FSDP1
from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("litgpt resource tables", "litgpt config hub")

#: What litgpt's configs set by the beginning of a model's name, in the words of LitGpt.
_LLAMA = {"norm": "rms", "mlp": "gated", "bias": False, "head_bias": False, "rotary": 1.0}
_NEOX = {"norm": "layer", "mlp": "plain", "bias": True, "head_bias": False, "parallel": True}
_GEMMA = {**_LLAMA, "mlp": "gelu-gated", "unit_offset": True, "scaled_embeddings": True, "head_dim": 256}
_KINDS: dict[str, dict[str, Any]] = {
    "phi-3": _LLAMA,
    "phi": {**_NEOX, "head_bias": True, "shared_norm": True, "rotary": 0.5},
    "stablelm": {**_NEOX, "rotary": 0.25},
    "pythia": {**_NEOX, "rotary": 0.25},
    "falcon 40": {**_NEOX, "bias": False, "rotary": 1.0},
    "falcon": {**_NEOX, "bias": False, "rotary": 1.0, "shared_norm": True},
    "gemma2": {
        **_GEMMA,
        "post_norms": True,
        "attention_softcap": 50.0,
        "logit_softcap": 30.0,
        "window": 4096,
        "window_every": 2,
    },
    "gemma": _GEMMA,
    "codellama": _LLAMA,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "tiny": _LLAMA,
}
_PARTS = ("query", "key", "value", "projection", "mlp", "head")


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if row["fit_quality"].startswith("SUSPECT"):
        raise CannotExpress(
            "the figure is below weights, gradients and optimizer state, so settings must be others"
        )
    capped = row.family.endswith("config hub")
    trace: dict[str, Any] = {
        "config": _config(row),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "step": "litgpt again" if capped else "litgpt",
        "checkpointing": "none" if row["act_ckpt"] == "none" else "full",
    }
    if row["peft"].startswith("adapter"):
        trace["adapters"] = {"own": {"prompt": 10, "first": 2, "scaled": row["peft"] == "adapter_v2"}}
    elif row["peft"] != "none":
        trace["adapters"] = {"own": _lora(row, recent=capped)}
    if "nf4" in row["peft_details"]:
        trace["quantize"] = "nf4-double" if "nf4-dq" in row["peft_details"] else "nf4"
        trace["quantized_from"] = "fp16"
        trace["holds_inputs"] = "always"  # bitsandbytes was pinned below 0.43
    replicas = row.number("n_gpus") or 1
    assumptions = ["a model written after litgpt's of that time"]
    if replicas > 1 and row["peft"] != "none":
        trace["flat_gradients"] = True  # Lightning wraps blocks, adapters and all, with use_orig_params
    if replicas > 1 and not capped:
        assumptions.append("the micro-batches after the longest are as long")
    return Question(
        trace=trace,
        group="one GPU" if replicas == 1 else "FSDP",
        measure="oom" if row["outcome"] == "OOM" else "allocated",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=FSDP1(gradient_sync=False) if replicas > 1 else None,
        replicas=replicas,
        gpu="a100-40gb" if row["gpu"].startswith("A100") else "a10g",
        assumptions=tuple(assumptions),
    )


def _config(row: Row) -> dict[str, Any]:
    name = row["model"].lower()
    kind = next((kind for start, kind in _KINDS.items() if name.startswith(start)), None)
    if kind is None:
        raise CannotExpress("a model whose structure this adapter does not know")
    return decoder(row, "litgpt", "", **kind)


def _lora(row: Row, *, recent: bool) -> dict[str, Any]:
    details = row["peft_details"]
    rank = re.search(r"\br=(\d+)", details)
    return {
        "rank": int(rank[1]) if rank else 8,
        "parts": [part for part in _PARTS if part in details] or ["query", "value"],
        "dropout": 0.1 if row["model"].lower().startswith("gemma") else 0.05,
        "padded_in_place": recent,
    }
