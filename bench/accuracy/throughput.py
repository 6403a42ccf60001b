"""How far the planner's step times are from published throughput: absolutely, and between settings of one model.

    python bench/accuracy/throughput.py            prints the table
    python bench/accuracy/throughput.py --write    also writes the figure that the planner uses, in src/batchfit/catalog

`throughput.csv` beside this file holds tokens per second and GPU as MosaicML's llm-foundry tables (A100 40 and 80 GB,
125M to 30B parameters, 8 to 256 GPUs, January to October 2023) and the fms-acceleration benchmarks (A100 80 GB, 2024)
publish them, with the settings; of rows that differ in the accumulation steps alone, the fewest and the most are kept.

These models cannot be run here, so FLOPs and bytes follow from the architecture, operation by operation. The planner
itself reads them from a trace.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from batchfit.gpus import find_gpu
from batchfit.planning.rates import rates
from batchfit.planning.throughput import ERROR_FILE, StepClock
from batchfit.profile import Affinity, Compute, MemoryProfile, Model, Provenance, States, Unit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: FlashAttention (1), which the 2023 tables use through Triton, reaches 25 to 40 % of the peak (abstract of
#: FlashAttention-2, Dao, 2023); the middle of it.
FLASH1_SHARE = 0.325

#: Tensors as large as the parameters that PyTorch's foreach AdamW reads or writes: decay 2, first moment 3, second
#: moment 2 and 3, root 2, bias correction 2, epsilon 2, update 4 (torch/optim/adamw.py, operation by operation).
ADAMW_PASSES = 20


@dataclass(frozen=True)
class Row:
    """One published run."""

    group: str
    gpu: str
    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq_len: int
    precision: str
    trained: str
    attention: str
    checkpointing: str
    sharding: str
    gpus: int
    micro_batch: int
    accumulation_steps: int
    tokens_per_second: float

    @property
    def setting(self) -> tuple[object, ...]:
        """What the planner chooses, but for the accumulation steps."""
        return self.gpus, self.micro_batch, self.checkpointing, self.sharding


def rows() -> list[Row]:
    """The published runs."""
    kinds: dict[str, Any] = {"int": int, "float": float, "str": str}
    with (HERE / "throughput.csv").open(newline="") as file:
        return [
            Row(**{f.name: kinds[str(f.type)](line[f.name]) for f in fields(Row)})
            for line in csv.DictReader(file)
        ]


def seconds_per_step(row: Row) -> float:
    """What the planner's model says about a row."""
    card = rates(find_gpu(row.gpu), row.precision)
    assert card is not None
    if row.attention == "flash1":
        card = replace(card, attention=card.matmul / 0.869 * FLASH1_SHARE)
    clock = StepClock(profile(row), card, row.sharding, row.gpus, None)
    return clock.explain(row.micro_batch, row.accumulation_steps).seconds


