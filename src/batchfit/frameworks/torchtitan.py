"""torchtitan: the TOML that its releases to 0.2 read, and the same settings as flags for later ones."""

from __future__ import annotations

from typing import Any

from batchfit.errors import BadInput
from batchfit.frameworks._reading import Reading, Section, keys_of, load
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    Remark,
    commented,
    counts,
    elsewhere,
    head,
    toml_text,
    torchrun,
)
from batchfit.sentences import Code, Counted, Sentence
from batchfit.settings import TrainingSettings

NAME = "torchtitan"
TITLE = Sentence("torchtitan configuration")
FILENAME = "torchtitan.toml"

#: Only Adam and AdamW are known to it, each in three implementations.
_OPTIMIZERS = {
    "adamw": ("AdamW", "foreach"),
    "adamw-fused": ("AdamW", "fused"),
    "adamw-single": ("AdamW", "for-loop"),
    "adam": ("Adam", "foreach"),
}
_DTYPES = {
    "fp32": ("float32", "float32"),
    "bf16": ("bfloat16", "bfloat16"),
    "bf16-mixed": ("float32", "bfloat16"),
}


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """TOML with the micro-batch and the global batch; torchtitan derives the steps from the two."""
    micro, steps = counts(settings, TITLE, whole_batch=True)
    notes = _notes(settings)
    training: dict[str, Any] = {
        "local_batch_size": Remark(micro, Sentence("the micro-batch")),
        "global_batch_size": Remark(
            settings.batch,
            Sentence(
                "torchtitan derives {steps} from it",
                steps=Counted("{n} accumulation step", "{n} accumulation steps", steps),
            ),
        ),
        "seq_len": settings.seq_len,
    }
    if settings.precision:
        weights, compute = _DTYPES.get(settings.precision, _DTYPES["bf16-mixed"])
        training |= {"dtype": weights, "mixed_precision_param": compute}
    parallelism = _parallelism(settings)
    tables = {
        "optimizer": _optimizer(settings),
        "training": training,
        "parallelism": parallelism,
        "activation_checkpoint": _checkpoint(settings),
    }
    launch = torchrun(settings, f"-m torchtitan.train --job.config_file {FILENAME}")
    release = Sentence("For torchtitan to {release}. {launch}", release=Code("0.2"), launch=launch)
    later = (_flags(training, parallelism), *_token_flags(settings))
    lines = head(TITLE, settings, notes, release, *later, lang=lang)
    return Emitted(commented(lines) + toml_text(tables, lang), FILENAME, tuple(notes))


def _flags(training: dict[str, Any], parallelism: dict[str, Any]) -> Sentence:
    """Release 0.3 has no TOML: a model's configuration is a Python function, and flags override it."""
    said = [
        f"--{table}.{key} {value.value if isinstance(value, Remark) else value}"
        for table, keys in (("training", training), ("parallelism", parallelism))
        for key, value in keys.items()
        if value is not None
    ]
    return Sentence(
        "For {release}, as flags after --module and --config: {flags}; activation checkpointing and the optimizer "
        "stand in the configuration function.",
        release=Code("0.3"),
        flags=Code(" ".join(said)),
    )


def _token_flags(settings: TrainingSettings) -> tuple[Sentence, ...]:
    """The main branch has since come to count tokens, not samples."""
    if settings.seq_len is None or settings.micro_batch is None or settings.batch is None:
        return ()
    said = {
        "num_tokens_per_microbatch_per_dp_rank": settings.micro_batch * settings.seq_len,
        "num_tokens_per_train_step": settings.batch * settings.seq_len,
        "max_context_length": settings.seq_len,
    }
    flags = " ".join(f"--training.{key} {value}" for key, value in said.items())
    counted = Sentence(
        "Its main branch after {release} counts the batch in tokens: {flags}",
        release=Code("0.3"),
        flags=Code(flags),
    )
    return (counted,)


def _optimizer(settings: TrainingSettings) -> dict[str, Any]:
    if settings.optimizer not in _OPTIMIZERS:
        return {}
    name, implementation = _OPTIMIZERS[settings.optimizer]
    return {"name": name, "implementation": implementation}


def _checkpoint(settings: TrainingSettings) -> dict[str, Any]:
    if settings.checkpointing is None:
        return {}
    option = "op" if settings.checkpointing == "selective" else None
    return {"mode": settings.checkpointing, "selective_ac_option": option}


def _parallelism(settings: TrainingSettings) -> dict[str, Any]:
    """Sharding 1 with replication is DDP; both 1 is one GPU."""
    shards = settings.sharding in ("fsdp", "zero3", "zero2", "zero1", None)
    said: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if shards else settings.replicas,
        "data_parallel_shard_degree": settings.replicas if shards else 1,
    }
    if settings.sharding:
        never = settings.sharding in ("zero1", "zero2")
        said["fsdp_reshard_after_forward"] = "never" if never else "always" if shards else None
    return said


