"""What an emitted file is made of: a head of comments, the batch in one line, settings as YAML or TOML. Comments are
in the language that the file is written in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

from batchfit.bidi import isolate
from batchfit.errors import BadInput
from batchfit.sentences import Code, Counted, Sentence, in_language
from batchfit.settings import TrainingSettings


@dataclass(frozen=True)
class Note:
    """Something a framework cannot say, or says otherwise: which field of the settings, and what to do."""

    field: str
    text: Sentence


#: Of frameworks in which the model itself checkpoints its activations.
MODEL_TURNS_ON = Note("checkpointing", Sentence("It is off unless the model turns it on."))


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
    text: Sentence


def comment(text: str, lang: str) -> str:
    """A sentence as a comment has it: without the invisible marks that hold left-to-right pieces together on pages,
    which have no place in a program."""
    said = in_language(text, lang)
    for mark in filter(None, isolate(lang)):
        said = said.replace(mark, "")
    return said


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


def arithmetic(settings: TrainingSettings) -> Sentence:
    """The batch in one line: "4 micro-batch × 8 steps × 8 GPUs = 256 samples = 1,048,576 tokens at 4,096 each"."""
    factors: dict[str, object] = {
        "micro": settings.micro_batch,
        "steps": Counted("{n} step", "{n} steps", settings.accumulation_steps or 1),
    }
    if settings.replicas is None:
        return Sentence("{micro} micro-batch × {steps} × the GPUs you launch on", **factors)
    total = settings.batch or 0
    factors["gpus"] = Counted("{n} GPU", "{n} GPUs", settings.replicas)
    if not settings.seq_len:
        return Sentence("{micro} micro-batch × {steps} × {gpus} = {total}", **factors, total=total)
    return Sentence(
        "{micro} micro-batch × {steps} × {gpus} = {samples} = {tokens} at {each} each",
        **factors,
        samples=Counted("{n} sample", "{n} samples", total),
        tokens=Counted("{n} token", "{n} tokens", total * settings.seq_len),
        each=settings.seq_len,
    )


def head(title: str, settings: TrainingSettings, notes: Sequence[Note], *more: str, lang: str) -> list[str]:
    """The lines above the settings, without comment marks."""
    lines = [Sentence("{title}, written by batchfit", title=title), arithmetic(settings), *filter(None, more)]
    beyond = [Sentence("What it cannot say, or says in another way:")] if notes else []
    said = [comment(line, lang) for line in [*lines, *beyond]]
    return said + [f"- {note.field}: {comment(note.text, lang)}" for note in notes]


def _places(settings: TrainingSettings) -> dict[str, Sentence]:
    """Where a setting lives when it is not in the framework's file."""
    return {
        "micro_batch": Sentence(
            "The script's DataLoader decides it: {code}.", code=Code(f"batch_size={settings.micro_batch}")
        ),
        "replicas": Sentence("The launcher starts one process for each."),
        "nodes": Sentence("The launcher knows them."),
        "optimizer": Sentence("The training script makes it."),
        "checkpointing": Sentence(
            "The model turns it on: {code}.", code=Code("gradient_checkpointing_enable()")
        ),
        "attention": Sentence(
            "The script chooses it: {code}.", code=Code("from_pretrained(attn_implementation=...)")
        ),
        "seq_len": Sentence(
            "The data decides it: cut or pack to {tokens}.",
            tokens=Counted("{n} token", "{n} tokens", settings.seq_len or 0),
        ),
        "lora_rank": Sentence(
            "The script adds the adapters: {code}.", code=Code(f"LoraConfig(r={settings.lora_rank})")
        ),
        "lora_targets": Sentence(
            "They stand where the adapters are added: {code}.", code=Code("LoraConfig(target_modules=...)")
        ),
        "quantize": Sentence("The script loads the model quantized."),
        "model": Sentence("The training script loads it."),
    }


