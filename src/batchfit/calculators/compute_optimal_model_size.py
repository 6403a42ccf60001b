"""Compute-optimal model size: how a compute budget splits into parameters and tokens, by every published fit."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Curve, Output, Source, Table
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field, When
from batchfit.formulas import scaling_laws
from batchfit.formulas.scaling_laws import Law
from batchfit.presets import cards

HOFFMANN = Source(
    "Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, section 3",
    "https://arxiv.org/abs/2203.15556",
)
BESIROGLU = Source(
    "Besiroglu et al., Chinchilla Scaling: A replication attempt, 2024", "https://arxiv.org/abs/2404.10102"
)
KAPLAN = Source(
    "Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1",
    "https://arxiv.org/abs/2001.08361",
)


def _fit(value: str, label: str, law: Law) -> Choice:
    return Choice(value, label, {"coefficient": law.coefficient, "exponent": law.exponent})


FIT = Field(
    name="fit",
    symbol="F",
    label="Fit",
    help="Which published fit to go by. They differ most far from the sizes that were trained for them.",
    kind="choice",
    choices=(
        _fit("replication", "Replication, 2024", scaling_laws.REPLICATION.law()),
        _fit("approach-1", "Chinchilla, approach 1", scaling_laws.APPROACH_1),
        _fit("approach-2", "Chinchilla, approach 2", scaling_laws.APPROACH_2),
        _fit("approach-3", "Chinchilla, approach 3", scaling_laws.APPROACH_3.law()),
        _fit("approach-3-printed", "Approach 3 as printed", scaling_laws.APPROACH_3_PRINTED.law()),
        _fit("rule-of-thumb", "20 tokens per parameter", scaling_laws.RULE_OF_THUMB),
    ),
    binds=(
        Bound("coefficient", "k", "Coefficient of the fit"),
        Bound("exponent", "a", "Exponent of the fit"),
    ),
    default="replication",
    group="Scaling law",
)

BY_HOURS = When("budget_in", ("gpu-hours",))

CALCULATOR = Calculator(
    slug="compute-optimal-model-size",
    category="scaling",
    title="Compute-optimal model size",
    purpose="See how large a model, and on how many tokens, gets the lowest loss out of a compute budget.",
    answer="{optimal_parameters} on {optimal_tokens}: what this budget trains best.",
    updated=date(2026, 11, 30),
    related=("chinchilla-tokens", "training-flops", "trainable-epochs"),
    presets=(cards(peak_tflops="peak_16bit"),),
    fields=(
        Field(
            name="budget_in",
            symbol="M",
            label="Budget in",
            help="Enter the floating-point operations, or the GPU-hours that you can spend.",
            kind="choice",
            choices=(
                Choice("flops", "FLOPs", {"by_hours": 0}),
                Choice("gpu-hours", "GPU-hours", {"by_hours": 1}),
            ),
            binds=(Bound("by_hours", "m", "Budget in GPU-hours"),),
            default="flops",
            group="Budget",
        ),
        Field(
            name="flops",
            only_when=When("budget_in", ("flops",)),
            symbol="C_0",
            label="Compute budget",
            help="Floating-point operations of the whole run; a multiplication and an addition are two.",
            kind="number",
            unit="FLOPs",
            counted=counted.FLOPS,
            minimum=1e15,
            maximum=1e30,
            default="5.76e23",
            group="Budget",
        ),
        *(
            replace(each, only_when=BY_HOURS)
            for each in (asked.GPU_HOURS, asked.PEAK_TFLOPS, asked.UTILISATION)
        ),
        FIT,
        Field(
            name="parameters",
            symbol="N",
            label="Model size to compare",
            help="Another size on the same budget, to see what it costs in loss.",
            kind="number",
            unit="parameters",
            counted=counted.PARAMETERS,
            minimum=1e5,
            maximum=1e13,
            default="280B",
            suffixes=True,
            group="Model",
        ),
    ),
    outputs=(
        Output(
            name="budget",
            symbol="C",
            label="Budget in operations",
            kind="number",
            unit="FLOPs",
            counted=counted.FLOPS,
            formula=scaling_laws.budget,
            reading="What the fit is asked for.",
            detail=True,
        ),
        Output(
            name="optimal_parameters",
            symbol="N_opt",
            label="Optimal model size",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            formula=scaling_laws.optimal_parameters,
            reading="A larger model would see too few tokens on this budget, a smaller one could not use them.",
            sources=(HOFFMANN, BESIROGLU),
        ),
        Output(
            name="optimal_tokens",
            symbol="D_opt",
            label="Optimal tokens",
            kind="whole",
            unit="tokens",
            counted=counted.TOKENS,
            formula=scaling_laws.optimal_tokens,
            reading="The tokens that spend the budget on {optimal_parameters}.",
            sources=(KAPLAN,),
        ),
        Output(
            name="optimal_ratio",
            symbol="ρ",
            label="Tokens per parameter",
            kind="number",
            unit="",
            formula=scaling_laws.optimal_tokens_per_parameter,
            reading="The rule of thumb says 20.",
            detail=True,
        ),
        Output(
            name="tokens",
            symbol="D",
            label="Tokens for the model compared",
            kind="whole",
            unit="tokens",
            counted=counted.TOKENS,
            formula=scaling_laws.tokens_within,
            reading="The same budget trains {parameters} on {tokens}.",
            detail=True,
        ),
        Output(
            name="loss",
            symbol="L",
            label="Loss of the model compared",
            kind="number",
            unit="nats per token",
            counted=counted.NATS_PER_TOKEN,
            formula=scaling_laws.loss,
            reading="By the replication's loss; only differences mean something for other data.",
            detail=True,
            sources=(BESIROGLU,),
        ),
        Output(
            name="optimal_loss",
            symbol="L_opt",
            label="Loss of the optimal model",
            kind="number",
            unit="nats per token",
            counted=counted.NATS_PER_TOKEN,
            formula=scaling_laws.optimal_loss,
            reading="The same for {optimal_parameters}.",
            detail=True,
            sources=(BESIROGLU,),
        ),
        Output(
            name="excess_loss",
            symbol="Δ",
            label="Loss above the optimum",
            kind="number",
            unit="nats per token",
            counted=counted.NATS_PER_TOKEN,
            formula=scaling_laws.excess_loss,
            reading="What {parameters} cost in loss beside {optimal_parameters}.",
            difference=True,
            detail=True,
        ),
    ),
    sections=(
        Table(
            "The fits beside each other",
            over="fit",
            columns=("optimal_parameters", "optimal_tokens", "optimal_ratio"),
        ),
        Curve(
            "Loss above the optimum over the model size, on the same budget",
            over="parameters",
            outputs=("excess_loss",),
            low="100M",
            high="10T",
            log_x=True,
        ),
    ),
)