# ---- FLOPs and bytes of a decoder, from its architecture ----------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Elements and operations of one decoder block, per token: what its forward pass does.

    `products` are (inputs, outputs) of its matrix products; `moved` bytes that all other kernels read and write;
    `kernels` how many kernels run.
    """

    products: tuple[tuple[int, int], ...]
    moved: float
    kernels: int


def block(row: Row) -> Block:
    """One block in 16 bits. Element-wise kernels are counted by what each reads and writes per element."""
    d, kv, ffn = row.hidden, row.hidden // row.heads * row.kv_heads, row.ffn
    attention = 2 * (2 * d + 2 * kv)
    if row.architecture == "llama":
        # RMSNorm as transformers writes it: to fp32, square, mean, scale, to 16 bits, weight: 36 bytes an element.
        # Rotation: negate, join, two products, a sum: 18 bytes. SiLU and gating: 10 bytes. Residuals: 6 bytes.
        moved = 2 * 36 * d + 18 * (d + kv) + 10 * ffn + 2 * 6 * d + attention
        return Block(((d, d), (d, kv), (d, kv), (d, d), (d, ffn), (d, ffn), (ffn, d)), moved, 45)
    # LayerNorm in one kernel: 4 bytes an element; GELU: 4 (tanh written out: 8 kernels, 34 bytes); residuals: 6.
    gelu = 34 if row.architecture == "gpt2" else 4
    moved = 2 * 4 * d + gelu * ffn + 2 * 6 * d + attention
    return Block(((d, d + 2 * kv), (d, d), (d, ffn), (ffn, d)), moved, 14 + (8 if gelu > 4 else 0))


def compute(row: Row) -> Compute:
    """Forward, recomputation where checkpointed, and backward of one micro-batch; the optimizer step."""
    one, s = block(row), row.seq_len
    layer_weights = sum(n * m for n, m in one.products)
    touched = sum(n + m for n, m in one.products)
    head = row.hidden * row.vocab
    full = row.trained == "all"
    # Backward of a product is two products, or one where its weight is frozen; recomputation is one more forward.
    passes = (3 if full else 2) + (row.checkpointing == "full")
    head_passes = 3 if full else 2
    # Fused causal attention does half of 4 s d FLOPs per token forward, 2.5 times that backward.
    attention_once = 2 * s * row.hidden * row.layers
    attention = attention_once * (3.5 + (row.checkpointing == "full"))
    products = 2 * (layer_weights * row.layers * passes + head * head_passes)
    forward = 2 * (layer_weights * row.layers + head) + attention_once
    parameters = layer_weights * row.layers + head
    trained = parameters if full else adapter_parameters(row)
    state_bytes = 4 if row.precision.endswith("mixed") or not full else 2
    # Logits: to fp32, log-softmax, its backward, to 16 bits again: 28 bytes an element.
    rest = one.moved * row.layers * (3 + (row.checkpointing == "full")) + 28 * row.vocab
    return Compute(
        forward_flops=(float(forward * s),),
        step_flops=(float((products + attention) * s),),
        attention_flops=(float(attention * s),),
        matmul_bytes=(
            (float(2 * (layer_weights * row.layers * passes + head * head_passes)),),
            (float(2 * (touched * row.layers * passes + (row.hidden + row.vocab) * head_passes) * s),),
        ),
        other_bytes=((0.0,), (float(rest * s),)),
        optimizer_bytes=ADAMW_PASSES * state_bytes * trained,
        kernels_per_micro_batch=one.kernels * row.layers * (3 + (row.checkpointing == "full")),
        kernels_per_optimizer_step=ADAMW_PASSES * row.layers,
        gradient_elements=trained,
    )


def adapter_parameters(row: Row) -> int:
    """LoRA of rank 16 on the four products of attention, as these benchmarks set it."""
    kv = row.hidden // row.heads * row.kv_heads
    return 16 * row.layers * (4 * row.hidden + 2 * row.hidden + 2 * kv)


def profile(row: Row) -> MemoryProfile:
    """A profile that holds what the clock reads: compute, states and units. It says nothing about memory."""
    made = compute(row)
    parameters = int(made.gradient_elements)
    total = sum(n * m for n, m in block(row).products) * row.layers + row.hidden * row.vocab
    width = 4 if row.precision.endswith("mixed") else 2
    return MemoryProfile(
        model=Model("published", total, parameters, (Unit("block", row.layers, 0, 0, 0, 0),)),
        settings={"precision": row.precision},
        states=States(total * width, parameters * (width if row.trained == "all" else 4), 0, 0),
        phases={},
        reserved=(),
        compute=made,
        ledger=(),
        seq_len=None,
        affinity=Affinity((), None, None, True),
        assumptions=(),
        provenance=Provenance("measured", {}, 0.0, ""),
    )


# ---- Errors --------------------------------------------------------------------------------------------------


def tokens_per_second(row: Row) -> float:
    """Per GPU, as the model says."""
    return row.micro_batch * row.accumulation_steps * row.seq_len / seconds_per_step(row)


def absolute_errors(published: list[Row]) -> list[float]:
    """Predicted over published tokens per second, less 1."""
    return [tokens_per_second(row) / row.tokens_per_second - 1 for row in published]


def relative_errors(published: list[Row]) -> list[float]:
    """For two settings of one model in one table: predicted over published ratio of their speeds, less 1.

    Settings that differ in the accumulation steps alone are no pair: their ratio is close to 1 whatever the model.
    """
    return [
        (tokens_per_second(a) / tokens_per_second(b)) / (a.tokens_per_second / b.tokens_per_second) - 1
        for a, b in pairs(published)
    ]


def pairs(published: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Runs of one group with different settings; of each setting the run with the most accumulation steps."""
    groups: dict[str, dict[tuple[object, ...], Row]] = defaultdict(dict)
    for row in published:
        known = groups[row.group].get(row.setting)
        if known is None or row.accumulation_steps > known.accumulation_steps:
            groups[row.group][row.setting] = row
    for group in groups.values():
        yield from combinations(group.values(), 2)


def summary(errors: list[float]) -> dict[str, float | int]:
    """Median and 90th percentile of the error's size, its signed median, and how many there are."""
    sizes = [abs(error) for error in errors]
    return {
        "count": len(errors),
        "median": round(median(sizes), 4),
        "p90": round(quantiles(sizes, n=10)[-1], 4),
        "signed_median": round(median(errors), 4),
    }


def measured() -> dict[str, Any]:
    """What `catalog/throughput_error.json` holds."""
    published = rows()
    return {
        "made_by": "bench/accuracy/throughput.py --write",
        "relative": summary(relative_errors(published)),
        "absolute": summary(absolute_errors(published)),
    }


def main() -> int:
    """Prints errors by source; `--write` writes the figure that the planner uses."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--write", action="store_true")
    options.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N worst runs")
    arguments = options.parse_args()
    published = rows()
    slices = {"all": published}
    for name in (
        "llm-foundry 08cd",
        "llm-foundry 88a8",
        "llm-foundry 9fa3",
        "llm-foundry 4b48",
        "fms-acceleration",
    ):
        slices[name] = [row for row in published if row.group.startswith(name)]
    print(f"{'tokens per second':28} {'runs':>5} {'median':>8} {'p90':>8} {'signed':>8}")
    for name, part in slices.items():
        show(name, absolute_errors(part))
    print(f"\n{'between two settings':28} {'pairs':>5} {'median':>8} {'p90':>8} {'signed':>8}")
    for name, part in slices.items():
        show(name, relative_errors(part))
    ranked = sorted(published, key=lambda row: -abs(tokens_per_second(row) / row.tokens_per_second - 1))
    for row in ranked[: arguments.worst]:
        print(f"{tokens_per_second(row):9.0f} for {row.tokens_per_second:9.0f}  {row.group}, {row.setting}")
    if arguments.write:
        target = ROOT / "src" / "batchfit" / ERROR_FILE
        target.write_text(json.dumps(measured(), indent=1) + "\n")
    return 0


def show(name: str, errors: list[float]) -> None:
    """One line of a table."""
    if len(errors) < 2:
        return
    s = summary(errors)
    print(f"{name:28} {s['count']:5} {s['median']:8.1%} {s['p90']:8.1%} {s['signed_median']:+8.1%}")


if __name__ == "__main__":
    sys.exit(main())
