"""ms-swift's benchmark page: single GPUs, LoRA of rank 8 on attention's input projection and all weights.

Facts about the runs: modelscope/ms-swift at cdb169b78, docs/source_en/LLM/Benchmark.md and swift/llm (bf16 weights
under autocast, `adamw_torch`, `max_grad_norm` 0.5, adapters in float32 by PEFT, gradient checkpointing by the model's
own method, which was reentrant); the figure is `max_memory_reserved` over the run (swift/trainers/mixin.py). Samples of
more than `max_length` tokens are left out (`truncation_strategy` "delete"), so a run sees all lengths below, in an
order that is not published. Of the dataset's tokens the page has the mean, the deviation and the ends; with more than
2,048 tokens, 1,000 samples were drawn of it (scripts/benchmark/test_memory_time/run_single.py).
"""

from __future__ import annotations

from typing import Any

from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("ms-swift benchmark",)

#: By the beginning of a model's name: the config that stands for its own code, and what LoRA's DEFAULT adapts there.
_MODELS = {
    "qwen-": ("qwen2", "Qwen2ForCausalLM"),
    "qwen1half": ("qwen2", "Qwen2ForCausalLM"),
    "baichuan2": ("llama", "LlamaForCausalLM"),
    "yi-": ("llama", "LlamaForCausalLM"),
}
_DATASET = {"mean": 3234.4, "deviation": 2547.5, "shortest": 91}
_SAMPLES, _DRAWN, _WHOLE_UP_TO = 4959, 1000, 2048
_ATTENTION = ["q_proj", "k_proj", "v_proj"]
_ALL = [*_ATTENTION, "o_proj", "gate_proj", "up_proj", "down_proj"]


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if "cap" in row["seq_len"]:
        raise CannotExpress("the batch is not published, and samples are shorter than the length")
    if (row.number("n_gpus") or 1) > 1:
        raise CannotExpress("layers spread over GPUs by device_map, or a launch that the row does not tell")
    if "gptq" in row["peft_details"]:
        raise CannotExpress("weights in 4 or 8 bits by GPTQ, whose kernels are not modelled")
    trace: dict[str, Any] = {
        "config": _config(row),
        "seq_len": needed(row, "seq_len"),
        "weights": "bf16",
        "autocast": "bf16",
        "attention": "eager" if row["attn_impl"].startswith("no flash") else "flash",
        "checkpointing": "none" if row["act_ckpt"] == "none" else "full",
        "reentrant": row["act_ckpt"] != "none",
        "trainer": "hf",
        "max_grad_norm": 0.5,
    }
    if row["peft"] in ("lora", "qlora"):
        trace["adapters"] = {"lora": _lora(row)}
    elif row["peft"] != "none":
        raise CannotExpress(f"adapters by {row['peft']}")
    if row["peft"] == "qlora":
        trace["quantize"] = "nf4-double"
    accumulation_steps = row.number("grad_accum") or 1
    trace["lengths"] = {
        **_DATASET,
        "samples": _SAMPLES if trace["seq_len"] <= _WHOLE_UP_TO else _DRAWN,
        "accumulation_steps": accumulation_steps,
        "gpu": "a100-80gb",
    }
    return Question(
        trace=trace,
        group={"none": "full", "lora": "LoRA", "qlora": "QLoRA"}[row["peft"]],
        measure="oom" if row["outcome"] == "OOM" else "reserved_in_some_order",
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=accumulation_steps,
        gpu="a100-80gb",
        assumptions=(
            "a model of transformers of the same sizes in the place of the model's own code",
            "tokens spread as the logarithm's normal distribution of the published mean and deviation",
        ),
    )


def _config(row: Row) -> dict[str, Any]:
    for name, (kind, architecture) in _MODELS.items():
        if row["model"].startswith(name):
            return decoder(row, kind, architecture)
    raise CannotExpress("a model by its own code that no model of transformers stands for")


def _lora(row: Row) -> dict[str, Any]:
    rank = int(row["peft_details"].removeprefix("r=").split(",")[0])
    targets = _ALL if "ALL" in row["peft_details"] else _ATTENTION
    return {"rank": rank, "targets": targets, "alpha": 32, "dropout": 0.05}
