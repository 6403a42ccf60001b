"""What an emitted file is made of: a head of comments, the batch in one line, settings as YAML or TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from batchfit.errors import BadInput
from batchfit.settings import TrainingSettings


@dataclass(frozen=True)
class Note:
    """Something a framework cannot say, or says otherwise: which field of the settings, and what to do."""

    field: str
    text: str


@dataclass(frozen=True)
class Emitted:
    """A framework's file: its text, the name it usually has, and what the framework could not be told."""

    text: str
    filename: str
    notes: tuple[Note, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Remark:
    """A value with a comment behind it."""

    value: Any
    text: str


def counts(settings: TrainingSettings, framework: str, *, whole_batch: bool = False) -> tuple[int, int]:
    """The micro-batch and the steps, which every file needs; `whole_batch` asks for the replicas too.

    Raises BadInput naming the field that is missing.
    """
    needed = ["micro_batch", "accumulation_steps", *(["replicas"] if whole_batch else [])]
    for name in needed:
        if getattr(settings, name) is None:
            raise BadInput(
                name, "must be given: {framework} cannot be written without it", framework=framework
            )
    assert settings.micro_batch is not None
    assert settings.accumulation_steps is not None
    return settings.micro_batch, settings.accumulation_steps


def arithmetic(settings: TrainingSettings) -> str:
    """The batch in one line: "4 micro-batch × 8 steps × 8 GPUs = 256 samples, 1,048,576 tokens"."""
    micro, steps, replicas = settings.micro_batch, settings.accumulation_steps, settings.replicas
    left = f"{micro} micro-batch × {steps} {'step' if steps == 1 else 'steps'}"
    if replicas is None:
        return f"{left} × the GPUs you launch on"
    total = settings.batch or 0
    line = f"{left} × {replicas} {'GPU' if replicas == 1 else 'GPUs'} = {total}"
    if settings.seq_len:
        line += f" samples = {total * settings.seq_len:,} tokens at {settings.seq_len:,} each"
    return line


def head(title: str, settings: TrainingSettings, notes: Sequence[Note], *more: str) -> list[str]:
    """The lines above the settings, without comment marks."""
    lines = [f"{title}, written by batchfit", arithmetic(settings), *(line for line in more if line)]
    beyond = ["What it cannot say, or says in another way:"] if notes else []
    return lines + beyond + [f"- {note.field}: {note.text}" for note in notes]


#: Where a setting lives when it is not in the framework's file.
ELSEWHERE = {
    "micro_batch": "The script's DataLoader decides it: batch_size={micro_batch}.",
    "replicas": "The launcher starts one process for each.",
    "nodes": "The launcher knows them.",
    "optimizer": "The training script makes it.",
    "checkpointing": "The model turns it on: gradient_checkpointing_enable().",
    "attention": "The script chooses it: from_pretrained(attn_implementation=...).",
    "seq_len": "The data decides it: cut or pack to {seq_len} tokens.",
    "lora_rank": "The script adds the adapters: LoraConfig(r={lora_rank}).",
    "lora_targets": "They stand where the adapters are added: LoraConfig(target_modules=...).",
    "quantize": "The script loads the model quantized.",
    "model": "The training script loads it.",
}


def elsewhere(settings: TrainingSettings, *fields: str) -> list[Note]:
    """Notes on those of `fields` that are set, and live outside the framework's file."""
    said = asdict(settings)
    return [Note(name, ELSEWHERE[name].format(**said)) for name in fields if said[name]]


def torchrun(settings: TrainingSettings, command: str) -> str:
    """The launch line for PyTorch's launcher; plain python on one GPU."""
    replicas, nodes = settings.replicas, settings.nodes or 1
    if replicas == 1:
        return f"Launch: python {command}"
    each = settings.replicas_per_node or "GPUS"
    where = f"--nnodes {nodes} --nproc-per-node {each}" if nodes > 1 else f"--nproc-per-node {each}"
    return f"Launch: torchrun {where} {command}"


def commented(lines: Sequence[str], mark: str = "#") -> str:
    """Lines as comments, folded at 100 characters."""
    return "".join(f"{mark} {part}\n" for line in lines for part in _folded(line, 100 - len(mark)))


def _folded(line: str, width: int) -> Iterator[str]:
    """At spaces only: a name is never cut. What follows the first line is set in by two."""
    current = ""
    for word in line.split(" "):
        if current.strip() and len(current) + len(word) >= width:
            yield current
            current = "  " + word
        else:
            current = f"{current} {word}" if current else word
    yield current


def yaml_text(data: Mapping[str, Any], indent: int = 0) -> str:
    """Settings as YAML, with their remarks. A value of None is left out; an empty section too."""
    out = ""
    for key, value in data.items():
        value, remark = (value.value, f"  # {value.text}") if isinstance(value, Remark) else (value, "")
        pad = " " * indent
        if isinstance(value, Mapping):
            if inner := yaml_text(value, indent + 2):
                out += f"{pad}{key}:{remark}\n{inner}"
        elif value is not None:
            out += f"{pad}{key}: {_yaml_value(value)}{remark}\n"
    return out


def _yaml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_yaml_value(item) for item in value)}]"
    if isinstance(value, str):
        return value if _plain_in_yaml(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _plain_in_yaml(text: str) -> bool:
    """Whether YAML 1.1 reads the bare text as that text: nothing that could be a number, a flag or a date."""
    return bool(re.fullmatch(r"[A-Za-z][\w./-]*", text)) and text.lower() not in (
        *("y", "n", "yes", "no", "true", "false", "on", "off", "null"),
    )


def python_value(value: Any) -> str:
    """A value as Python source, with strings in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{python_value(k)}: {python_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(python_value(item) for item in value)}]"
    return repr(value)


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of settings as TOML, with their remarks. A value of None is left out; an empty table too."""
    out = []
    for name, table in tables.items():
        lines = []
        for key, value in table.items():
            value, remark = (value.value, f"  # {value.text}") if isinstance(value, Remark) else (value, "")
            if value is not None:
                lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}{remark}\n")
        if lines:
            out.append(f"[{name}]\n" + "".join(lines))
    return "\n".join(out)
