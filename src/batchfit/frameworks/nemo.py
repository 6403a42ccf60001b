"""NeMo 2: a function that puts the settings on any of its recipes, in Python."""

from __future__ import annotations

import re
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
from batchfit.frameworks._reading import Reading, Section, file_format, python_assignments, python_calls
from batchfit.frameworks._writing import (
    Emitted,
    Note,
    comment,
    commented,
    counts,
    elsewhere,
    head,
    idle_targets,
    python_value,
)
from batchfit.sentences import Code, Sentence
from batchfit.settings import TrainingSettings

NAME = "nemo"
TITLE = Sentence("NeMo 2 recipe (Python)")
FILENAME = "nemo_recipe.py"

#: CanonicalLoRA's names for the layers, whose adapters are apart as those of PEFT are.
_MODULES = {
    "q_proj": "linear_q",
    "k_proj": "linear_k",
    "v_proj": "linear_v",
    "o_proj": "linear_proj",
    "gate_proj": "linear_fc1_gate",
    "up_proj": "linear_fc1_up",
    "down_proj": "linear_fc2",
}
#: LoRA's own names, of layers that are one in NeMo.
_FUSED = {"linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_fc1": ("gate_proj", "up_proj")}
#: Several GPUs may share a replica.
_SPLITS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_CONFIGURE = Sentence("The settings of the plan, on any recipe of nemo.collections.llm.")
_RECIPE = r"(.*\.)?(pretrain|finetune)_recipe"


def emit(settings: TrainingSettings, lang: str) -> Emitted:
    """A Python module with `configure(recipe)`. NeMo is given the micro-batch and the global batch, and derives the
    steps; a recipe's own tensor, pipeline and context parallelism is turned off, since each GPU is a replica."""
    micro, steps = counts(settings, TITLE, whole_batch=True)
    notes = _notes(settings, steps)
    each, nodes = settings.replicas_per_node, settings.nodes or 1
    said: dict[str, Any] = {
        "trainer.num_nodes": nodes,
        "trainer.devices": each,
        **{f"trainer.strategy.{split}": 1 for split in _SPLITS},
        "trainer.strategy.virtual_pipeline_model_parallel_size": None,
        "trainer.strategy.sequence_parallel": False,
        "data.micro_batch_size": micro,
        "data.global_batch_size": settings.batch,
        **_length(settings.seq_len),
        **_recompute(settings.checkpointing),
        **_sharding(settings.sharding),
        **_optimizer(settings),
    }
    lines = [f"recipe.{path} = {python_value(value)}" for path, value in said.items()]
    lines += _precision(settings.precision)
    if settings.attention:
        lines.append(f"recipe.model.config.attention_backend = AttnBackend.{ATTENTION[settings.attention]}")
    if settings.lora_rank:
        lines.append(f"recipe.peft = run.Config(CanonicalLoRA, dim={settings.lora_rank}{_targets(settings)})")
    kind = "finetune" if settings.lora_rank else "pretrain"
    comments = head(
        TITLE,
        settings,
        notes,
        Sentence(
            "In your script: {configure}, then {run}, or an executor of your cluster.",
            configure=Code(f"recipe = configure(llm.YOUR_MODEL.{kind}_recipe())"),
            run=Code(
                f'run.run(recipe, executor=run.LocalExecutor(ntasks_per_node={each}, launcher="torchrun"))'
            ),
        ),
        lang=lang,
    )
    source = (
        commented(comments)
        + _imports(settings)
        + "\n\ndef configure(recipe):\n"
        + f'    """{comment(_CONFIGURE, lang)}"""\n'
        + "".join(f"    {line}\n" for line in [*lines, "return recipe"])
    )
    return Emitted(source, FILENAME, tuple(notes))


def _imports(settings: TrainingSettings) -> str:
    names = ["import nemo_run as run"] if settings.lora_rank else []
    if settings.attention:
        names.append("from megatron.core.transformer.enums import AttnBackend")
    if settings.lora_rank:
        names.append("from nemo.collections.llm.peft import CanonicalLoRA")
    if settings.precision not in (None, "fp32"):
        names.append(
            f"from nemo.collections.llm.recipes.precision.mixed_precision import {_plugin(settings.precision)}"
        )
    return "".join(f"{name}\n" for name in names)


def _length(seq_len: int | None) -> dict[str, int]:
    """Data and model must agree on it."""
    return {"data.seq_length": seq_len, "model.config.seq_length": seq_len} if seq_len else {}


def _recompute(checkpointing: str | None) -> dict[str, Any]:
    if checkpointing is None:
        return {}
    found: dict[str, Any] = {**recomputation(checkpointing)} or {"recompute_granularity": None}
    return {f"model.config.{key}": value for key, value in found.items()}


def _plugin(precision: str | None) -> str:
    return f"{(precision or 'bf16')[:4]}_mixed"


def _precision(precision: str | None) -> list[str]:
    if precision is None:
        return []
    if precision == "fp32":
        return ["recipe.trainer.plugins = None", "recipe.optim.config.bf16 = False"]
    return [f"recipe.trainer.plugins = {_plugin(precision)}()"]


def _sharding(sharding: str | None) -> dict[str, Any]:
    if sharding is None:
        return {}
    said: dict[str, Any] = {"optim.config.use_distributed_optimizer": sharding not in ("none", "ddp")}
    if sharding in FSDP:
        said |= {
            "trainer.strategy.fsdp": "megatron",
            "trainer.strategy.ddp.data_parallel_sharding_strategy": FSDP[sharding],
            "model.config.init_model_with_meta_device": True,
            "model.config.gradient_accumulation_fusion": False,
        }
    return said


