"""Gradient accumulation: the effective batch, and the activation memory it takes on each GPU."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Inverse, Output
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Field
from batchfit.formulas import activation_memory, batching

CALCULATOR = Calculator(
    slug="gradient-accumulation",
    category="training",
    title="Gradient accumulation memory",
    purpose=(
        "See the effective batch size that a micro-batch, accumulation steps and GPUs add up to, "
        "and the activation memory that each GPU needs for it."
    ),
    answer=(
        "{effective_batch_size} per optimizer step; "
        "{activation_memory_bytes} of activations on each GPU, however many steps are accumulated."
    ),
    updated=date(2026, 11, 30),
    related=("llm-training-memory", "lora-parameters"),
    fields=(
        replace(asked.MICRO_BATCH, maximum=2**20),
        asked.ACCUMULATION_STEPS,
        replace(asked.REPLICAS, default="1", group="Batching"),
        Field(
            name="activation_per_sample",
            symbol="A",
            label="Activation per sample",
            help=(
                "Memory that one sample's activations take between forward and backward. "
                "It depends on the model, the sequence length or image size, the precision and on checkpointing."
            ),
            kind="bytes",
            unit="GB",
            units=("GB", "GiB"),
            minimum=0,
            maximum=10**15,
            default="0.5",
            step="0.1",
            group="Memory",
        ),
    ),
    outputs=(
        Output(
            name="effective_batch_size",
            symbol="E",
            label="Effective batch size",
            kind="whole",
            unit="samples",
            counted=counted.SAMPLES,
            formula=batching.effective_batch_size,
            reading="{micro_batch} × {accumulation_steps} × {replicas} contribute to each optimizer step.",
        ),
        Output(
            name="activation_memory_bytes",
            symbol="M",
            label="Activation memory per GPU",
            kind="bytes",
            unit="GB",
            formula=activation_memory.activation_memory_bytes,
            reading="{micro_batch} × {activation_per_sample} each; the number of steps does not change it.",
        ),
    ),
    inverse=Inverse(
        given=Field(
            name="target_batch",
            symbol="T",
            label="Target effective batch size",
            help="Samples that should contribute to each optimizer step. The accumulation steps are found for you.",
            kind="whole",
            unit="samples",
            counted=counted.SAMPLES,
            minimum=1,
            maximum=2**40,
            default=None,
            group="Batching",
        ),
        solved="accumulation_steps",
        reaches="effective_batch_size",
        forward_label="I know the steps",
        inverse_label="I know the effective batch I want",
        nearest=batching.accumulation_steps_nearest,
        below=batching.accumulation_steps_below,
        above=batching.accumulation_steps_above,
        drift=Output(
            name="drift",
            symbol="d",
            label="Drift from the target",
            kind="whole",
            unit="samples",
            counted=counted.SAMPLES,
            difference=True,
            formula=batching.drift,
            reading="{effective_batch_size} instead of {target_batch}: the nearest that whole steps can reach.",
        ),
    ),
)
