"""Chinchilla tokens: the compute-optimal tokens for a model, and how far a run goes beyond them."""

from datetime import date

from batchfit.calculators.compute_optimal_model_size import BESIROGLU, FIT, HOFFMANN, KAPLAN
from batchfit.presets import models

from batchfit.calculator import Calculator, Curve, Output, Table
from batchfit.fields import Field
from batchfit.formulas import scaling_laws, training_flops

TOKENS = ("{n} token", "{n} tokens")

CALCULATOR = Calculator(
    slug="chinchilla-tokens",
    category="scaling",
    title="Chinchilla tokens",
    purpose="See on how many tokens a model is compute-optimal, and how far a training run goes beyond that.",
    answer="Compute-optimal are {optimal_tokens}; {tokens} are {over_training} as many.",
    updated=date(2026, 11, 30),
    related=("compute-optimal-model-size", "dataset-tokens", "training-flops"),
    presets=(models(parameters="parameters"),),
    fields=(
        Field(
            name="parameters",
            symbol="N",
            label="Parameters",
            help="All parameters of the model. For a mixture of experts there is no rule as simple.",
            kind="whole",
            unit="parameters",
            counted=("{n} parameter", "{n} parameters"),
            minimum=10**5,
            maximum=10**15,
            default="8B",
            suffixes=True,
            group="Model",
        ),
        Field(
            name="tokens",
            symbol="D",
            label="Training tokens",
            help="Tokens that training sees in all, every epoch counted.",
            kind="whole",
            unit="tokens",
            counted=TOKENS,
            minimum=10**6,
            maximum=10**18,
            default="15T",
            suffixes=True,
            group="Training",
        ),
        FIT,
    ),
    outputs=(
        Output(
            name="optimal_tokens",
            symbol="D_opt",
            label="Compute-optimal tokens",
            kind="whole",
            unit="tokens",
            counted=TOKENS,
            formula=scaling_laws.tokens_for_parameters,
            reading="On the compute of this many tokens, no other size gets a lower loss than {parameters}.",
            sources=(HOFFMANN, BESIROGLU),
        ),
        Output(
            name="over_training",
            symbol="ω",
            label="Over-training",
            kind="number",
            unit="times",
            counted=("{n} time", "{n} times"),
            formula=scaling_laws.over_training,
            reading="How many times the compute-optimal tokens the run sees; below 1 it stops short of them.",
        ),
        Output(
            name="ratio",
            symbol="ρ",
            label="Tokens per parameter",
            kind="number",
            unit="",
            formula=scaling_laws.tokens_per_parameter,
            reading="The rule of thumb says 20.",
        ),
        Output(
            name="training_flops",
            symbol="C",
            label="Compute of the run",
            kind="number",
            unit="FLOPs",
            counted=("{n} FLOP", "{n} FLOPs"),
            formula=training_flops.parameter_flops,
            reading="6 operations for each parameter and token.",
            detail=True,
            sources=(KAPLAN,),
        ),
        Output(
            name="loss",
            symbol="L",
            label="Loss",
            kind="number",
            unit="nats per token",
            counted=("{n} nat per token", "{n} nats per token"),
            formula=scaling_laws.loss,
            reading="By the replication's loss; only differences mean something for other data.",
            detail=True,
            sources=(BESIROGLU,),
        ),
        Output(
            name="least_flops",
            symbol="C_min",
            label="Least compute for that loss",
            kind="number",
            unit="FLOPs",
            counted=("{n} FLOP", "{n} FLOPs"),
            formula=scaling_laws.flops_for_loss,
            reading="What a compute-optimal model, larger and trained for less long, needs for the same loss.",
            detail=True,
            sources=(BESIROGLU,),
        ),
        Output(
            name="extra_compute",
            symbol="κ",
            label="Compute, of the least",
            kind="number",
            unit="times",
            counted=("{n} time", "{n} times"),
            formula=scaling_laws.extra_compute,
            reading="This run takes {extra_compute} the compute that the optimal model would for the same loss.",
            detail=True,
        ),
    ),
    sections=(
        Table("The fits beside each other", over="fit", columns=("optimal_tokens", "over_training")),
        Curve(
            "Loss over the training tokens",
            over="tokens",
            outputs=("loss",),
            low="1B",
            high="100T",
            log_x=True,
        ),
    ),
)
