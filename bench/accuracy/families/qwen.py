"""Qwen's README, "Profiling of Memory and Speed": LoRA of the first Qwen on one A100 80 GB.

Facts about the runs: QwenLM/Qwen, README.md and finetune.py (transformers' Trainer in bf16 over bf16 weights, gradient
checkpointing, adapters of rank 64 on attention's and the gated layers). The model was remote code; Qwen2's of the same
sizes stands for it. The page does not say whether its figure is allocated or reserved, so it is held against both.
"""

from __future__ import annotations

from typing import Any

from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("Qwen README",)


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if (row.number("n_gpus") or 1) > 1:
        raise CannotExpress("ZeRO over several GPUs, of which the sum is published")
    if row["peft"] == "qlora":
        raise CannotExpress("weights in 4 bits by GPTQ, whose kernels are not modelled")
    trace: dict[str, Any] = {
        "config": decoder(row, "qwen2", "Qwen2ForCausalLM"),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "attention": "flash",
        "autocast": "bf16",
        "checkpointing": "full",
        "trainer": "hf",
        "reentrant": True,
    }
    if row["peft"] == "lora":
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        trace["adapters"] = {"lora": {"rank": 64, "targets": targets, "alpha": 16, "dropout": 0.05}}
        if "emb" in row["peft_details"]:
            raise CannotExpress("the embedding and the output layer are trained beside the adapters")
    else:
        raise CannotExpress(
            "DeepSpeed's ZeRO stage 3 on one GPU alone, which is what trains all weights there"
        )
    return Question(
        trace=trace,
        group="LoRA",
        measure="reserved",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        gpu="a100-80gb",
        assumptions=("Qwen2's model of the same sizes in the place of Qwen's own code",),
    )
