"""Configs of transformers from the numbers that rows publish."""

from __future__ import annotations

from typing import Any

from bench.accuracy.question import CannotExpress
from bench.accuracy.rows import Row


def needed(row: Row, column: str) -> int:
    """A whole number that a question cannot do without. Raises CannotExpress."""
    found = row.number(column)
    if found is None:
        raise CannotExpress(
            f"the row does not say its {column}" if not row[column] else f"{column} is not one number"
        )
    return found


def decoder(row: Row, model_type: str, architecture: str, **more: Any) -> dict[str, Any]:
    """A decoder by its published sizes, in the words that most of transformers' configs share."""
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "hidden_size": needed(row, "hidden"),
        "intermediate_size": needed(row, "ffn"),
        "num_hidden_layers": needed(row, "layers"),
        "num_attention_heads": needed(row, "heads"),
        "num_key_value_heads": needed(row, "kv_heads"),
        "vocab_size": needed(row, "vocab"),
        "tie_word_embeddings": False,
        **more,
    }


def llama(row: Row, **more: Any) -> dict[str, Any]:
    """A Llama. The small ones of the 3.2 generation tie their embedding to the output layer."""
    tied = "3.2" in row["model"]
    return decoder(row, "llama", "LlamaForCausalLM", **{"tie_word_embeddings": tied, **more})
