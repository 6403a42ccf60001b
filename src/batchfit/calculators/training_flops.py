"""Training FLOPs: the operations that training a language model takes, and the GPU time they make."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Curve, Output, Source, Table
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field
from batchfit.formulas import training_flops as flops
from batchfit.presets import cards, models

KAPLAN = Source("Kaplan et al., 2020, section 2.1", "https://arxiv.org/abs/2001.08361")
PALM = Source("Chowdhery et al., PaLM, 2022, appendix B", "https://arxiv.org/abs/2204.02311")
MEGATRON = Source("Narayanan et al., 2021, section 5.1", "https://arxiv.org/abs/2104.04473")
RECOMPUTATION = Source("Korthikanti et al., 2022, section 5", "https://arxiv.org/abs/2205.05198")

CALCULATOR = Calculator(
    slug="training-flops",
    category="scaling",
    title="Training FLOPs",
    purpose=(
        "Count the floating-point operations that training a language model takes, "
        "with attention and recomputation, and the GPU-days they make."
    ),
    answer="{model_flops}, which {gpus} work through in {training_seconds} ({gpu_days}).",
    updated=date(2026, 11, 30),
    related=("compute-optimal-model-size", "trainable-epochs", "effective-batch-size", "llm-training-memory"),
    presets=(
        models(parameters="parameters", layers="layers", attention_dim="query_dim"),
        cards(peak_tflops="peak_16bit"),
    ),
    fields=(
        Field(
            name="parameters",
            symbol="N",
            label="Parameters",
            help="Parameters that a token goes through. Of a mixture of experts, the active ones alone.",
            kind="number",
            unit="parameters",
            counted=counted.PARAMETERS,
            suffixes=True,
            minimum=1000,
            maximum=10**14,
            default="8B",
            group="Model",
        ),
        Field(
            name="tokens",
            symbol="D",
            label="Training tokens",
            help="Tokens that training sees in all, every epoch counted.",
            kind="number",
            unit="tokens",
            counted=counted.TOKENS,
            suffixes=True,
            minimum=1000,
            maximum=10**16,
            default="1T",
            group="Training",
        ),
        asked.LAYERS,
        Field(
            name="attention_dim",
            symbol="H",
            label="Width of attention",
            help="Query heads times head size. In most models it equals the hidden size.",
            kind="whole",
            unit="",
            minimum=1,
            maximum=2**20,
            default="4096",
            group="Model",
        ),
        replace(asked.SEQUENCE_LENGTH, symbol="T", maximum=2**24, default="8192", group="Training"),
        Field(
            name="attention_count",
            symbol="K",
            label="How attention is counted",
            help=(
                "As if every token attended to the whole sequence, as most reports count, or to the tokens "
                "before it alone."
            ),
            kind="choice",
            default="whole",
            choices=(
                Choice("whole", "Whole sequence (PaLM)", {"attention_factor": 12}),
                Choice("causal", "Earlier tokens alone", {"attention_factor": 6}),
            ),
            binds=(Bound("attention_factor", "c", "Operations per pair of values"),),
            group="Training",
        ),
        Field(
            name="recomputation",
            symbol="R",
            label="Activation checkpointing",
            help="What the backward pass computes a second time. It costs operations, not quality.",
            kind="choice",
            default="none",
            choices=(
                Choice("none", "None", {"recomputes_weights": 0, "recomputes_attention": 0}),
                Choice(
                    "selective", "Selective: attention", {"recomputes_weights": 0, "recomputes_attention": 1}
                ),
                Choice("full", "Full: every layer", {"recomputes_weights": 1, "recomputes_attention": 1}),
            ),
            binds=(
                Bound("recomputes_weights", "ρ_w", "Weights are applied again"),
                Bound("recomputes_attention", "ρ_a", "Attention is computed again"),
            ),
            group="Training",
        ),
        replace(asked.PEAK_TFLOPS, symbol="F", minimum=0.01, maximum=10**6),
        replace(
            asked.UTILISATION,
            minimum=0.001,
            step="1",
        ),
        replace(asked.GPUS, group="Hardware"),
    ),
    outputs=(
        Output(
            name="parameter_flops",
            symbol="C_N",
            label="By the rule of thumb 6·N·D",
            kind="number",
            unit="FLOPs",
            counted=counted.FLOPS,
            formula=flops.parameter_flops,
            reading="6 operations for each parameter and token: 2 forward, 4 backward.",
            sources=(KAPLAN,),
        ),
        Output(
            name="attention_flops",
            symbol="C_a",
            label="Attention on top",
            kind="number",
            unit="FLOPs",
            counted=counted.FLOPS,
            formula=flops.attention_flops,
            reading="Products of queries with keys and of scores with values, which no parameter stands for.",
            detail=True,
            sources=(PALM,),
        ),
        Output(
            name="model_flops",
            symbol="C",
            label="Training FLOPs",
            kind="number",
            unit="FLOPs",
            counted=counted.FLOPS,
            formula=flops.model_flops,
            reading="What the model needs, attention included, however it is run.",
            sources=(PALM,),
        ),
        Output(
            name="attention_share",
            symbol="α",
            label="Attention’s share",
            kind="share",
            unit="",
            formula=flops.attention_share,
            reading="It grows in proportion to the sequence length.",
            detail=True,
        ),
        Output(
            name="hardware_flops",
            symbol="C_h",
            label="FLOPs that GPUs execute",
            kind="number",
            unit="FLOPs",
            counted=counted.FLOPS,
            formula=flops.hardware_flops,
            reading="With what is computed a second time in the backward pass.",
            detail=True,
            sources=(MEGATRON, RECOMPUTATION),
        ),
        Output(
            name="gpu_days",
            symbol="g",
            label="GPU-days",
            kind="number",
            unit="GPU-days",
            counted=("{n} GPU-day", "{n} GPU-days"),
            formula=flops.gpu_days,
            reading="On GPUs of {peak_tflops} that reach {utilisation} of it.",
        ),
        Output(
            name="training_seconds",
            symbol="t",
            label="Training time",
            kind="seconds",
            unit="d",
            formula=flops.training_seconds,
            reading="With {gpus} at that utilisation, and no interruption.",
        ),
        Output(
            name="model_utilisation",
            symbol="u_m",
            label="Utilisation without recomputation (MFU)",
            kind="share",
            unit="",
            formula=flops.model_utilisation,
            reading="The share of the peak that serves the model itself; papers report this one.",
            detail=True,
            sources=(PALM,),
        ),
        Output(
            name="tokens_per_second",
            symbol="v",
            label="Tokens per second on one GPU",
            kind="number",
            unit="tokens",
            counted=counted.TOKENS,
            formula=flops.tokens_per_second,
            reading="The number to compare with what your trainer prints.",
            detail=True,
        ),
    ),
    sections=(
        Table(
            "Recomputation side by side",
            over="recomputation",
            columns=("hardware_flops", "gpu_days", "model_utilisation", "tokens_per_second"),
        ),
        Curve(
            "Attention’s share against sequence length",
            over="sequence_length",
            outputs=("attention_share",),
            low="512",
            high="131072",
            log_x=True,
        ),
    ),
)
