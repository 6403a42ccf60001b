"""Gradient noise scale: the critical batch size, and what another effective batch saves or wastes."""

from datetime import date

from batchfit.calculator import Calculator, Check, Curve, Output, Source
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field, When
from batchfit.formulas import noise_scale

ESTIMATOR = Source(
    "McCandlish et al., An Empirical Model of Large-Batch Training, 2018, appendix A.1",
    "https://arxiv.org/abs/1812.06162",
)
NOISE_SCALE = Source(
    "McCandlish et al., An Empirical Model of Large-Batch Training, 2018, section 2.2",
    "https://arxiv.org/abs/1812.06162",
)
TRADE_OFF = Source(
    "McCandlish et al., An Empirical Model of Large-Batch Training, 2018, section 2.3",
    "https://arxiv.org/abs/1812.06162",
)


BY_NORMS = When("measured_by", ("norms",))
BY_RUNS = When("measured_by", ("runs",))
#: When the fields of a group apply.
_WHEN = {"Gradient norms": BY_NORMS, "Two runs to the same loss": BY_RUNS}


def _batch(name: str, symbol: str, label: str, text: str, default: str, group: str) -> Field:
    return Field(
        name=name,
        symbol=symbol,
        label=label,
        help=text,
        kind="whole",
        unit="samples",
        counted=counted.SAMPLES,
        minimum=1,
        maximum=2**40,
        default=default,
        group=group,
        only_when=_WHEN.get(group),
    )


def _norm(name: str, symbol: str, label: str, text: str, default: str) -> Field:
    return Field(
        name=name,
        symbol=symbol,
        label=label,
        help=text,
        kind="number",
        minimum=1e-30,
        maximum=1e30,
        default=default,
        step="0.01",
        group="Gradient norms",
        only_when=BY_NORMS,
    )


def _steps(name: str, symbol: str, label: str, text: str, default: str) -> Field:
    return Field(
        name=name,
        symbol=symbol,
        label=label,
        help=text,
        kind="whole",
        unit="steps",
        counted=counted.STEPS,
        minimum=1,
        maximum=10**12,
        default=default,
        group="Two runs to the same loss",
        only_when=BY_RUNS,
    )


