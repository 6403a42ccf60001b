"""Floating-point operations of training a decoder, and the GPU time they take.

A multiplication and an addition count as two. Sources: Kaplan et al. 2020, arXiv:2001.08361, section 2.1 (6·N for each
token: 2·N forward, 4·N backward); Chowdhery et al. 2022 ("PaLM"), arXiv:2204.02311, appendix B (attention, and
utilisation with and without recomputation); Narayanan et al. 2021, arXiv:2104.04473, section 5.1 (recomputation).
"""

from __future__ import annotations

FLOPS_PER_PARAMETER_AND_TOKEN = 6
SECONDS_PER_DAY = 86_400
TERA = 10**12


def parameter_flops(parameters: float, tokens: float) -> float:
    """Operations of all training in products with the weights, forward and backward: 6·N·D."""
    return FLOPS_PER_PARAMETER_AND_TOKEN * float(parameters) * tokens


def attention_flops(
    layers: int, attention_dim: int, sequence_length: int, attention_factor: int, tokens: float
) -> float:
    """Operations of all training in products of queries with keys and of scores with values: 12·L·H·Q·T·D.

    `attention_dim` is heads times head size, H·Q. `attention_factor` is 12 where every token is taken to attend to all
    T of its sequence, as PaLM counts, and 6 where only to those before it, half of them on average.
    """
    return float(attention_factor) * layers * attention_dim * sequence_length * tokens


def model_flops(parameter_flops: float, attention_flops: float) -> float:
    """Operations that the model needs, however it is run."""
    return parameter_flops + attention_flops


def attention_share(attention_flops: float, model_flops: float) -> float:
    """Attention's part of the operations, from 0 to 1."""
    return attention_flops / model_flops


def hardware_flops(
    parameter_flops: float, attention_flops: float, recomputes_weights: int, recomputes_attention: int
) -> float:
    """Operations that GPUs execute: what is recomputed runs forward, a third of it, once more.

    Full checkpointing makes 6·N·D to 8·N·D; selective checkpointing repeats attention alone.
    """
    again = (recomputes_weights * parameter_flops + recomputes_attention * attention_flops) / 3
    return parameter_flops + attention_flops + again


def gpu_days(hardware_flops: float, peak_tflops: float, utilisation: float) -> float:
    """Days on one GPU that executes `utilisation` (above 0, at most 1) of its peak, in TFLOP/s."""
    return hardware_flops / (peak_tflops * TERA * utilisation) / SECONDS_PER_DAY


def training_seconds(gpu_days: float, gpus: int) -> float:
    """Seconds on several GPUs that each work at that utilisation."""
    return gpu_days * SECONDS_PER_DAY / gpus


def model_utilisation(model_flops: float, hardware_flops: float, utilisation: float) -> float:
    """The share of the peak that goes into what the model needs, recomputation left out (MFU)."""
    return utilisation * (model_flops / hardware_flops)


def tokens_per_second(tokens: float, gpu_days: float) -> float:
    """Tokens that one GPU gets through in a second."""
    return tokens / (gpu_days * SECONDS_PER_DAY)
