"""Effective batch size: samples and tokens per optimizer step, and which GPUs multiply them."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Check, Output, Source
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Field
from batchfit.formulas import batching, parallel_batch

MEGATRON = Source("Narayanan et al., 2021, section 3", "https://arxiv.org/abs/2104.04473")


CALCULATOR = Calculator(
    slug="effective-batch-size",
    category="training",
    title="Effective batch size",
    purpose=(
        "See how many samples and tokens contribute to each optimizer step, how many steps an epoch takes, "
        "and which kinds of parallelism multiply the batch."
    ),
    answer="{effective_batch_size} or {tokens_per_step} per optimizer step, {steps_per_epoch} per epoch.",
    updated=date(2026, 11, 30),
    related=(
        "gradient-accumulation",
        "learning-rate-warmup",
        "gradient-noise-scale",
        "data-parallel-scaling",
    ),
    fields=(
        replace(asked.MICRO_BATCH, maximum=2**20),
        asked.ACCUMULATION_STEPS,
        replace(asked.SEQUENCE_LENGTH, maximum=2**24),
        asked.GPUS,
        Field(
            name="tensor_parallel",
            symbol="t",
            label="Tensor parallelism",
            help="GPUs that share each layer’s matrices. 1 where there is none.",
            kind="whole",
            unit="GPUs",
            counted=counted.GPUS,
            minimum=1,
            maximum=1024,
            default="4",
            group="Parallelism",
        ),
        Field(
            name="pipeline_parallel",
            symbol="p",
            label="Pipeline parallelism",
            help="Stages that share the layers. 1 where there is none.",
            kind="whole",
            unit="GPUs",
            counted=counted.GPUS,
            minimum=1,
            maximum=1024,
            default="2",
            group="Parallelism",
        ),
        Field(
            name="context_parallel",
            symbol="c",
            label="Context parallelism",
            help="GPUs that share the tokens of each sequence. 1 where there is none.",
            kind="whole",
            unit="GPUs",
            counted=counted.GPUS,
            minimum=1,
            maximum=1024,
            default="1",
            group="Parallelism",
        ),
        Field(
            name="samples",
            symbol="K",
            label="Samples of the data set",
            help="Sequences that one epoch goes through, after packing where you pack.",
            kind="whole",
            unit="samples",
            counted=counted.SAMPLES,
            suffixes=True,
            minimum=1,
            maximum=10**13,
            default="100K",
            group="Data",
        ),
    ),
    checks=(
        Check(
            "gpus",
            parallel_batch.holds_a_replica,
            "must be at least the GPUs of one copy of the model: "
            "tensor × pipeline × context parallelism is more than {gpus}",
        ),
    ),
    outputs=(
        Output(
            name="gpus_per_replica",
            symbol="m",
            label="GPUs per copy of the model",
            kind="whole",
            unit="GPUs",
            counted=counted.GPUS,
            formula=parallel_batch.gpus_per_replica,
            reading="They work on the same samples, so they do not multiply the batch.",
            detail=True,
            sources=(MEGATRON,),
        ),
        Output(
            name="replicas",
            symbol="g",
            label="Data-parallel replicas",
            kind="whole",
            unit="replicas",
            counted=("{n} replica", "{n} replicas"),
            formula=parallel_batch.data_parallel_replicas,
            reading=(
                "Copies of the model that each work on samples of their own: {gpus} in groups of "
                "{gpus_per_replica}."
            ),
            sources=(MEGATRON,),
        ),
        Output(
            name="idle_gpus",
            symbol="n_0",
            label="GPUs left over",
            kind="whole",
            unit="GPUs",
            counted=counted.GPUS,
            formula=parallel_batch.idle_gpus,
            reading="Too few for another copy of the model.",
            detail=True,
        ),
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
            name="tokens_per_step",
            symbol="E_t",
            label="Tokens per step",
            kind="whole",
            unit="tokens",
            counted=counted.TOKENS,
            formula=parallel_batch.tokens_per_step,
            reading="{effective_batch_size} of {sequence_length} each, padding included.",
        ),
        Output(
            name="steps_per_epoch",
            symbol="k",
            label="Optimizer steps per epoch",
            kind="whole",
            unit="steps",
            counted=counted.STEPS,
            formula=parallel_batch.steps_per_epoch,
            reading="Until all {samples} have been seen once.",
        ),
        Output(
            name="last_step_samples",
            symbol="r",
            label="Samples of the last step",
            kind="whole",
            unit="samples",
            counted=counted.SAMPLES,
            formula=parallel_batch.last_step_samples,
            reading="What is left for the last step of an epoch. Drop it, or weight it by what it holds.",
            detail=True,
        ),
    ),
)
