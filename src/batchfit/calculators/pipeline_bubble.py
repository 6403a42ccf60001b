"""Pipeline bubble: how long the stages of a pipeline stand idle, and how many activations they hold meanwhile."""

from datetime import date

from batchfit.calculator import Calculator, Check, Curve, Output, Source, Table
from batchfit.fields import Bound, Choice, Field, When
from batchfit.formulas import pipeline

MICRO_BATCHES = ("{n} micro-batch", "{n} micro-batches")

GPIPE = Source("Huang et al., GPipe, 2019, section 2.3", "https://arxiv.org/abs/1811.06965")
MEGATRON = Source("Narayanan et al., 2021, section 2.2", "https://arxiv.org/abs/2104.04473")
RECOMPUTATION = Source("Korthikanti et al., 2022, section 4.2.3", "https://arxiv.org/abs/2205.05198")
ZERO_BUBBLE = Source(
    "Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2", "https://arxiv.org/abs/2401.10241"
)

CALCULATOR = Calculator(
    slug="pipeline-bubble",
    category="parallelism",
    title="Pipeline bubble",
    purpose=(
        "See how long the stages of a pipeline stand idle, how many micro-batches make that small, "
        "and how many activations each stage holds meanwhile."
    ),
    answer=(
        "Stages stand idle for {bubble_share} of each step. "
        "Stage {stage} holds the activations of {micro_batches_in_flight} at its peak."
    ),
    updated=date(2026, 11, 30),
    related=("gradient-accumulation", "effective-batch-size", "llm-training-memory"),
    fields=(
        Field(
            name="stages",
            symbol="p",
            label="Pipeline stages",
            help=(
                "Groups of layers, each on a GPU of its own (or on a group of GPUs), that a micro-batch goes "
                "through."
            ),
            kind="whole",
            unit="stages",
            counted=("{n} stage", "{n} stages"),
            minimum=1,
            maximum=4096,
            default="8",
            group="Pipeline",
        ),
        Field(
            name="micro_batches",
            symbol="m",
            label="Micro-batches per step",
            help=(
                "Micro-batches that one pipeline works through before the optimizer takes a step: "
                "its gradient accumulation steps."
            ),
            kind="whole",
            unit="micro-batches",
            counted=MICRO_BATCHES,
            minimum=1,
            maximum=2**20,
            default="32",
            group="Pipeline",
        ),
        Field(
            name="schedule",
            symbol="S",
            label="Schedule",
            help="The order in which a stage works through forward and backward passes.",
            kind="choice",
            default="1f1b",
            choices=(
                Choice("gpipe", "GPipe", {"schedule": pipeline.GPIPE}),
                Choice("1f1b", "1F1B", {"schedule": pipeline.ONE_F_ONE_B}),
                Choice("interleaved", "Interleaved 1F1B", {"schedule": pipeline.INTERLEAVED}),
                Choice("zb-h1", "ZB-H1", {"schedule": pipeline.ZB_H1}),
                Choice("zb-h2", "ZB-H2", {"schedule": pipeline.ZB_H2}),
            ),
            binds=(Bound("schedule", "S", "Schedule"),),
            group="Pipeline",
        ),
        Field(
            name="chunks",
            symbol="v",
            label="Chunks per stage",
            help="Pieces of the model on each stage where they are interleaved. Other schedules ignore it.",
            only_when=When("schedule", ("interleaved",)),
            kind="whole",
            unit="chunks",
            counted=("{n} chunk", "{n} chunks"),
            minimum=2,
            maximum=64,
            default="2",
            group="Pipeline",
        ),
        Field(
            name="bubble_limit",
            symbol="x",
            label="Bubble you accept",
            help="The share of a step that stages may stand idle. The micro-batches for it are found for you.",
            kind="share",
            unit="%",
            minimum=0.001,
            maximum=0.9,
            default="5",
            group="Pipeline",
        ),
        Field(
            name="stage",
            symbol="i",
            label="Stage to look at",
            help="Its number, from 1. The first one holds the most activations.",
            kind="whole",
            unit="",
            minimum=1,
            maximum=4096,
            default="1",
            group="Memory",
        ),
        Field(
            name="stage_activation",
            symbol="A_s",
            label="Activations of a micro-batch on one stage",
            help="Memory that one micro-batch’s activations take on one stage, all of its layers together.",
            kind="bytes",
            unit="GB",
            units=("GB", "GiB"),
            minimum=0,
            maximum=10**13,
            default="1",
            step="0.1",
            group="Memory",
        ),
    ),
    checks=(Check("stage", pipeline.is_a_stage, "must be at most {stages}, the number of stages"),),
    outputs=(
        Output(
            name="chunks_in_use",
            symbol="v_S",
            label="Chunks per stage in this schedule",
            kind="whole",
            unit="chunks",
            formula=pipeline.chunks_per_stage,
            reading="Only the interleaved schedule splits a stage into chunks.",
            detail=True,
        ),
        Output(
            name="idle_weight",
            symbol="w",
            label="Idle time per further stage",
            kind="number",
            unit="",
            formula=pipeline.bubble_weight,
            reading="In units of one micro-batch’s forward and backward pass on a stage.",
            detail=True,
            sources=(ZERO_BUBBLE,),
        ),
        Output(
            name="bubble_share",
            symbol="β",
            label="Bubble",
            kind="share",
            unit="",
            formula=pipeline.bubble_share,
            reading="The share of a step that a stage waits, with {stages} and {micro_batches} ({schedule}).",
            sources=(GPIPE, MEGATRON, ZERO_BUBBLE),
        ),
        Output(
            name="step_slowdown",
            symbol="τ",
            label="Step time compared with no waiting",
            kind="number",
            unit="×",
            formula=pipeline.step_slowdown,
            reading="How many times longer a step takes than on stages that never wait.",
            detail=True,
            sources=(MEGATRON,),
        ),
        Output(
            name="multiple",
            symbol="q",
            label="Micro-batches come in multiples of",
            kind="whole",
            unit="",
            formula=pipeline.micro_batch_multiple,
            reading="Interleaved stages take as many micro-batches of a chunk in a row as there are stages.",
            detail=True,
            sources=(MEGATRON,),
        ),
        Output(
            name="micro_batches_needed",
            symbol="m_x",
            label="Micro-batches for the bubble you accept",
            kind="whole",
            unit="micro-batches",
            counted=MICRO_BATCHES,
            formula=pipeline.micro_batches_needed,
            reading="The fewest micro-batches per step that keep the bubble within {bubble_limit}.",
        ),
        Output(
            name="micro_batches_in_flight",
            symbol="f",
            label="Micro-batches in flight",
            kind="number",
            unit="micro-batches",
            counted=MICRO_BATCHES,
            formula=pipeline.in_flight,
            reading="Stage {stage} holds the activations of that many at its peak ({schedule}).",
            sources=(MEGATRON, RECOMPUTATION, ZERO_BUBBLE),
        ),
        Output(
            name="activation_memory_bytes",
            symbol="M",
            label="Activation memory of the stage",
            kind="bytes",
            unit="GB",
            formula=pipeline.activation_memory_bytes,
            reading="{micro_batches_in_flight} × {stage_activation} each.",
        ),
    ),
    sections=(
        Table(
            "Schedules side by side",
            over="schedule",
            columns=(
                "bubble_share",
                "micro_batches_needed",
                "micro_batches_in_flight",
                "activation_memory_bytes",
            ),
        ),
        Curve(
            "Bubble against micro-batches",
            over="micro_batches",
            outputs=("bubble_share",),
            low="1",
            high="256",
            log_x=True,
        ),
        Curve(
            "Micro-batches in flight, stage by stage",
            over="stage",
            outputs=("micro_batches_in_flight",),
            low="1",
            high="stages",
        ),
    ),
)
