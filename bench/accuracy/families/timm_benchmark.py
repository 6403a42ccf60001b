"""timm's own training benchmark: the largest batch of a model that ran on an RTX 3090, and the next one, which failed.

Facts about the runs: huggingface/pytorch-image-models, `results/benchmark-train-amp-*.csv`, `benchmark.py` and
`bulk_runner.py` (a process for each model), 2022. A batch is judged by a replay of two steps on the card: it fits if
PyTorch's allocator finds room for each tensor, cached memory given back first where there is none. What cuDNN takes,
for its kernels and for their workspaces, is not known for this card and not counted. With the 260 MiB that its kernels
took on an A100 (see `gpumemnet`), runs that ran would be refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from batchfit.gpus import find_gpu
from bench.accuracy.families.configs import needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("timm train benchmark",)

#: Before CUDA 11.7 a process loaded every kernel of PyTorch at its start. On an RTX 3090 that took 1687 MiB once the
#: first tensor was there, for which the allocator has 2 (pytorch/pytorch, issue 55277, comment of April 2022).
_CONTEXT_BYTES = (1687 - 2) * 2**20

#: One file a memory format is traced: the newest. Of its models every so manieth, by a digest of the name.
_TRACED = "-pt112-"
_ONE_OF = 4


def figures(row: Row) -> Iterator[Row]:
    """The batch that ran, and where the next one is known to have failed, both of them."""
    yield row
    if row["fit_quality"] == "bracketed":
        yield Row(f"{row.id}/bracket", row.family, {**row.values, "outcome": "bracket"})


def left_out(row: Row) -> str | None:
    """Why a row of the repository is not traced for the table, None if it is: there are more than can be traced in
    an hour."""
    if _TRACED not in row["url_or_path"]:
        return "another version of the same benchmark: one file a memory format is traced"
    digest = hashlib.sha256(row["model"].encode()).digest()
    return None if digest[0] % _ONE_OF == 0 else f"one of {_ONE_OF} models is traced, by a digest of its name"


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["precision"].startswith("AMP fp16"):
        raise CannotExpress(f"precision: {row['precision']}")
    if row["gpu"] != "RTX 3090":
        raise CannotExpress("the context of that time's software is known for an RTX 3090")
    gpu = find_gpu("rtx-3090")
    assert gpu.reported_bytes is not None
    # As PyTorch told of it at that time: "23.70 GiB total capacity".
    room = gpu.reported_bytes[1] - _CONTEXT_BYTES
    channels_last = "channels_last" in row["notes"]
    is_bracket = row["outcome"] == "bracket"
    return Question(
        trace={
            "timm": row["model"],
            "program": "benchmark",
            "image": needed(row, "image_size"),
            "memory_format": "channels_last" if channels_last else "contiguous_format",
            "mixed": "fp16",
            "capacity_bytes": room,
        },
        group="channels last" if channels_last else "channels first",
        measure="bracket" if is_bracket else "fits",
        micro_batch=needed(row, "micro_batch"),
        next_batch=_failed(row) if is_bracket else None,
        gpu=gpu.id,
        room_bytes=room,
        era="timm-0.6",
        needs_era=True,
        assumptions=(
            "the context is as published for PyTorch 1.8 with CUDA 11.1; cuDNN's own memory is not counted",
        ),
    )


def _failed(row: Row) -> int:
    """The batch in "batch=384 failed (OOM presumed)". Raises CannotExpress."""
    found = re.search(r"batch=(\d+)", row["oom_bound"])
    if found is None:
        raise CannotExpress("the row does not say which batch failed")
    return int(found[1])
