"""Attention memory: what eager attention keeps for backward over the sequence length, and what flash attention does."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Curve, Output, Source, Table
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field
from batchfit.formulas import attention_memory as attention
from batchfit.presets import models

SCORES = Source("Korthikanti et al., 2022, section 4.1", "https://arxiv.org/abs/2205.05198")
FLASH = Source("Dao et al., FlashAttention, 2022, section 3.1", "https://arxiv.org/abs/2205.14135")

CALCULATOR = Calculator(
    slug="attention-memory",
    category="training",
    title="Attention memory",
    purpose=(
        "Compare what eager attention and flash attention keep in memory for the backward pass "
        "as the sequence grows."
    ),
    answer="At {sequence_length}, eager attention keeps {eager_bytes}, flash attention {flash_bytes}.",
    updated=date(2026, 11, 30),
    related=("llm-training-memory", "gradient-accumulation", "training-flops"),
    presets=(
        models(layers="layers", heads="heads", key_value_heads="key_value_heads", head_size="head_size"),
    ),
    fields=(
        replace(asked.MICRO_BATCH, default="1"),
        replace(asked.SEQUENCE_LENGTH, maximum=2**20, default="8192"),
        asked.LAYERS,
        Field(
            name="heads",
            symbol="H",
            label="Attention heads",
            help="Query heads of a layer. Each has a matrix of scores of its own.",
            kind="whole",
            unit="heads",
            counted=("{n} head", "{n} heads"),
            minimum=1,
            maximum=1024,
            default="32",
            group="Model",
        ),
        Field(
            name="key_value_heads",
            symbol="K",
            label="Key-value heads",
            help="Heads of keys and values. With grouped queries there are fewer than query heads.",
            kind="whole",
            unit="heads",
            counted=("{n} head", "{n} heads"),
            minimum=1,
            maximum=1024,
            default="8",
            group="Model",
        ),
        Field(
            name="head_size",
            symbol="d",
            label="Head size",
            help="Values of one head for a token.",
            kind="whole",
            unit="",
            minimum=1,
            maximum=4096,
            default="128",
            group="Model",
        ),
        Field(
            name="precision",
            symbol="P",
            label="Precision of activations",
            help=(
                "With autocast, 16 bits. Flash attention computes in 16 bits only; in fp32 a kernel like it is "
                "used."
            ),
            kind="choice",
            default="16-bit",
            choices=(
                Choice("16-bit", "bf16 or fp16", {"value_bytes": 2}),
                Choice("fp32", "fp32", {"value_bytes": 4}),
            ),
            binds=(Bound("value_bytes", "w", "Bytes per value"),),
            group="Training",
        ),
        Field(
            name="softmax",
            symbol="F",
            label="Softmax of eager attention",
            help=(
                "Transformers computes it in fp32 and keeps that result too. "
                "A fused 16-bit softmax keeps one matrix."
            ),
            kind="choice",
            default="fp32",
            choices=(
                Choice("fp32", "In fp32, as transformers does", {"upcasts": 1}),
                Choice("same", "In the precision of activations", {"upcasts": 0}),
            ),
            binds=(Bound("upcasts", "u", "Softmax in fp32"),),
            group="Training",
        ),
        Field(
            name="attention_dropout",
            symbol="D",
            label="Attention dropout",
            help="Dropout on the probabilities keeps a mask of one byte for each of them.",
            kind="choice",
            default="no",
            choices=(
                Choice("no", "None", {"drops": 0}),
                Choice("yes", "With dropout", {"drops": 1}),
            ),
            binds=(Bound("drops", "m", "Dropout on probabilities"),),
            group="Training",
        ),
    ),
    outputs=(
        Output(
            name="score_bytes",
            symbol="x",
            label="Bytes per score",
            kind="bytes",
            unit="B",
            formula=attention.score_bytes,
            reading="What eager attention keeps for each pair of tokens and each head.",
            detail=True,
            sources=(SCORES,),
        ),
        Output(
            name="scores_bytes",
            symbol="M_s",
            label="Scores of one layer",
            kind="bytes",
            unit="GB",
            formula=attention.scores_bytes,
            reading="{heads} with a matrix of {sequence_length} by {sequence_length}, for {micro_batch}.",
            detail=True,
            sources=(SCORES,),
        ),
        Output(
            name="eager_layer_bytes",
            symbol="M_e",
            label="Eager attention, one layer",
            kind="bytes",
            unit="GB",
            formula=attention.eager_layer_bytes,
            reading="The scores, and queries, keys, values and output.",
            detail=True,
        ),
        Output(
            name="flash_layer_bytes",
            symbol="M_f",
            label="Flash attention, one layer",
            kind="bytes",
            unit="GB",
            formula=attention.flash_layer_bytes,
            reading="Queries, keys, values, output, and one number per head and token.",
            detail=True,
            sources=(FLASH,),
        ),
        Output(
            name="eager_bytes",
            symbol="E",
            label="Eager attention",
            kind="bytes",
            unit="GB",
            formula=attention.eager_bytes,
            reading="{layers} keep {eager_layer_bytes} each until backward.",
        ),
        Output(
            name="flash_bytes",
            symbol="A",
            label="Flash attention",
            kind="bytes",
            unit="GB",
            formula=attention.flash_bytes,
            reading="{layers} keep {flash_layer_bytes} each until backward.",
        ),
        Output(
            name="times_less",
            symbol="q",
            label="Eager compared with flash",
            kind="number",
            unit="×",
            formula=attention.times_less,
            reading="How many times the memory of flash attention eager attention takes.",
        ),
        Output(
            name="even_length",
            symbol="s_0",
            label="Length from which scores dominate",
            kind="number",
            unit="tokens",
            counted=counted.TOKENS,
            formula=attention.even_length,
            reading="There the scores take as much as everything else that eager attention keeps.",
            detail=True,
        ),
    ),
    sections=(
        Curve(
            "Memory against sequence length",
            over="sequence_length",
            outputs=("eager_bytes", "flash_bytes"),
            low="512",
            high="131072",
            log_x=True,
            log_y=True,
        ),
        Table(
            "Sequence lengths side by side",
            over="sequence_length",
            columns=("eager_bytes", "flash_bytes", "times_less"),
            values=("1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072"),
        ),
    ),
    planner=(
        "The planner knows which attention kernel your model really gets on your GPU, "
        "and what is alive beside it at the peak."
    ),
)
