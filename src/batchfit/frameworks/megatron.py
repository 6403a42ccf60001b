"""Megatron-LM: command-line arguments, as a shell script."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from batchfit.frameworks._megatron import (
    ATTENTION,
    FSDP,
    OPTIMIZERS,
    STRATEGIES,
    core_notes,
    derived_steps,
    read_batch,
    recomputation,
)
from batchfit.frameworks._reading import Reading, Section, file_format, keys_of, load
from batchfit.frameworks._writing import Emitted, Note, commented, counts, elsewhere, head, lone_replica
from batchfit.sentences import Sentence
from batchfit.settings import TrainingSettings

NAME = "megatron"
TITLE = Sentence("Megatron-LM arguments")
FILENAME = "megatron.sh"

#: Variables made of variables could grow without end.
_MAX_VALUE = 1000
#: Sizes of the groups in which several GPUs share one replica.
_SPLITS = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """A bash script. Megatron is given the micro-batch and the global batch, and derives the steps."""
    micro, steps = counts(settings, TITLE, whole_batch=True)
    notes = _notes(settings, steps)
    arguments = [
        f"--micro-batch-size {micro}",
        f"--global-batch-size {settings.batch}",
        *([f"--seq-length {settings.seq_len}"] if settings.seq_len else []),
        *_precision(settings.precision),
        *_recompute(settings.checkpointing),
        *_optimizer(settings),
        *_sharding(settings.sharding),
        *([f"--attention-backend {ATTENTION[settings.attention]}"] if settings.attention else []),
    ]
    nodes = settings.nodes or 1
    wanted = Sentence("Put your model, data and schedule in MODEL_ARGS.")
    lines = head(TITLE, settings, notes, wanted, lang=lang)
    script = (
        "#!/usr/bin/env bash\n"
        + commented(lines)
        + f"GPUS_PER_NODE={settings.replicas_per_node}\nNUM_NODES={nodes}\n\nMEGATRON_ARGS=(\n"
        + "".join(f"    {argument}\n" for argument in arguments)
        + ")\n\n"
        + "torchrun --nproc-per-node $GPUS_PER_NODE --nnodes $NUM_NODES \\\n"
        + '    pretrain_gpt.py "${MODEL_ARGS[@]}" "${MEGATRON_ARGS[@]}"\n'
    )
    return Emitted(script, FILENAME, tuple(notes))


def _precision(precision: str | None) -> list[str]:
    return [f"--{precision[:4]}"] if precision and precision != "fp32" else []


def _recompute(checkpointing: str | None) -> list[str]:
    return [f"--{key.replace('_', '-')} {value}" for key, value in recomputation(checkpointing).items()]


def _optimizer_name(settings: TrainingSettings) -> str | None:
    """Adam stands in for what Megatron, or its FSDP, does not have."""
    if settings.sharding in FSDP and settings.optimizer in ("lion", "muon"):
        return "adam"
    return OPTIMIZERS.get(settings.optimizer, "adam") if settings.optimizer else None


def _optimizer(settings: TrainingSettings) -> list[str]:
    name = _optimizer_name(settings)
    if name is None:
        return []
    return [f"--optimizer {name}", *(["--sgd-momentum 0.0"] if settings.optimizer == "sgd" else [])]


def _sharding(sharding: str | None) -> list[str]:
    if sharding == "zero1":
        return ["--use-distributed-optimizer"]
    if sharding in FSDP:
        return [
            "--use-megatron-fsdp",
            f"--data-parallel-sharding-strategy {FSDP[sharding]}",
            "--use-distributed-optimizer",
            "--no-gradient-accumulation-fusion",
            "--ckpt-format fsdp_dtensor",
        ]
    return []


def _notes(settings: TrainingSettings, steps: int) -> list[Note]:
    notes = elsewhere(settings, "quantize", "lora_rank", "lora_targets", "model")
    notes.append(derived_steps(steps))
    notes += core_notes(settings, _optimizer_name(settings))
    notes += lone_replica(settings)
    return notes


def detect(text: str, filename: str) -> bool:
    """Arguments of Megatron's name for the micro-batch: in a script, or under MODEL_ARGS in YAML."""
    if file_format(text, filename) == "yaml" and "MODEL_ARGS" in keys_of(text, filename):
        return True
    return file_format(text, filename) == "shell" and "micro-batch-size" in _flags(text)


