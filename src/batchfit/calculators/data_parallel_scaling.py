"""Data-parallel scaling: what exchanging gradients costs, and the accumulation steps that make it small."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Curve, Output, Source, Table
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field
from batchfit.formulas import data_parallel

ALL_REDUCE = Source(
    "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009",
    "https://doi.org/10.1016/j.jpdc.2008.09.002",
)
OVERLAP = Source(
    "Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020, section 3.2",
    "https://arxiv.org/abs/2006.15704",
)

RATE = ("{n} GB/s", "{n} GB/s")


def _link(value: str, label: str, gigabytes: float) -> Choice:
    return Choice(value, label, {"nominal_bandwidth": gigabytes})


#: GB/s each way for one GPU: NVLink from NVIDIA's data sheets, half of both directions together; PCI Express from its
#: transfer rate and line code, 16 lanes; a network's line rate, one adapter for each GPU.
LINKS = (
    _link("nvlink-5", "NVLink 5 (B200)", 900),
    _link("nvlink-4", "NVLink 4 (H100)", 450),
    _link("nvlink-3", "NVLink 3 (A100)", 300),
    _link("pcie-5", "PCI Express 5.0 x16", 32 * 16 / 8 * 128 / 130),
    _link("pcie-4", "PCI Express 4.0 x16", 16 * 16 / 8 * 128 / 130),
    _link("pcie-3", "PCI Express 3.0 x16", 8 * 16 / 8 * 128 / 130),
    _link("network-400", "Network, 400 Gb/s", 50),
    _link("network-200", "Network, 200 Gb/s", 25),
    _link("network-100", "Network, 100 Gb/s", 12.5),
    _link("network-25", "Network, 25 Gb/s", 3.125),
    _link("network-10", "Network, 10 Gb/s", 1.25),
)

CALCULATOR = Calculator(
    slug="data-parallel-scaling",
    category="parallelism",
    title="Data-parallel scaling",
    purpose=(
        "See how much faster more GPUs train, what the exchange of gradients costs, "
        "and how many accumulation steps make it small."
    ),
    answer="{speed_up} the samples per second of one GPU; {efficiency} of each step is computing.",
    updated=date(2026, 11, 30),
    related=("gradient-accumulation", "gradient-noise-scale", "pipeline-bubble"),
    fields=(
        asked.REPLICAS,
        Field(
            name="micro_batch_seconds",
            symbol="t",
            label="Time of one micro-batch",
            help="Forward and backward of one micro-batch on one GPU, without any exchange.",
            kind="seconds",
            unit="ms",
            units=("ms", "s"),
            minimum=0.0001,
            maximum=86_400,
            default="500",
            step="50",
            group="Training",
        ),
        replace(asked.ACCUMULATION_STEPS, default="1", group="Training"),
        Field(
            name="gradients",
            symbol="G",
            label="Size of the gradients",
            help=(
                "What every GPU has to exchange: the trainable parameters times their bytes, "
                "2 bytes each in bf16 and 4 bytes in fp32."
            ),
            kind="bytes",
            unit="GB",
            units=("GB", "GiB"),
            minimum=1,
            maximum=10**14,
            default="14",
            group="Training",
        ),
        Field(
            name="interconnect",
            replaced_by="measured_bandwidth",
            symbol="I",
            label="Interconnect",
            help="The slowest link between two replicas: inside one node NVLink or PCI Express, else the network.",
            kind="choice",
            choices=LINKS,
            binds=(Bound("nominal_bandwidth", "B_nom", "Nominal bandwidth", "GB/s"),),
            default="network-400",
            group="Hardware",
        ),
        Field(
            name="bandwidth_share",
            replaced_by="measured_bandwidth",
            symbol="β",
            label="Share of the bandwidth reached",
            help="What a long all-reduce gets of the nominal bandwidth.",
            kind="share",
            unit="%",
            minimum=0.01,
            maximum=1,
            default="80",
            step="5",
            group="Hardware",
        ),
        Field(
            name="measured_bandwidth",
            symbol="B_bus",
            label="Measured bandwidth",
            help="If you have measured it: the bus bandwidth that nccl-tests prints. It replaces the two fields above.",
            kind="number",
            unit="GB/s",
            counted=RATE,
            minimum=0.001,
            maximum=100_000,
            empty=0,
            group="Hardware",
        ),
        Field(
            name="overlap",
            symbol="o",
            label="Overlap with computing",
            help=(
                "How much of one micro-batch's time the exchange can run beside. Backward is about two thirds of it, "
                "and the first gradients come late; 0 without overlap."
            ),
            kind="share",
            unit="%",
            minimum=0,
            maximum=1,
            default="50",
            step="5",
            group="Hardware",
        ),
        Field(
            name="target_efficiency",
            symbol="η_0",
            label="Wanted efficiency",
            help="The share of each step that should be computing.",
            kind="share",
            unit="%",
            minimum=0.01,
            maximum=0.999,
            default="95",
            group="Training",
        ),
    ),
    outputs=(
        Output(
            name="bandwidth",
            symbol="B",
            label="Bandwidth each way",
            kind="number",
            unit="GB/s",
            counted=RATE,
            formula=data_parallel.effective_bandwidth,
            reading="Each GPU sends {bandwidth} while it receives as much.",
            detail=True,
        ),
        Output(
            name="exchanged_bytes",
            symbol="X",
            label="Sent by each GPU in a step",
            kind="bytes",
            unit="GB",
            formula=data_parallel.exchanged_bytes,
            reading="With more GPUs it nears twice the {gradients} of gradients, and never passes it.",
            detail=True,
            sources=(ALL_REDUCE,),
        ),
        Output(
            name="exchange_seconds",
            symbol="c",
            label="Time of the exchange",
            kind="seconds",
            unit="s",
            formula=data_parallel.exchange_seconds,
            reading="{exchanged_bytes} at {bandwidth}.",
            detail=True,
        ),
        Output(
            name="exposed_seconds",
            symbol="w",
            label="Waiting for the exchange",
            kind="seconds",
            unit="s",
            formula=data_parallel.exposed_seconds,
            reading="What does not run beside the last backward pass is waited for, once a step.",
            detail=True,
            sources=(OVERLAP,),
        ),
        Output(
            name="compute_seconds",
            symbol="t_c",
            label="Computing in a step",
            kind="seconds",
            unit="s",
            formula=data_parallel.compute_seconds,
            reading="{accumulation_steps} of {micro_batch_seconds} each.",
            detail=True,
        ),
        Output(
            name="step_seconds",
            symbol="T",
            label="Time of a step",
            kind="seconds",
            unit="s",
            formula=data_parallel.step_seconds,
            reading="Computing and waiting, without the optimizer's own arithmetic.",
            detail=True,
        ),
        Output(
            name="efficiency",
            symbol="η",
            label="Efficiency",
            kind="share",
            unit="",
            formula=data_parallel.efficiency,
            reading="The share of each step in which the GPUs compute; the rest they wait for gradients.",
        ),
        Output(
            name="speed_up",
            symbol="S",
            label="Speed-up",
            kind="number",
            unit="times",
            counted=counted.TIMES,
            formula=data_parallel.speed_up,
            reading="Samples per second compared with one GPU, each keeping its micro-batch and its steps.",
        ),
        Output(
            name="accumulation_steps_needed",
            symbol="a_0",
            label="Accumulation steps for that efficiency",
            kind="whole",
            unit="steps",
            counted=counted.STEPS,
            formula=data_parallel.accumulation_steps_needed,
            reading="With {accumulation_steps_needed}, {target_efficiency} of each step or more is computing.",
        ),
        Output(
            name="break_even_seconds",
            symbol="t_0",
            label="Micro-batch time at which the exchange takes over",
            kind="seconds",
            unit="s",
            formula=data_parallel.break_even_seconds,
            reading="Below {break_even_seconds} for a micro-batch, exchanging takes longer than computing.",
            detail=True,
        ),
    ),
    sections=(
        Curve(
            "Efficiency over the accumulation steps",
            over="accumulation_steps",
            outputs=("efficiency",),
            low="1",
            high="64",
            log_x=True,
        ),
        Curve(
            "Efficiency over the GPUs",
            over="replicas",
            outputs=("efficiency",),
            low="1",
            high="1024",
            log_x=True,
        ),
        Table(
            "The same step over other links",
            over="interconnect",
            columns=("exchange_seconds", "efficiency", "accumulation_steps_needed"),
        ),
    ),
)