def _notes(settings: TrainingSettings) -> list[Note]:
    notes = elsewhere(settings, "nodes")
    adapters = ("lora_rank", "lora_targets", "quantize")
    whole = Sentence("torchtitan trains every weight.")
    notes += [Note(name, whole) for name in adapters if getattr(settings, name)]
    notes.append(Note("model", Sentence("Add [model] with name and flavor, for example llama3 and 8B.")))
    if settings.attention:
        notes.append(Note("attention", Sentence("The model's flavor chooses it; SDPA is the default.")))
    if settings.precision in ("fp16", "fp16-mixed"):
        notes.append(Note("precision", Sentence("There is no fp16: bf16 mixed precision is written.")))
    if settings.optimizer and settings.optimizer not in _OPTIMIZERS:
        missing = Sentence("There is no {name}, only Adam and AdamW.", name=Code(settings.optimizer))
        notes.append(Note("optimizer", missing))
    if settings.sharding == "zero1":
        notes.append(
            Note("sharding", Sentence("FSDP shards gradients with the states: this holds what ZeRO-2 holds."))
        )
    if settings.sharding == "zero3" or (settings.sharding not in (None, "none") and settings.replicas == 1):
        notes.append(
            Note(
                "sharding", Sentence("FSDP shards what ZeRO-3 shards; on one GPU there is nothing to shard.")
            )
        )
    if settings.sharding == "none" and settings.replicas != 1:
        notes.append(Note("sharding", Sentence("More than one replica without sharding is DDP.")))
    return notes


def detect(text: str, filename: str) -> bool:
    """A TOML of torchtitan's tables."""
    return {"training", "parallelism"} <= keys_of(text, filename) or _has_batch(text, filename)


def _has_batch(text: str, filename: str) -> bool:
    if "training" not in keys_of(text, filename):
        return False
    training = load(text, filename)["training"]
    return isinstance(training, dict) and bool({"local_batch_size", "global_batch_size"} & set(training))


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a torchtitan TOML, with its defaults: a local batch of 8, seq_len 2048, selective."""
    file = Section(load(text, filename))
    training, parallel = file.section("training"), file.section("parallelism")
    # Releases before mid-2025 said batch_size.
    micro = training.count("local_batch_size") or training.count("batch_size", 8)
    replicas, sharding = _read_parallelism(parallel)
    total = None if training.value("global_batch_size") == -1 else training.count("global_batch_size")
    steps = None if total else 1
    if total and replicas and micro:
        if total % (micro * replicas):
            raise BadInput(
                "training.global_batch_size",
                "must be a multiple of {micro} × {replicas}; it is {total}",
                micro=micro,
                replicas=replicas,
                total=total,
            )
        steps = total // (micro * replicas)
    reading = Reading(
        micro_batch=micro,
        accumulation_steps=steps,
        replicas=replicas,
        effective_batch=total,
        seq_len=training.count("seq_len", 2048),
        precision=_read_precision(training),
        sharding=sharding,
        checkpointing=_read_checkpoint(file.section("activation_checkpoint")),
        optimizer=_read_optimizer(file.section("optimizer")),
        model="-".join(filter(None, (file.section("model").word(key) for key in ("name", "flavor")))) or None,
    )
    for key in ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree"):
        if (parallel.count(key) or 1) > 1:
            reading.notes.append(f"parallelism.{key} splits each replica over {parallel.count(key)} GPUs.")
    return reading.settings()


def _read_parallelism(parallel: Section) -> tuple[int | None, str | None]:
    """Replicas and sharding. A shard degree of -1, the default, is whatever the launcher leaves."""
    copies = parallel.count("data_parallel_replicate_degree", 1) or 1
    degree = parallel.value("data_parallel_shard_degree")
    shards = None if degree in (None, -1) else parallel.count("data_parallel_shard_degree")
    if shards == 1:
        return copies, "ddp" if copies > 1 else "none"
    resharding = parallel.choice("fsdp_reshard_after_forward", ("default", "always", "never"))
    return (copies * shards if shards else None), "zero2" if resharding == "never" else "fsdp"


def _read_precision(training: Section) -> str:
    names = ("bfloat16", "float32")
    weights = training.choice("dtype", names, "float32")
    compute = training.choice("mixed_precision_param", names, "bfloat16")
    return "bf16" if weights == "bfloat16" else "fp32" if compute == "float32" else "bf16-mixed"


def _read_checkpoint(section: Section) -> str | None:
    mode = section.choice("mode", ("selective", "full", "memory_budget", "none"), "selective")
    return None if mode == "memory_budget" else mode


def _read_optimizer(section: Section) -> str | None:
    name = section.word("name", "AdamW")
    implementation = section.choice("implementation", ("for-loop", "foreach", "fused"), "fused")
    if name == "Adam":
        return "adam"
    return {value: key for key, value in _OPTIMIZERS.items()}.get((name or "", implementation or ""))