def read(text: str, filename: str) -> TrainingSettings:
    """The settings in a script of Megatron arguments, with the variables that the same file sets.

    `replicas` are known where the script sets its number of GPUs; several GPUs may share one replica.
    Raises BadInput where the global batch is no multiple of the micro-batch and the replicas.
    """
    flags = _yaml_flags(text, filename) if file_format(text, filename) == "yaml" else _flags(text)
    file = Section({key: _number(value) for key, value in flags.items()}, "-")
    reading = Reading(
        seq_len=file.count("seq-length"),
        precision="bf16-mixed" if "bf16" in file else "fp16-mixed" if "fp16" in file else "fp32",
        optimizer=_read_optimizer(file),
        checkpointing=_read_recompute(file),
        sharding=_read_sharding(file),
        attention=_read_attention(file),
    )
    _read_batch(file, reading)
    for key in _SPLITS:
        if (file.count(key) or 1) > 1:
            reading.notes.append(f"--{key} splits each replica over {file.count(key)} GPUs.")
    if "fp8-format" in file:
        reading.notes.append("--fp8-format computes in 8 bits, which batchfit does not model.")
    return reading.settings()


def _read_batch(file: Section, reading: Reading) -> None:
    nodes = file.value("nnodes")
    read_batch(
        reading,
        "--global-batch-size",
        file.count("micro-batch-size"),
        file.count("global-batch-size"),
        _replicas(file, reading),
        nodes if isinstance(nodes, int) and nodes > 0 else None,
    )


def _yaml_flags(text: str, filename: str) -> dict[str, str]:
    """The arguments that Megatron's own tests keep as YAML, under MODEL_ARGS; false leaves a flag out."""
    arguments = Section(load(text, filename)).section("MODEL_ARGS")
    said = {key.removeprefix("--"): arguments.scalar(key) for key in arguments.names()}
    return {key: value for key, value in said.items() if value not in ("", "false")}


def _flags(text: str) -> dict[str, str]:
    """Every `--name value` of a script; a flag without a value reads "true"."""
    words = _words(text)
    flags: dict[str, str] = {}
    for word, following in pairwise([*words, "--"]):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            bare = following.startswith("-") and not re.fullmatch(r"-\d.*", following)
            flags[name.replace("_", "-")] = value if equals else "true" if bare else following
    return flags


def _words(text: str) -> list[str]:
    """The script's words, with the variables that it sets itself put in.

    Quotes and brackets are dropped, since arguments stand quoted one by one, quoted by the line, in arrays,
    or in one text over many lines. Of several assignments to a variable the last before its use counts.
    """
    variables: dict[str, str] = {}
    words: list[str] = []
    bare = re.sub(r"(^|\s)#.*|\\\n|[\"']", r"\1", text, flags=re.M)
    for part in re.split(r"[\s();]+", bare):
        assigned = re.fullmatch(r"(\w+)=(.*)", part)
        value = _substituted(assigned[2] if assigned else part, variables)
        if assigned:
            variables[assigned[1]] = value
        elif value:
            words.append(value)
    return words


def _substituted(text: str, variables: dict[str, str]) -> str:
    """$NAME and ${NAME}, and the value after :- where a script takes the variable from outside."""

    def found(match: re.Match[str]) -> str:
        name, default = match[1] or match[2], match[3]
        return variables.get(name, default if default is not None else match[0])

    return re.sub(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})", found, text)[:_MAX_VALUE]


def _number(value: str) -> Any:
    return int(value) if re.fullmatch(r"\d+", value) else None if value.startswith("$") else value


def _replicas(file: Section, reading: Reading) -> int | None:
    each, nodes = file.value("nproc-per-node"), file.value("nnodes")
    if not isinstance(each, int):
        return None
    gpus = each * (nodes if isinstance(nodes, int) else 1)
    shared = 1
    for key in _SPLITS:
        size = file.value(key)
        shared *= size if isinstance(size, int) and size else 1
    if gpus == 0 or gpus % shared:  # public scripts leave the number of nodes to be filled in
        reading.notes.append(f"{gpus} GPUs do not make up replicas of {shared}: set the nodes.")
        return None
    return gpus // shared


def _read_optimizer(file: Section) -> str | None:
    name = file.word("optimizer", "adam")
    if name == "sgd":
        return "sgd" if file.scalar("sgd-momentum") in ("0.0", "0") else "momentum"
    return {value: key for key, value in OPTIMIZERS.items()}.get((name or "").removeprefix("dist_"))


def _read_recompute(file: Section) -> str:
    kind = file.choice("recompute-granularity", ("full", "selective"))
    return kind or ("selective" if "recompute-activations" in file else "none")


def _read_sharding(file: Section) -> str:
    if "use-megatron-fsdp" in file or "use-custom-fsdp" in file:
        default = "optim_grads_params"
        return STRATEGIES[file.choice("data-parallel-sharding-strategy", STRATEGIES, default) or default]
    if "use-torch-fsdp2" in file:
        return "fsdp"
    return "zero1" if "use-distributed-optimizer" in file else "ddp"


def _read_attention(file: Section) -> str | None:
    if "use-flash-attn" in file:
        return "flash"
    backend = file.choice("attention-backend", ("flash", "fused", "unfused", "local", "auto"))
    return {value: key for key, value in ATTENTION.items()}.get(
        "unfused" if backend == "local" else backend or ""
    )
