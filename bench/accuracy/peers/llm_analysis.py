"""llm-analysis: `LLMAnalysis.training` with its A100 and 16-bit weights, activations and embeddings. It stops where it
finds that a run does not fit the card, which is counted as its answer having no figure."""

from __future__ import annotations

import logging

from bench.accuracy.peers._shape import all_trained, decoder
from bench.accuracy.question import CannotExpress, Question

NAME = "llm-analysis"
PACKAGES = ("llm-analysis==0.2.2", "fire==0.7.1", "termcolor==3.1.0")


def peak(question: Question) -> float:
    """Weights, optimizer state, gradients and activations of a GPU, in bytes."""
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis, ParallelismConfig
    from llm_analysis.config import ModelConfig, get_dtype_config_by_name, get_gpu_config_by_name

    logging.getLogger("__name__").setLevel(logging.ERROR)  # what its logger is called
    all_trained(question)
    shape = decoder(question)
    config = ModelConfig(
        name="row",
        num_layers=shape.layers,
        n_head=shape.heads,
        num_key_value_heads=shape.kv_heads,
        hidden_dim=shape.hidden,
        vocab_size=shape.vocabulary,
        max_seq_len=question.trace["seq_len"],
        ffn_embed_dim=shape.ffn,
        expansion_ratio=shape.ffn / shape.hidden,
    )
    card = "a100-sxm-40gb" if question.gpu and "40gb" in question.gpu else "a100-sxm-80gb"
    spread = ParallelismConfig(dp_size=question.replicas)
    tool = LLMAnalysis(
        config,
        get_gpu_config_by_name(card),
        get_dtype_config_by_name("w16a16e16"),
        spread,
        flops_efficiency=0.5,
    )
    recomputes = question.trace.get("checkpointing", "none") != "none"
    try:
        found = tool.training(
            batch_size_per_gpu=question.micro_batch,
            gradient_accumulation_steps=question.accumulation_steps,
            seq_len=question.trace["seq_len"],
            total_num_tokens=10**9,
            activation_recomputation=ActivationRecomputation.FULL
            if recomputes
            else ActivationRecomputation.NONE,
            ds_zero=DSZeRO.STAGE_3 if question.replicas > 1 else DSZeRO.NONE,
            flash_attn=question.trace.get("attention") != "eager",
            mlp_gated_linear_units=shape.gated,
        )
    except AssertionError:
        raise CannotExpress("it says the run does not fit the card") from None
    return float(
        found["weight_memory_per_gpu"]
        + found["optimizer_state_memory_per_gpu"]
        + found["gradient_memory_per_gpu"]
        + found["activation_memory_per_gpu"]
    )
