"""Megatron Core: its words for optimizers, attention and sharding, in Megatron-LM's arguments and NeMo's recipes."""

from __future__ import annotations

from batchfit.errors import BadInput
from batchfit.frameworks._reading import Reading
from batchfit.frameworks._writing import Note
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

#: Megatron's Adam decays weights as AdamW does, in one fused kernel.
OPTIMIZERS = {"adamw-fused": "adam", "sgd": "sgd", "momentum": "sgd", "lion": "lion", "muon": "muon"}
#: Its attention backends; "local" is its own unfused code.
ATTENTION = {"flash": "flash", "sdpa": "fused", "eager": "unfused"}
#: What its FSDP shards.
FSDP = {"zero2": "optim_grads", "zero3": "optim_grads_params", "fsdp": "optim_grads_params"}
#: The same read back.
STRATEGIES = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "fsdp"}


def recomputation(checkpointing: str | None) -> dict[str, str | int]:
    """What turns activation recomputation on, by the names of TransformerConfig; nothing where it is off."""
    if checkpointing == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return {"recompute_granularity": "selective"} if checkpointing == "selective" else {}


def derived_steps(steps: int) -> Note:
    """Megatron is given the micro-batch and the global batch."""
    said = Sentence("Derived: global batch / (micro-batch × data-parallel GPUs) = {steps}.", steps=steps)
    return Note("accumulation_steps", said)


def core_notes(settings: TrainingSettings, optimizer: str | None) -> list[Note]:
    """What Megatron Core does in its own way, whoever gives it its settings; `optimizer` is the one written."""
    notes = []
    if settings.precision in ("bf16", "fp16"):
        notes.append(
            Note("precision", Sentence("Megatron keeps 32-bit main weights and gradients: the mixed kind."))
        )
    if settings.optimizer != "adamw-fused" and optimizer == "adam":
        notes.append(Note("optimizer", Sentence("Adam here is AdamW in one fused kernel.")))
    if settings.sharding in ("zero3", "none"):
        notes.append(
            Note("sharding", Sentence("Megatron's FSDP shards what ZeRO-3 shards; with no flag it is DDP."))
        )
    return notes


def read_batch(
    reading: Reading, key: str, micro: int | None, total: int | None, replicas: int | None, nodes: int | None
) -> None:
    """The batch from micro-batch, global batch and replicas.

    Raises BadInput on `key`, the global batch's, where it is no multiple of the other two.
    """
    reading.fields |= {"micro_batch": micro, "replicas": replicas, "effective_batch": total}
    if replicas and nodes and replicas % nodes == 0:
        reading.fields["nodes"] = nodes
    if not (micro and replicas):
        return
    total = total or micro * replicas  # Megatron's default is one step
    if total % (micro * replicas):
        raise BadInput(
            key,
            "must be a multiple of {micro} × {replicas}; it is {total}",
            micro=micro,
            replicas=replicas,
            total=total,
        )
    reading.fields["accumulation_steps"] = total // (micro * replicas)
