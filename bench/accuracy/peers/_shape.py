"""What tools that know formulas only are told of a row: the sizes of a decoder, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass

from bench.accuracy.question import CannotExpress, Question

_GATED = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "granite", "gemma", "gemma2", "phi3", "stablelm"}


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder's sizes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    tied: bool
    gated: bool


def decoder(question: Question) -> Decoder:
    """The sizes of the row's model. Raises CannotExpress where it is no dense decoder in the usual words."""
    config = question.trace["config"]
    if config.get("num_local_experts") or config.get("num_experts"):
        raise CannotExpress("a mixture of experts")
    try:
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        return Decoder(
            config["num_hidden_layers"],
            hidden,
            heads,
            config.get("num_key_value_heads", heads),
            config["intermediate_size"],
            config["vocab_size"],
            config.get("tie_word_embeddings", False),
            config["model_type"] in _GATED,
        )
    except KeyError as missing:
        raise CannotExpress(f"a model whose config has no {missing.args[0]}") from None


def all_trained(question: Question) -> None:
    """Raises CannotExpress where base weights are frozen."""
    if "adapters" in question.trace:
        raise CannotExpress("adapters over frozen weights")


def one_gpu(question: Question) -> None:
    """Raises CannotExpress where states are spread over GPUs."""
    if question.replicas > 1:
        raise CannotExpress("more than one GPU")


def lora(question: Question) -> tuple[int, list[str]] | None:
    """Rank and adapted layers, None where all weights are trained. Raises CannotExpress for other adapters."""
    if "adapters" not in question.trace:
        return None
    found = question.trace["adapters"].get("lora")
    if not found or not found.get("targets"):
        raise CannotExpress("adapters other than LoRA")
    return found["rank"], list(found["targets"])
