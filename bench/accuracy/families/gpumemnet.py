"""GPUMemNet's measurements of timm's models in training on an A100 40 GB, the whole device's memory.

Facts about the runs: itu-rad/GPUMemNet, Related_works/FakeTensor: "we used TIMM library models ... monitored GPU memory
need of the models while training". The program is not published; timm's own train.py with its defaults is traced, of
the version whose models are all of the table's. With those defaults cuDNN tries its algorithms in each shape's first
step, each in a workspace of its own. Their sizes are documented nowhere and not counted: for some models they are most
of the figure at a batch of 8.

The source estimated the tensors' bytes, too, with what autograd keeps alone. Where the device never held as much, the
run had ended before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from bench.accuracy.families.configs import needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("gpumemnet_timm_train",)

#: The smallest convolutional network of the same source held 1703 MiB on the same card (as Full_CNN.ipynb of its
#: Analysis prints; without convolutions, and so without cuDNN, it was 1443), of which the allocator has a segment of
#: each kind.
CONTEXT_BYTES = (1703 - 2 - 20) * 2**20

#: Of its models every so manieth is traced, by a digest of the name.
_ONE_OF = 32


def figures(row: Row) -> Iterator[Row]:
    """The row in the columns that all families share."""
    shared = {
        "micro_batch": row["batch"],
        "mem_raw": row["max_gpu_mem_MiB"],
        "mem_unit": "MiB",
        "outcome": "measured",
    }
    yield Row(row.id, row.family, {**row.values, **shared})


def left_out(row: Row) -> str | None:
    """Why a row of the repository is not traced for the table, None if it is."""
    digest = hashlib.sha256(row["model"].encode()).digest()
    return None if digest[1] % _ONE_OF == 0 else f"one of {_ONE_OF} models is traced, by a digest of its name"


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if row["censored"].startswith("yes"):
        raise CannotExpress("the card was full, so the figure is the card's")
    if row["gpu"] != "A100-40GB":
        raise CannotExpress(f"on {row['gpu']}")
    if float(row["max_gpu_mem_MiB"]) * 2**20 < float(row["faketensor_total_MB"]) * 1e6:
        raise CannotExpress(
            "the device never held what the source says the tensors take: the run had ended before"
        )
    return Question(
        trace={"timm": row["model"], "program": "train"},
        group="float32, one GPU",
        measure="device",
        micro_batch=needed(row, "micro_batch"),
        beside_bytes=CONTEXT_BYTES,
        gpu="a100-40gb",
        era="timm-1.0",
        needs_era=True,
        assumptions=("the step is that of timm's train.py, in float32", "cuDNN's workspaces are not counted"),
    )
