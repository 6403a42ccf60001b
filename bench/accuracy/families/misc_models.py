"""Configs of transformers for the models of `misc`, from the sizes that rows publish."""

from __future__ import annotations

from typing import Any

from bench.accuracy.families.configs import llama, needed
from bench.accuracy.question import CannotExpress
from bench.accuracy.rows import Row


def config_and_labels(row: Row) -> tuple[dict[str, Any], str]:
    """The model's config, and what has a label: each token or each sample."""
    model = row["model"]
    hidden, ffn, layers, heads, vocabulary = (
        needed(row, name) for name in ("hidden", "ffn", "layers", "heads", "vocab")
    )
    shared = {
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocabulary,
    }
    if model.startswith("LLaMA"):
        return llama(row), "token"
    if model.startswith("Pythia"):
        config = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "use_cache": False}
        return {**config, **shared}, "token"
    if model.startswith("GPT-2"):
        sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": vocabulary}
        return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes}, "token"
    if model.startswith("T5"):
        # Half of its layers encode. The largest have heads of 128 whatever their width.
        sizes = {"d_model": hidden, "d_ff": ffn, "num_layers": layers // 2, "num_heads": heads,
                 "d_kv": 128 if ffn > 4 * hidden else hidden // heads, "vocab_size": vocabulary,
                 "decoder_start_token_id": 0}  # fmt: skip
        return {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], **sizes}, "token"
    if model.startswith("DistilBERT"):
        sizes = {
            "dim": hidden,
            "hidden_dim": ffn,
            "n_layers": layers,
            "n_heads": heads,
            "vocab_size": vocabulary,
        }
        config = {"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"]}
        return {**config, **sizes}, "sample"
    if model.startswith("BERT"):
        config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
        return {**config, **shared}, "sample"
    if model.startswith("DeBERTa-v2"):
        config = {"model_type": "deberta-v2", "architectures": ["DebertaV2ForSequenceClassification"],
                  "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 256,
                  "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
                  "conv_kernel_size": 3, "conv_act": "gelu"}  # fmt: skip
        return {**config, **shared}, "sample"
    raise CannotExpress("a model that no config is written for")
