"""A calculator with everything that a record can have, in one file: every kind of field and output, an optional field,
a preset, a check, a table over a choice and one over a number, curves, a bar, cards, sources, the planner."""

from datetime import date

from batchfit.calculator import Calculator, Cards, Check, Curve, Output, Source, Stack, Table
from batchfit.fields import Bound, Choice, Field
from batchfit.presets import models


def weights_bytes(parameters: int, weight_bytes: int, shard: float) -> int:
    """Bytes of the weights that are kept on each GPU."""
    return round(parameters * weight_bytes * shard)


def bytes_of_adapters(layers: int, q: int, k: int) -> int:
    """Bytes of the adapters of the modules chosen. Its own names are those of a choice and of a field."""
    modules = q + 2 * k
    steps = 1000
    return layers * steps * modules


def total_bytes(weights_bytes: int, adapter_bytes: int) -> int:
    """Both together."""
    return weights_bytes + adapter_bytes


def busy_share(shard: float, warmup: int, steps: int) -> float:
    """A share that falls with the warm-up."""
    return shard * (1 - warmup / steps)


def training_seconds(steps: int, step_time: float, shard: float) -> float:
    """How long all steps take."""
    return steps * step_time / shard


def operations(parameters: int, steps: int) -> float:
    """A very large number."""
    return 6.0 * parameters * steps * 1e6


def rate(steps: int) -> float:
    """A very small number."""
    return 1e-3 / steps


def steps_left(steps: int, budget: float) -> float:
    """How many steps of a budget are left."""
    return budget - steps


def has_budget(budget: float) -> bool:
    """Whether a budget is given."""
    return budget > 0


def warms_up_in_time(warmup: int, steps: int) -> bool:
    """Whether the warm-up ends before the training does."""
    return warmup <= steps


STEPS = ("{n} step", "{n} steps")

CALCULATOR = Calculator(
    slug="everything",
    category="training",
    title="Everything",
    purpose="Show every kind of field.",
    answer="{total_bytes} with {precision}, adapting {modules}, in {training_seconds}.",
    updated=date(2026, 1, 2),
    related=("gradient-accumulation",),
    presets=(models(parameters="parameters", layers="layers"),),
    planner="The planner traces the model itself.",
    checks=(Check("warmup", warms_up_in_time, "must be at most {steps}"),),
    fields=(
        Field(
            "parameters", "N", "Parameters", "Help.", "whole", "parameters", 1000, 10**13, "7B", suffixes=True
        ),
        Field("layers", "n_l", "Layers", "Help.", "whole", "layers", 1, 1000, "32"),
        Field(
            "precision",
            "",
            "Precision",
            "Help.",
            "choice",
            default="bf16",
            choices=(
                Choice("bf16", "bfloat16", {"weight_bytes": 2}),
                Choice("fp32", "Single precision", {"weight_bytes": 4}),
            ),
            binds=(Bound("weight_bytes", "s", "Bytes of a weight", "bytes"),),
        ),
        Field(
            "modules",
            "",
            "Adapted modules",
            "Help.",
            "choices",
            minimum=1,
            default="q,k",
            choices=(Choice("q", "Query", {"q": 1}), Choice("k", "Key", {"k": 1})),
            binds=(Bound("q", "c_q", "Query adapted"), Bound("k", "c_k", "Key adapted")),
        ),
        Field("shard", "σ", "Shard", "Help.", "share", "%", 0.01, 1, "50"),
        Field("steps", "t", "Steps", "Help.", "whole", "steps", 1, 10**6, "1,000", counted=STEPS),
        Field("warmup", "w", "Warm-up", "Help.", "whole", "steps", 0, 10**6, "100", counted=STEPS),
        Field(
            "step_time",
            "τ",
            "Step time",
            "Help.",
            "seconds",
            "s",
            0.001,
            86_400,
            "1.5",
            units=("ms", "s", "min"),
        ),
        Field("budget", "B", "Budget", "Help.", "number", "steps", 0, 10**9, None, suffixes=True, empty=0),
    ),
    outputs=(
        Output(
            "weights_bytes",
            "M_w",
            "Weights",
            "bytes",
            "GB",
            weights_bytes,
            "{parameters} parameters.",
            detail=True,
        ),
        Output(
            "adapter_bytes", "M_a", "Adapters", "bytes", "GB", bytes_of_adapters, "{modules}.", detail=True
        ),
        Output(
            "total_bytes",
            "M",
            "Memory",
            "bytes",
            "GB",
            total_bytes,
            "{weights_bytes} and {adapter_bytes}.",
            sources=(Source("Somebody, 2020, equation 1", "https://example.org/paper"), Source("A book")),
        ),
        Output("busy_share", "β", "Busy", "share", "", busy_share, "{shard} of it."),
        Output(
            "training_seconds",
            "T",
            "Training time",
            "seconds",
            "",
            training_seconds,
            "{steps} of {step_time}.",
        ),
        Output("operations", "C", "Operations", "number", "FLOP", operations, "Very many."),
        Output("rate", "ρ", "Rate", "number", "per step", rate, "Very small.", detail=True),
        Output(
            "steps_left",
            "d",
            "Steps left",
            "number",
            "steps",
            steps_left,
            "Of {budget}.",
            counted=STEPS,
            difference=True,
            when=has_budget,
        ),
    ),
    sections=(
        Stack("What fills it", {"weights": "weights_bytes", "activations": "adapter_bytes"}),
        Table("By precision", "precision", ("total_bytes", "training_seconds")),
        Table("By warm-up", "warmup", ("busy_share", "steps_left"), values=("0", "500", "1000", "2000")),
        Curve(
            "Over parameters",
            "parameters",
            ("total_bytes", "weights_bytes"),
            "1M",
            "1T",
            log_x=True,
            log_y=True,
        ),
        Curve("Over warm-up", "warmup", ("busy_share",), "0", "steps", corners=("warmup",)),
        Curve("Time over steps", "steps", ("training_seconds",), "1", "1000"),
        Cards("Cards it fits on", "total_bytes"),
    ),
)
