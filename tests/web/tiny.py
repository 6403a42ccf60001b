"""A second calculator, to show that a new one is one file: the effective batch size alone."""

from datetime import date

from batchfit.calculator import Calculator, Output
from batchfit.fields import Field
from batchfit.formulas import batching

COUNTS = ("{n} sample", "{n} samples")

CALCULATOR = Calculator(
    slug="effective-batch-alone",
    category="arithmetic",
    title="Effective batch size alone",
    purpose="Multiply three numbers.",
    answer="{effective_batch_size} per optimizer step.",
    updated=date(2026, 1, 2),
    fields=tuple(
        Field(
            name=name,
            symbol=symbol,
            label=label,
            help=f"Help on {name}.",
            kind="whole",
            unit="samples",
            counted=COUNTS,
            minimum=1,
            maximum=1000,
            default=default,
        )
        for name, symbol, label, default in (
            ("micro_batch", "b", "Micro-batch size", "2"),
            ("accumulation_steps", "a", "Accumulation steps", "3"),
            ("replicas", "g", "Data-parallel GPUs", "5"),
        )
    ),
    outputs=(
        Output(
            name="effective_batch_size",
            symbol="E",
            label="Effective batch size",
            kind="whole",
            unit="samples",
            counted=COUNTS,
            formula=batching.effective_batch_size,
            reading="{micro_batch} × {accumulation_steps} × {replicas}.",
        ),
    ),
)
