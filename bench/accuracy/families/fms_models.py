"""The models of fms-acceleration's benchmarks: their sizes from the rows, the rest from their published configs."""

from __future__ import annotations

from typing import Any

from bench.accuracy.families.configs import decoder, needed
from bench.accuracy.question import CannotExpress
from bench.accuracy.rows import Row


def config(row: Row) -> dict[str, Any]:
    """The config of the row's model, in transformers' words. Raises CannotExpress.

    `max_position_embeddings` counts: rotary caches are made for so many positions by transformers before 4.48, in each
    layer.
    """
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
        experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
        return decoder(row, "mixtral", "MixtralForCausalLM", max_position_embeddings=32768, **experts)
    if "PowerLM" in model:
        more = {"max_position_embeddings": 4096, "tie_word_embeddings": True}
        return decoder(row, "granite", "GraniteForCausalLM", **more)
    if "Mistral" in model:
        more = {"max_position_embeddings": 32768, "sliding_window": 4096}
        return decoder(row, "mistral", "MistralForCausalLM", **more)
    if "Llama" in model:
        positions = 8192 if "Llama-3" in model else 4096
        return decoder(row, "llama", "LlamaForCausalLM", max_position_embeddings=positions)
    raise CannotExpress(f"the architecture of {model} is not published in the row")


def quantisation(row: Row) -> str:
    """How the weights of a run in 4 bits are packed. TheBloke's model cards ("Provided files") give groups of 128 for
    Mistral's main branch, and none for those of the larger models."""
    if "GPTQ" not in row["model"]:
        return "nf4-double"
    return "gptq-4bit-per-channel" if "Mixtral" in row["model"] or "70B" in row["model"] else "gptq-4bit"
