"""PEFT's method comparison on MetaMathQA: Llama 3.2 3B in bf16, batches of 4 of at most 768 tokens, one GPU.

Facts about the runs: huggingface/peft, method_comparison/MetaMathQA (run.py, utils.py, default_training_params.json and
the adapter_config.json of each experiment; what these set is in data/peft_experiments.json). The published figure is
the most that was reserved, less what was before the model; the cache is emptied every ten steps.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from bench.accuracy.families.configs import llama, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("PEFT method comparison",)

_EXPERIMENTS = Path(__file__).parents[1] / "data" / "peft_experiments.json"
_LORA = ("LORA",)


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["metric"].startswith("max reserved"):
        raise CannotExpress("a percentile over steps of lengths that are not published")
    if "Llama" not in row["model"]:
        raise CannotExpress("image generation")
    return Question(
        trace={
            "config": llama(row, head_dim=needed(row, "hidden") // needed(row, "heads")),
            "seq_len": needed(row, "seq_len"),
            "weights": "bf16",
            "attention_mask": True,
            "checkpointing": "full" if row["act_ckpt"] == "yes" else "none",
            "max_grad_norm": 1.0,
            **_trained(row),
        },
        group=_group(row),
        measure="reserved",
        micro_batch=needed(row, "micro_batch"),
        assumptions=("one batch is of samples of the longest length",),
    )


def _group(row: Row) -> str:
    kind = _details(row)["peft_type"]
    return {"LORA": "LoRA family", "full": "full"}.get(kind, "other methods")


def _details(row: Row) -> dict[str, str]:
    return dict(part.strip().split("=", 1) for part in row["peft_details"].split(";") if "=" in part)


@cache
def experiments() -> dict[str, dict[str, Any]]:
    """What each experiment sets, by its name: `adapter` for PEFT's config, `training` for the run."""
    found: dict[str, dict[str, Any]] = json.loads(_EXPERIMENTS.read_text(encoding="utf-8"))
    return found


def _trained(row: Row) -> dict[str, Any]:
    """What is trained, as far as it differs from the default."""
    details = _details(row)
    if details["peft_type"] == "full":
        return {}
    named = re.search(r"exp=([^;]*)", row["notes"])
    setting = experiments().get(named[1].strip() if named else "")
    if setting is None:
        return {"adapters": _told(row, details)}
    training = setting.get("training", {})
    if training.get("optimizer_type", "AdamW") != "AdamW":
        raise CannotExpress(f"the optimizer {training['optimizer_type']}")
    if training.get("autocast_adapter_dtype", True) is False:
        return {"adapters": {"peft": setting["adapter"], "dtype": "bf16"}}
    return {"adapters": {"peft": setting["adapter"]}}


def _told(row: Row, details: dict[str, str]) -> dict[str, Any]:
    """An experiment whose config is not in the repository any more, from what its result says."""
    if details["peft_type"] not in _LORA:
        raise CannotExpress("the experiment's config is not in the repository any more")
    return {
        "lora": {
            "rank": int(details["r"]),
            "targets": details["targets"].split("+"),
            "dora": details.get("use_dora") == "True",
        }
    }
