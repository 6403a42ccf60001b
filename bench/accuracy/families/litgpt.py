"""litgpt's resource tables and config hub: weights, adapters, gradients and states in bf16, logits in pieces.

Facts about the runs: Lightning-AI/litgpt, tutorials/resource-tables.md, config_hub and `litgpt/lora.py`. Samples are
padded to their own longest; the longest of all sets the peak, so rows with a length truncated far below it are exact
and others nearly. Under FSDP gradients are reduced in the last micro-batch alone (`no_backward_sync`).
"""

from __future__ import annotations

from typing import Any

from batchfit.sharding import FSDP1
from bench.accuracy.families.configs import decoder, llama, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("litgpt resource tables", "litgpt config hub")


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if row["peft"].startswith("adapter"):
        raise CannotExpress("LLaMA-Adapter")
    if row["fit_quality"].startswith("SUSPECT"):
        raise CannotExpress(
            "the figure is below weights, gradients and optimizer state, so settings must be others"
        )
    config = _config(row)
    trace: dict[str, Any] = {
        "config": config,
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "attention": "flash",
        "loss": "chunked",
        "checkpointing": "none" if row["act_ckpt"] == "none" else "full",
    }
    if row["peft"] != "none":
        trace["adapters"] = {"lora": _lora(row, config), "dtype": "bf16"}
    if row["peft"] == "qlora":
        trace["quantize"] = "nf4-double" if "nf4-dq" in row["peft_details"] else "nf4"
        trace["holds_inputs"] = True  # bitsandbytes was pinned below 0.43
    replicas = row.number("n_gpus") or 1
    if replicas > 1 and row["peft"] != "none":
        trace["flat_gradients"] = True  # Lightning wraps blocks, adapters and all, with use_orig_params
    return Question(
        trace=trace,
        group="one GPU" if replicas == 1 else "FSDP",
        measure="oom" if row["outcome"] == "OOM" else "allocated",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=FSDP1(gradient_sync=False) if replicas > 1 else None,
        replicas=replicas,
        gpu="a100-40gb" if row["gpu"].startswith("A100") else "a10g",
        assumptions=("transformers' model of the same sizes in the place of litgpt's",),
    )


def _config(row: Row) -> dict[str, Any]:
    model = row["model"]
    if model.startswith("phi"):
        return decoder(
            row, "phi", "PhiForCausalLM", partial_rotary_factor=0.5, hidden_act="gelu_pytorch_tanh"
        )
    if model.startswith("StableLM"):
        return decoder(row, "gpt_neox", "GPTNeoXForCausalLM", rotary_pct=0.25, use_parallel_residual=True)
    if model.startswith("Falcon"):
        return {
            "model_type": "falcon",
            "architectures": ["FalconForCausalLM"],
            "hidden_size": needed(row, "hidden"),
            "num_hidden_layers": needed(row, "layers"),
            "num_attention_heads": needed(row, "heads"),
            "num_kv_heads": needed(row, "kv_heads"),
            "vocab_size": needed(row, "vocab"),
            "new_decoder_architecture": True,
        }
    return llama(row)


def _lora(row: Row, config: dict[str, Any]) -> dict[str, Any]:
    details = row["peft_details"]
    rank = 32 if "r=32" in details else 8
    fused = "query_key_value"
    targets = [fused] if config["model_type"] in ("gpt_neox", "falcon") else ["q_proj", "v_proj"]
    if "projection" in details:
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
    return {"rank": rank, "targets": targets, "alpha": 16, "dropout": 0.05}
