"""torchtitan's runs by tensor and context parallelism: Llama divided over ranks, its shards over the others by FSDP2.

Facts about the runs: pytorch/torchtitan, `parallelize_llama.py` (tensor with sequence parallelism, the loss divided by
the vocabulary; parameters are sharded over the replicas and the ranks of context parallelism alike) and what the
logs of its cards print as their memory.
"""

from __future__ import annotations

from dataclasses import replace

from batchfit.gpus import find_gpu
from bench.accuracy.families.configs import needed
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

#: A card that the catalogue does not have, as PyTorch sees it.
_H100_96GB_BYTES = int(95.0396 * 2**30)


def is_parallel(row: Row) -> bool:
    """Whether layers or sequences are divided over ranks."""
    return any((row.number(name) or 1) > 1 for name in ("tp", "pp", "cp", "ep"))


def check(row: Row) -> None:
    """Raises CannotExpress where layers are divided in a way that there are no words for."""
    for name, words in (("pp", "pipeline"), ("ep", "expert")):
        if (row.number(name) or 1) > 1:
            raise CannotExpress(f"{words} parallelism")


def question(row: Row, undivided: Question) -> Question:
    """What a row asks, from what it would with data parallelism alone."""
    tensor, context = row.number("tp") or 1, row.number("cp") or 1
    return replace(
        undivided,
        trace={
            **undivided.trace,
            "seq_len": needed(row, "seq_len") // context,
            "tensor": tensor,
            "context": context,
        },
        group="FSDP with tensor or context parallelism",
        replicas=needed(row, "n_gpus") // tensor,
        room_bytes=_room(row),
        assumptions=(
            *undivided.assumptions,
            "buffers of collectives can be used again at once: until 2025, PyTorch kept them until the card was done",
        ),
    )


def _room(row: Row) -> int | None:
    if not row["gpu"].startswith("H100-96GB"):
        return None
    return _H100_96GB_BYTES - (find_gpu("h100-80gb").context_bytes or 0)
