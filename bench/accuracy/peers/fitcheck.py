"""fitcheck-llm: its estimator over the row's config. The sum of its five parts of tensors is compared, which is what it
holds against what is allocated; the overhead of the process is left out."""

from __future__ import annotations

from bench.accuracy.peers._shape import decoder, lora, one_gpu
from bench.accuracy.question import CannotExpress, Question

NAME = "fitcheck-llm"
PACKAGES = ("fitcheck-llm==0.3.1",)


def peak(question: Question) -> float:
    """Weights, adapters, optimizer, gradients and activations, in bytes."""
    from fitcheck.config_parser import ModelConfig, UnsupportedModelError, _count_params, _parse_fields
    from fitcheck.estimator import TrainingConfig, estimate
    from fitcheck.gpu_db import get_gpu

    one_gpu(question)
    shape, adapters = decoder(question), lora(question)
    fields = _parse_fields(question.trace["config"])
    model = ModelConfig(
        name="row",
        num_params=_count_params(fields),
        hidden_size=fields.hidden_size,
        num_layers=fields.num_layers,
        num_attention_heads=fields.num_attention_heads,
        num_kv_heads=fields.num_kv_heads,
        intermediate_size=fields.intermediate_size,
        vocab_size=fields.vocab_size,
        head_dim=fields.head_dim,
        tie_word_embeddings=shape.tied,
    )
    quantize = str(question.trace.get("quantize") or "none")
    training = TrainingConfig(
        precision=question.trace.get("autocast") or question.trace["weights"],
        quantization=quantize.removesuffix("-double"),
        double_quant=quantize.endswith("-double"),
        optimizer_dtype="bf16" if question.trace["weights"] == "bf16" and not adapters else "fp32",
        batch_size=question.micro_batch,
        seq_len=question.trace["seq_len"],
        lora_rank=adapters and adapters[0],
        lora_targets=adapters[1] if adapters else [],
        grad_checkpoint=question.trace.get("checkpointing", "none") != "none",
        flash_attn=question.trace.get("attention") != "eager",
        grad_accum_steps=question.accumulation_steps,
    )
    try:
        found = estimate(model, training, get_gpu(vram_mib=80 * 1024))
    except (UnsupportedModelError, ValueError) as refusal:
        raise CannotExpress(f"it refuses: {str(refusal)[:60]}") from None
    mib = found.weight_mib + found.lora_mib + found.optimizer_mib + found.gradient_mib + found.activation_mib
    return float(mib * 2**20)
