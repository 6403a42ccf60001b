"""torchtune's README and documentation: weights, gradients and states in bf16; only packed runs have a known length.

Facts about the runs: pytorch/torchtune, README.md of September 2024 (compiled, and packed to 2048 tokens), recipes and
recipes/configs/llama3_1 of the same commit: which layers adapters are on, the optimizers, logits in pieces. Compiled
means each layer by itself, and the loss of each piece. The recipes checkpoint around what is compiled.
"""

from __future__ import annotations

from typing import Any

from batchfit.sharding import FSDP
from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("torchtune",)

_GPUS = {
    "RTX 4090": "rtx-4090",
    "RTX A6000": "rtx-a6000",
    "A6000": "rtx-a6000",
    "T4": "t4",
    "A100-80GB": "a100-80gb",
}

_ATTENTION = ["q_proj", "k_proj", "v_proj", "output_proj"]
_FEED_FORWARD = ["w1", "w2", "w3"]

#: Adapters of the configs, by method and whether the model is of 70 and more billions.
_ADAPTERS: dict[tuple[str, bool], dict[str, Any]] = {
    ("lora", False): {"rank": 8, "targets": ["q_proj", "v_proj"]},
    ("lora", True): {"rank": 16, "targets": ["q_proj", "k_proj", "v_proj"]},
    ("qlora", False): {"rank": 8, "targets": _ATTENTION + _FEED_FORWARD},
    ("qlora", True): {"rank": 16, "targets": _ATTENTION + _FEED_FORWARD},
}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["seq_len"].isdigit():
        raise CannotExpress("samples of lengths that are not published")
    if not row["fit_quality"].startswith("packed"):
        raise CannotExpress("the length is a limit, and it is not published whether samples were packed")
    if "unstated" in (row["act_ckpt"], row["optimizer"].split(" ")[0]):
        raise CannotExpress("the optimizer and the checkpointing are not published")
    if not row["model"].startswith(("Llama-3-", "Llama-3.1-")):
        raise CannotExpress("models other than Llama 3 and 3.1, by torchtune's own code")
    if row["offload"]:
        raise CannotExpress("weights and states offloaded to the host")
    return _asked(row)


def _asked(row: Row) -> Question:
    replicas = row.number("n_gpus") or 1
    adapters = _adapters(row)
    return Question(
        trace={
            "config": decoder(
                row,
                "torchtune-llama",
                "",
                recompute=row["act_ckpt"].startswith("full"),
                nf4=row["peft"] == "qlora",
            ),
            **({"adapters": {"own": adapters}} if adapters else {}),
            "seq_len": needed(row, "seq_len"),
            "weights": "bf16",
            "attention": "flash",
            "compile": "none" if row["compile"] == "no" else "block",
            "optimizer": _optimizer(row),
        },
        group="packed",
        measure="reserved",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=FSDP() if replicas > 1 else None,
        replicas=replicas,
        gpu=_GPUS.get(row["gpu"]),
        assumptions=(
            "a model and a step written after torchtune's of that time, with adapters on the layers of its config",
            "packed samples are attended to by flex attention, as with PyTorch 2.5",
            "the figure is taken to be reserved memory; the source does not say",
        ),
    )


def _adapters(row: Row) -> dict[str, Any] | None:
    if row["peft"] == "none":
        return None
    try:
        return _ADAPTERS[row["peft"], needed(row, "hidden") >= 8192]
    except KeyError:
        raise CannotExpress(f"adapters by {row['peft']}") from None


def _optimizer(row: Row) -> str:
    """AdamW is fused in the configs of adapters; full training on one card updates in backward."""
    if "optimizer_in_bwd" in row["optimizer"]:
        if "PagedAdamW8bit" not in row["optimizer"]:
            raise CannotExpress("an optimizer within backward other than the paged one in 8 bits")
        return "paged adamw-8bit in backward"
    known = {"AdamW": "adamw-fused", "PagedAdamW8bit": "adamw-8bit-paged", "PagedAdamW": "adamw-paged"}
    return known.get(row["optimizer"].split(" ")[0], "adamw-fused")
