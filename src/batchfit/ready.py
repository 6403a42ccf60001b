"""Between plans and the settings that frameworks' files hold: ready files from plans, wishes from files."""

from __future__ import annotations

from typing import Any

from batchfit import frameworks
from batchfit.errors import BadInput
from batchfit.frameworks import Emitted
from batchfit.gpus import find_gpu
from batchfit.languages import SOURCE
from batchfit.models import find_model
from batchfit.planning import Plan, Plans
from batchfit.settings import CHECKPOINTING, OPTIMIZERS, PRECISIONS, QUANTIZE, SHARDING, TrainingSettings


def settings_of(plan: Plan, model: str) -> TrainingSettings:
    """A plan as settings, on as few nodes as usually hold its replicas."""
    per_node = find_gpu(plan.gpu).per_node
    nodes = -(-plan.replicas // per_node)
    return TrainingSettings(
        micro_batch=plan.micro_batch,
        accumulation_steps=plan.accumulation_steps,
        replicas=plan.replicas,
        nodes=nodes if plan.replicas % nodes == 0 else None,
        effective_batch=plan.effective_batch,
        seq_len=plan.seq_len,
        precision=_known(plan.precision, PRECISIONS),
        optimizer=_known(plan.optimizer, OPTIMIZERS),
        checkpointing=_known(plan.checkpointing, CHECKPOINTING),
        attention=plan.attention,
        sharding=_known(plan.sharding, SHARDING),
        lora_rank=plan.lora_rank,
        quantize=_known(plan.quantize, QUANTIZE),
        model=model.removeprefix("hf:"),
    )


def _known(value: str | None, names: tuple[str, ...]) -> str | None:
    """A profile's settings may have names that frameworks' files do not: those are left to the person."""
    return value if value in names else None


def asked_by(settings: TrainingSettings) -> dict[str, Any]:
    """What a file's settings ask of the planner, by the command's option names; only what they say."""
    said = {
        "batch": settings.batch,
        "micro_batch": settings.micro_batch,
        "accumulation_steps": settings.accumulation_steps,
        "replicas": settings.replicas,
        "seq_len": settings.seq_len,
        "precision": settings.precision,
        "optimizer": settings.optimizer,
        "checkpointing": settings.checkpointing,
        "attention": settings.attention,
        "sharding": settings.sharding,
        "lora": settings.lora_rank,
        "quantize": settings.quantize,
    }
    return {name: value for name, value in said.items() if value is not None}


def emitted(framework: str, answered: Plans, model: str, lang: str = SOURCE) -> Emitted:
    """The best plan as a ready file of a framework, its comments in a language.

    `model` is what the person named the model by. Raises BadInput where there is no plan, or no such framework.
    """
    if answered.best is None:
        raise BadInput(
            "emit", "needs a plan, and nothing fits; without --emit the answer says what to change"
        )
    return frameworks.emit(framework, settings_of(answered.best, _loaded_by(model, answered)), lang)


def as_data(framework: str, made: Emitted) -> dict[str, Any]:
    """A ready file for JSON: the framework, the file's name and text, and what it cannot be told as notes."""
    return {
        "framework": framework,
        "filename": made.filename,
        "text": made.text,
        "notes": [f"{note.field}: {note.text}" for note in made.notes],
    }


def _loaded_by(model: str, answered: Plans) -> str:
    """What a framework loads the model by: its name on the hub where that is known, never a profile's path."""
    entry = find_model(model)
    if entry is not None and entry.aliases:
        return entry.aliases[0]
    return model if model.startswith("hf:") else answered.model