def elsewhere(settings: TrainingSettings, *fields: str) -> list[Note]:
    """Notes on those of `fields` that are set, and live outside the framework's file."""
    places = _places(settings)
    return [Note(name, places[name]) for name in fields if getattr(settings, name)]


def idle_targets(settings: TrainingSettings) -> list[Note]:
    """A note on layers to adapt where there are no adapters."""
    if settings.lora_rank or not settings.lora_targets:
        return []
    return [Note("lora_targets", Sentence("They mean nothing without a LoRA rank."))]


def lone_replica(settings: TrainingSettings) -> list[Note]:
    """A note on DDP over one process, which frameworks do not set up."""
    if settings.sharding != "ddp" or settings.replicas != 1:
        return []
    return [Note("sharding", Sentence("One process has nobody to share gradients with."))]


def added(keys: str) -> Sentence:
    """What only the person can fill in."""
    return Sentence("Add {keys}.", keys=Code(keys))


def launch_line(command: str) -> Sentence:
    """The line to start the training with."""
    return Sentence("Launch: {command}", command=Code(command))


def torchrun(settings: TrainingSettings, command: str) -> Sentence:
    """The launch line for PyTorch's launcher; plain python on one GPU."""
    replicas, nodes = settings.replicas, settings.nodes or 1
    if replicas == 1:
        return launch_line(f"python {command}")
    each = settings.replicas_per_node or "GPUS"
    where = f"--nnodes {nodes} --nproc-per-node {each}" if nodes > 1 else f"--nproc-per-node {each}"
    return launch_line(f"torchrun {where} {command}")


def commented(lines: Sequence[str], mark: str = "#") -> str:
    """Lines as comments, folded at 100 columns."""
    return "".join(f"{mark} {part}\n" for line in lines for part in _folded(line, 99 - len(mark)))


#: Chinese and Japanese are written without spaces, and fold between any two letters; but punctuation that closes and
#: small kana begin no line, and punctuation that opens ends none.
_LETTER = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60"
_CLOSING = "、。，；：！？）」』】ぁぃぅぇぉっゃゅょァィゥェォッャュョー々"
_PIECE = re.compile(f" *[（「『【]*(?:[^ {_LETTER}]+|[{_LETTER}])[{_CLOSING}]*")


def _folded(line: str, width: int) -> Iterator[str]:
    """Where a line may break: a name is never cut. What follows the first line is set in by two."""
    current = ""
    for piece in _PIECE.findall(line):
        if current.strip() and _columns(current + piece) > width:
            yield current
            current = "  " + piece.lstrip()
        else:
            current += piece
    yield current


def _columns(text: str) -> int:
    """How wide a text is in a terminal: East Asian characters take two columns."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def yaml_text(data: Mapping[str, Any], lang: str, indent: int = 0) -> str:
    """Settings as YAML, with their remarks. A value of None is left out; an empty section too."""
    out = ""
    for key, value in data.items():
        value, remark = _parted(value, lang)
        pad = " " * indent
        if isinstance(value, Mapping):
            if inner := yaml_text(value, lang, indent + 2):
                out += f"{pad}{key}:{remark}\n{inner}"
        elif value is not None:
            out += f"{pad}{key}: {_yaml_value(value)}{remark}\n"
    return out


def _parted(value: Any, lang: str) -> tuple[Any, str]:
    """A value, and the comment behind it."""
    return (value.value, f"  # {comment(value.text, lang)}") if isinstance(value, Remark) else (value, "")


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


def toml_text(tables: Mapping[str, Mapping[str, Any]], lang: str) -> str:
    """Tables of settings as TOML, with their remarks. A value of None is left out; an empty table too."""
    out = []
    for name, table in tables.items():
        lines = []
        for key, value in table.items():
            value, remark = _parted(value, lang)
            if value is not None:
                lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}{remark}\n")
        if lines:
            out.append(f"[{name}]\n" + "".join(lines))
    return "\n".join(out)
