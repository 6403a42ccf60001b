"""What the repository of fms-acceleration says of its benchmark runs beside its tables, by table and commit.

Sources, all in foundation-model-stack/fms-acceleration: scripts/benchmarks/refs/requirements*.txt and
refs_orca/requirements*.txt (versions; before July 2024 there are none, and plugins/framework/pyproject.toml asks for
transformers before 4.40), scripts/benchmarks/scenarios*.yaml (types and dropout) at each commit.
"""

from __future__ import annotations

from batchfit.sharding import FSDP1
from bench.accuracy.rows import Row

#: The libraries' versions, by table and commit.
_ERAS = {
    ("a100_80gb", "HEAD"): "transformers-4.48",
    ("a100_80gb", "9239802"): "transformers-4.45",
    ("a100_80gb", "97fc3c1"): "transformers-4.45",
    ("a100_80gb", "4e81c64"): "transformers-4.44",
    ("a100_80gb", "b6c1455"): "transformers-4.43",
    ("a100_80gb", "c3a069c"): "transformers-4.39",
    ("a100_80gb", "00febdc"): "transformers-4.39",
    ("a100_80gb", "8103238"): "transformers-4.39",
    ("a100_80gb", "f1895b7"): "transformers-4.39",
    ("a100_80gb", "8af8fa7"): "transformers-4.39",
    ("a100_80gb_granite", "HEAD"): "transformers-4.45",
    ("a100_80gb_granite", "ff14d4f"): "transformers-4.45",
    ("a100_80gb_liger", "HEAD"): "transformers-4.45",
    ("a100_80gb_pf", "HEAD"): "transformers-4.44",
    ("a100_80gb_pf", "6028250"): "transformers-4.44",
    ("a100_80gb_pf", "4224c66"): "transformers-4.44",
    ("a100_80gb_mp", "HEAD"): "transformers-4.43",
    ("a100_80gb_moe", "5b35eae"): "transformers-4.45",
}

#: Commits at which scenarios had no dropout before adapters, and named float16 where their table does not.
_FIRST = ("8af8fa7", "f1895b7", "8103238", "00febdc")

#: Tables without the column that says in which type of mixed precision all their scenarios computed.
_MIXED = {("a100_80gb_granite", "ff14d4f"): "bf16"}

#: Commits since which the backward of fused adapters multiplies by what dropout left (d767e33, November 2024).
_MASKED = ("9239802", "HEAD")


def commit(row: Row) -> str:
    """The commit whose table the row is from, or HEAD."""
    return row["commit_or_version"].split(" ")[0]


def _table(row: Row) -> tuple[str, str]:
    return row["url_or_path"].rpartition("/")[2].removesuffix(".csv"), commit(row)


def era(row: Row) -> str | None:
    """The libraries' versions of the run's time, where they are known and can be installed beside this PyTorch."""
    return _ERAS.get(_table(row))


def dropout(row: Row) -> float:
    """Dropout before the adapters."""
    return 0.0 if commit(row) in _FIRST else 0.1


def scenario_dtype(row: Row) -> str | None:
    """The type of the weights where the table does not name it."""
    return "fp16" if commit(row) in _FIRST else None


def scenario_autocast(row: Row) -> str | None:
    """The type that was computed in where the table does not name it."""
    return _MIXED.get(_table(row))


def holds_inputs(row: Row) -> bool:
    """Whether 4-bit layers held their inputs: bitsandbytes was older than 0.43.2 until July 2024."""
    return era(row) == "transformers-4.39"


def kernels(row: Row, framework: str) -> tuple[list[str], str | None]:
    """What plugin "foak" replaced in a run, as `bench.accuracy.fused_kernels` names it, and how its adapters over
    quantised layers were fused (sample-configurations and plugins/fused-ops-and-kernels).

    The configurations with Liger's loss over quantised layers misspell the norm's switch, and switches that are not
    named were on until the commit that brought that table.
    """
    if "foak" not in framework:
        return [], None
    if "santacoder" in row["model"]:
        return ["loss"], None
    replaced = ["norm", "rope", "linear-loss" if framework.endswith("-liger") else "loss"]
    if row["peft"] != "qlora":
        return replaced, None
    return replaced, "masked" if commit(row) in _MASKED else "plain"


def adapters_dtype(row: Row, autocast: str | None, *, apart: bool) -> str | None:
    """The type of a sharded run's adapters: that which FSDP gathers. Those left out of FSDP are as PEFT made them: in
    the type that the packed weights are stored in, and since PEFT 0.12 in float32."""
    return None if apart and era(row) != "transformers-4.39" else autocast


def sharding(row: Row, autocast: str | None, *, apart: bool) -> FSDP1:
    """FSDP1 with FULL_SHARD around each decoder layer, adapters apart. Reentrant checkpointing around the wrapped layer
    leaves nothing to gather ahead.

    accelerate brings trained weights to float32 where FSDP computes in mixed precision, but not before 0.30
    (accelerate/accelerator.py, `prepare_model`): the first commits asked for a version before 0.29. Fused adapters are
    left out of FSDP (`lora_adapters_switch_ddp_from_fsdp`, `apart`). They are brought to the GPU after the trainer is
    made and before it trains, where its memory metrics do not look.
    """
    if autocast is None:
        return FSDP1(backward_prefetch="none")
    if apart:
        return FSDP1(backward_prefetch="none", param_dtype=autocast, trained_whole=True)
    shards = None if commit(row) in _FIRST else "fp32"
    return FSDP1(backward_prefetch="none", param_dtype=autocast, reduce_dtype=autocast, sharded_dtype=shards)