def _optimizer_name(settings: TrainingSettings) -> str | None:
    """NeMo's recipes know Megatron's Adam and SGD."""
    if settings.optimizer is None:
        return None
    return "sgd" if OPTIMIZERS.get(settings.optimizer) == "sgd" else "adam"


def _optimizer(settings: TrainingSettings) -> dict[str, Any]:
    name = _optimizer_name(settings)
    if name is None:
        return {}
    momentum = {"optim.config.sgd_momentum": 0.0 if settings.optimizer == "sgd" else 0.9}
    return {"optim.config.optimizer": name, **(momentum if name == "sgd" else {})}


def _targets(settings: TrainingSettings) -> str:
    """Nothing where it is every linear layer, which is what it adapts by itself."""
    names = [_MODULES[name] for name in settings.lora_targets or () if name in _MODULES]
    return f", target_modules={python_value(names)}" if names else ""


def _notes(settings: TrainingSettings, steps: int) -> list[Note]:
    notes = [*elsewhere(settings, "quantize"), derived_steps(steps)]
    if settings.model:
        notes.append(Note("model", Sentence("Choose NeMo's recipe of {model}.", model=Code(settings.model))))
    notes += core_notes(settings, _optimizer_name(settings))
    targets = settings.lora_targets or ()
    idle = idle_targets(settings)
    notes += idle
    if not idle and targets != ("all-linear",) and set(targets) - {*_MODULES}:
        notes.append(Note("lora_targets", Sentence("The choice is among q, k, v, o, gate, up and down.")))
    return notes


def detect(text: str, filename: str) -> bool:
    """Python that sets a recipe's batch."""
    if file_format(text, filename) != "python":
        return False
    data = python_assignments(text).value("data")
    return isinstance(data, dict) and bool({"micro_batch_size", "global_batch_size"} & set(data))


def read(text: str, filename: str) -> TrainingSettings:
    """What a script assigns to its recipe, and literal arguments of the recipe's call; what it leaves to the recipe is
    not known. The source is never run.

    Raises BadInput where the global batch is no multiple of the micro-batch and the replicas.
    """
    file, call = python_assignments(text), python_calls(text, _RECIPE) or Section({})
    model, data = file.section("model").section("config"), file.section("data")
    named = re.search(r"\bllm\.(\w+)\.(?:pretrain|finetune)_recipe\(", text)
    reading = Reading(
        seq_len=data.count("seq_length") or model.count("seq_length"),
        optimizer=_read_optimizer(file.section("optim").section("config")),
        checkpointing=_read_recompute(model),
        sharding=_read_sharding(file),
        attention=_read_attention(model),
        model=named[1] if named else None,
        **_read_adapter(file, call),
    )
    _read_precision(file, reading)
    trainer = file.section("trainer")
    nodes = trainer.count("num_nodes") or call.count("num_nodes", 1)
    each = trainer.count("devices") or call.count("num_gpus_per_node")
    replicas = _replicas(each * (nodes or 1), trainer.section("strategy"), reading) if each else None
    total = data.count("global_batch_size")
    read_batch(reading, "data.global_batch_size", data.count("micro_batch_size"), total, replicas, nodes)
    return reading.settings()


def _replicas(gpus: int, strategy: Section, reading: Reading) -> int | None:
    shared = 1
    for key in _SPLITS:
        size = strategy.count(key) or 1
        shared *= size
        if size > 1:
            reading.notes.append(f"{key} splits each replica over {size} GPUs.")
    if gpus % shared:
        reading.notes.append(f"{gpus} GPUs do not make up replicas of {shared}: set the nodes.")
        return None
    return gpus // shared


def _read_precision(file: Section, reading: Reading) -> None:
    trainer = file.section("trainer")
    if trainer.sections("plugins"):
        name = trainer.section("plugins").word("_call_") or ""
        reading.fields["precision"] = f"{name[:4]}-mixed" if name[:4] in ("bf16", "fp16") else None
        if "fp8" in name:
            reading.notes.append(f"{name} computes in 8 bits, which batchfit does not model.")
    elif file.section("optim").section("config").flag("bf16") is False:
        reading.fields["precision"] = "fp32"


def _read_optimizer(config: Section) -> str | None:
    name = config.word("optimizer")
    if name == "sgd":
        return "sgd" if config.scalar("sgd_momentum") in ("0.0", "0") else "momentum"
    return {value: key for key, value in OPTIMIZERS.items()}.get(name or "")


def _read_recompute(model: Section) -> str | None:
    if "recompute_granularity" not in model:
        return None
    return model.choice("recompute_granularity", ("full", "selective")) or "none"


def _read_sharding(file: Section) -> str | None:
    strategy = file.section("trainer").section("strategy")
    if strategy.word("fsdp"):
        default = "optim_grads_params"
        ddp = strategy.section("ddp") if strategy.sections("ddp") else Section({})
        return STRATEGIES[ddp.choice("data_parallel_sharding_strategy", STRATEGIES, default) or default]
    distributed = file.section("optim").section("config").flag("use_distributed_optimizer")
    return None if distributed is None else "zero1" if distributed else "ddp"


def _read_attention(model: Section) -> str | None:
    said = model.word("attention_backend")
    return {value: key for key, value in ATTENTION.items()}.get("unfused" if said == "local" else said or "")


def _read_adapter(file: Section, call: Section) -> dict[str, Any]:
    """The adapter that a script sets; one that only the recipe's scheme asks for is not known in its size."""
    if not file.sections("peft"):
        return {}
    peft = file.section("peft")
    names = {value: (key,) for key, value in _MODULES.items()} | _FUSED
    targets = tuple(name for said in peft.words("target_modules") or () for name in names.get(said, (said,)))
    rank = peft.count("dim") or (32 if "_call_" in peft or call.word("peft_scheme") == "lora" else None)
    return {"lora_rank": rank, "lora_targets": targets or ("all-linear",)}
