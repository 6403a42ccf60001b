"""foundation-model-stack's fms-acceleration benchmarks: SFTTrainer of its time on one A100 80 GB or several.

Facts about the runs: scripts/benchmarks of the repository (scenarios.yaml, defaults.yaml, accelerate.yaml,
benchmark.py) and plugins/accelerated-peft. Its TRL (0.9 to 0.13) trains as transformers' Trainer does, with the model's
own loss. Every run checkpoints all layers, clips gradients to the norm of 1 (the Trainer's default), and packs samples
to 2048 or 4096 tokens. Checkpointing is reentrant, so 4-bit layers of bitsandbytes before 0.43.2 hold no inputs.
"""

from __future__ import annotations

import re
from typing import Any

from batchfit.sharding import FSDP1
from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("fms-acceleration benchmarks",)

_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}

#: The libraries' versions in refs/requirements.txt at a commit. Those before July 2024 have no such file.
_ERAS = {
    "HEAD": "transformers-4.48",
    "c959c6b": "transformers-4.48",
    "9239802": "transformers-4.45",
    "97fc3c1": "transformers-4.45",
    "4e81c64": "transformers-4.44",
    "ff14d4f": "transformers-4.44",
    "b6c1455": "transformers-4.43",
    "6028250": "transformers-4.43",
    "4224c66": "transformers-4.43",
}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    framework = _framework(row)
    if "GPTQ" in row["model"]:
        raise CannotExpress("weights in 4 bits by GPTQ, whose kernels are not modelled")
    if row["outcome"].startswith("failed"):
        raise CannotExpress("the run failed for a reason that is not published")
    if "padding-free" in framework or not row["seq_len"].isdigit():
        raise CannotExpress("samples of lengths that are not published")
    if framework not in ("none", "baseline-peft-bnb", "accelerated-peft-bnb"):
        raise CannotExpress(f"fused kernels of {_kind(framework)} are not modelled")
    if row["metric"].startswith("nvidia-smi"):
        raise CannotExpress("nvidia-smi's figure: the context of these runs is not published")
    return _asked(row, framework)


def _framework(row: Row) -> str:
    found = re.search(r"framework=([^;]*)", row["notes"])
    return found[1] if found else "none"


def _kind(framework: str) -> str:
    return "its expert-parallel layers" if "moe" in framework else "its plugin foak or liger"


def _asked(row: Row, framework: str) -> Question:
    dtype, autocast = _precision(row)
    adapters, replicas = row["peft"] != "none", row.number("n_gpus") or 1
    quantized = row["peft"] == "qlora"
    if quantized and framework == "baseline-peft-bnb" and replicas == 1:
        raise CannotExpress(
            "TRL's own preparation of 4-bit models, which casts modules to and fro, of its time"
        )
    trace: dict[str, Any] = {
        "config": _config(row),
        "seq_len": needed(row, "seq_len"),
        "weights": dtype,
        "attention": "flash",
        "checkpointing": "full",
        "trainer": "hf",
        "reentrant": True,
    }
    if autocast and (replicas == 1 or adapters):
        trace["autocast"] = autocast
    if adapters:
        trace["adapters"] = {"lora": _lora(row)}
        if replicas > 1:
            trace["frozen_units"] = True
            if autocast:
                trace["adapters"]["dtype"] = autocast  # that is what FSDP gathers
    if quantized:
        trace["quantize"] = "nf4-double"
    return Question(
        trace=trace,
        group=_group(row, replicas),
        measure=_measure(row),
        micro_batch=needed(row, "micro_batch"),
        accumulation_steps=row.number("grad_accum") or 1,
        sharding=_sharding(autocast) if replicas > 1 else None,
        replicas=replicas,
        keeps_gradients=replicas > 1,
        gpu="a100-80gb",
        era=_ERAS.get(row["commit_or_version"].split(" ")[0]),
        assumptions=("the trainer is transformers' Trainer, as TRL's was",),
    )


def _measure(row: Row) -> str:
    if row["outcome"] == "OOM":
        return "oom"
    return "steady" if "steady" in row["metric"] else "allocated"


def _group(row: Row, replicas: int) -> str:
    kind = {"none": "full", "lora": "LoRA", "qlora": "QLoRA"}[row["peft"]]
    return f"{kind}, {replicas} GPU{'s' if replicas > 1 else ''}"


def _precision(row: Row) -> tuple[str, str | None]:
    """The type of the weights, and the type autocast computes in."""
    said = dict(re.findall(r"(torch_dtype|bf16|fp16)=(\w*)", row["precision"]))
    autocast = next((name for name in ("bf16", "fp16") if said.get(name, "").lower() == "true"), None)
    dtype = _DTYPES.get(said.get("torch_dtype", ""), autocast or "")
    if not dtype:
        raise CannotExpress("the row does not say the type of the weights")
    return dtype, autocast


def _sharding(autocast: str | None) -> FSDP1:
    """FSDP1 with FULL_SHARD around each decoder layer, adapters apart. Reentrant checkpointing around the wrapped layer
    leaves nothing to gather ahead. accelerate brings trained weights to float32 where FSDP computes in mixed precision.
    """
    if autocast is None:
        return FSDP1(backward_prefetch="none")
    return FSDP1(backward_prefetch="none", param_dtype=autocast, reduce_dtype=autocast, sharded_dtype="fp32")


def _lora(row: Row) -> dict[str, Any]:
    found = dict(part.strip().split("=") for part in row["peft_details"].split(";") if "=" in part)
    targets = found["targets"].split()
    own = {"c_attn"} if "santacoder" in row["model"] else {"q_proj", "k_proj", "v_proj", "o_proj"}
    return {
        "rank": int(float(found["r"])),
        "targets": [target for target in targets if target in own],
        "alpha": 16,
        "dropout": 0.1,
    }


def _config(row: Row) -> dict[str, Any]:
    model = row["model"]
    if "santacoder" in model:
        return {
            "model_type": "gpt_bigcode",
            "architectures": ["GPTBigCodeForCausalLM"],
            "n_embd": needed(row, "hidden"),
            "n_inner": needed(row, "ffn"),
            "n_layer": needed(row, "layers"),
            "n_head": needed(row, "heads"),
            "n_positions": 2048,
            "vocab_size": needed(row, "vocab"),
            "multi_query": True,
        }
    if "Mixtral" in model:
        return decoder(row, "mixtral", "MixtralForCausalLM", num_local_experts=8, num_experts_per_tok=2)
    if "PowerLM" in model:
        return decoder(row, "granite", "GraniteForCausalLM", tie_word_embeddings=True)
    if "Mistral" in model:
        return decoder(row, "mistral", "MistralForCausalLM", sliding_window=4096)
    if "Llama-2" in model:
        return decoder(row, "llama", "LlamaForCausalLM")
    raise CannotExpress(f"the architecture of {model} is not published in the row")