CALCULATOR = Calculator(
    slug="gradient-noise-scale",
    category="training",
    title="Gradient noise scale",
    purpose="Find the batch size beyond which more samples per step no longer save steps, from two measurements.",
    answer="The critical batch size is {critical_batch}. At {new_batch}, a loss takes {steps_ratio} of the steps.",
    updated=date(2026, 11, 30),
    related=("learning-rate-warmup", "data-parallel-scaling", "gradient-accumulation"),
    fields=(
        Field(
            name="measured_by",
            symbol="M",
            label="What you have measured",
            help="Gradient norms at two batch sizes, or the steps that two runs took to the same loss.",
            kind="choice",
            choices=(
                Choice("norms", "Gradient norms", {"by_runs": 0}),
                Choice("runs", "Two runs to the same loss", {"by_runs": 1}),
            ),
            binds=(Bound("by_runs", "m", "Measured by runs"),),
            default="norms",
            group="Measurement",
        ),
        _batch(
            "small_batch",
            "b",
            "Small batch",
            "Samples behind the small batch's gradient, such as one micro-batch of one GPU.",
            "32",
            "Gradient norms",
        ),
        _norm(
            "small_squared_norm",
            "q_b",
            "Squared norm, small batch",
            "The squared norm of the small batch's gradient, its mean over many steps, before clipping.",
            "0.51",
        ),
        _batch(
            "large_batch",
            "B",
            "Large batch",
            "Samples behind the large batch's gradient, such as the whole effective batch.",
            "1,024",
            "Gradient norms",
        ),
        _norm(
            "large_squared_norm",
            "q_B",
            "Squared norm, large batch",
            "The same for the large batch, over the same steps.",
            "0.025625",
        ),
        _batch(
            "first_batch",
            "B_1",
            "Batch of the first run",
            "The effective batch size of the run with the smaller batch.",
            "256",
            "Two runs to the same loss",
        ),
        _steps(
            "first_steps",
            "S_1",
            "Steps of the first run",
            "Optimizer steps until it reached the loss.",
            "14,500",
        ),
        _batch(
            "second_batch",
            "B_2",
            "Batch of the second run",
            "The effective batch size of the run with the larger batch.",
            "1,024",
            "Two runs to the same loss",
        ),
        _steps(
            "second_steps",
            "S_2",
            "Steps of the second run",
            "Optimizer steps until it reached the same loss, with a learning rate tuned for its batch.",
            "5,125",
        ),
        _batch(
            "batch",
            "E",
            "Effective batch size now",
            "What you train with, or would without a change.",
            "256",
            "Batching",
        ),
        _batch(
            "new_batch",
            "E_2",
            "Effective batch size to compare",
            "What you think of changing to.",
            "1,024",
            "Batching",
        ),
    ),
    outputs=(
        Output(
            name="squared_norm",
            symbol="Γ",
            label="Squared norm of the true gradient",
            kind="number",
            unit="",
            formula=noise_scale.squared_gradient_norm,
            reading="What would be left of the norm if the batch were endless.",
            detail=True,
            when=noise_scale.norms_measured,
            sources=(ESTIMATOR,),
        ),
        Output(
            name="variance",
            symbol="V",
            label="Variance of one sample's gradient",
            kind="number",
            unit="",
            formula=noise_scale.gradient_variance,
            reading="How far single samples scatter around the true gradient, summed over all parameters.",
            detail=True,
            when=noise_scale.norms_measured,
            sources=(ESTIMATOR,),
        ),
        Output(
            name="fewest_samples",
            symbol="X_min",
            label="Fewest samples",
            kind="number",
            unit="samples",
            counted=counted.SAMPLES,
            formula=noise_scale.least_examples,
            reading="What a very small batch would get by with, in very many steps.",
            detail=True,
            when=noise_scale.runs_measured,
            sources=(TRADE_OFF,),
        ),
        Output(
            name="critical_batch",
            symbol="B_crit",
            label="Critical batch size",
            kind="number",
            unit="samples",
            counted=counted.SAMPLES,
            formula=noise_scale.critical_batch,
            reading="At this batch you pay twice the fewest samples and take twice the fewest steps.",
            sources=(NOISE_SCALE, TRADE_OFF),
        ),
        Output(
            name="steps_ratio",
            symbol="ρ_S",
            label="Steps compared with now",
            kind="share",
            unit="",
            formula=noise_scale.steps_ratio,
            reading="From {batch} to {new_batch}, the same loss takes {steps_ratio} of the optimizer steps.",
            sources=(TRADE_OFF,),
        ),
        Output(
            name="samples_ratio",
            symbol="ρ_X",
            label="Samples compared with now",
            kind="share",
            unit="",
            formula=noise_scale.samples_ratio,
            reading="And {samples_ratio} of the samples, so of the computing.",
            sources=(TRADE_OFF,),
        ),
        Output(
            name="progress",
            symbol="π_S",
            label="Progress of one step",
            kind="share",
            unit="",
            formula=noise_scale.progress_per_step,
            reading="One step at {new_batch} gets as far as {progress} of a step without noise.",
            detail=True,
            sources=(NOISE_SCALE,),
        ),
    ),
    checks=(
        Check(
            "large_batch", noise_scale.batches_grow, "must be larger than the small batch of {small_batch}"
        ),
        Check(
            "second_batch",
            noise_scale.runs_grow,
            "must be larger than the first run's batch of {first_batch}",
        ),
        Check(
            "large_squared_norm",
            noise_scale.norms_fall,
            "must be below the small batch's {small_squared_norm}: noise averages out in a larger batch",
        ),
        Check(
            "large_squared_norm",
            noise_scale.gradient_remains,
            "leaves no gradient under the noise: average both squared norms over more steps",
        ),
        Check("second_steps", noise_scale.steps_fall, "must be fewer than the first run's {first_steps}"),
        Check(
            "second_steps",
            noise_scale.samples_rise,
            "would mean fewer samples at the larger batch: check that both runs reached the same loss",
        ),
    ),
    sections=(
        Curve(
            "Steps and samples over the batch",
            over="new_batch",
            outputs=("steps_ratio", "samples_ratio"),
            low="1",
            high="1000000",
            log_x=True,
            log_y=True,
        ),
    ),
)
