"""What every framework built on transformers' Trainer shares: its arguments written and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchfit.frameworks._reading import Reading, Section
from batchfit.frameworks._writing import Note, Remark, counts, elsewhere
from batchfit.frameworks._zero import STAGES, precision_of_config, sharding_of_config, zero_sections
from batchfit.sentences import Code, Sentence
from batchfit.settings import ATTENTION, TrainingSettings

#: batchfit's optimizers under the Trainer's names. `adamw_torch` is PyTorch's default: foreach on a GPU.
OPTIM = {
    "adamw": "adamw_torch",
    "adamw-fused": "adamw_torch_fused",
    "adamw-8bit": "adamw_bnb_8bit",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "sgd": "sgd",
    "momentum": "sgd",
}
#: Other names of the same, and close kin: paged states live in the same memory until it runs out.
_OPTIM_READ = {value: key for key, value in OPTIM.items() if key != "momentum"} | {
    "adamw_8bit": "adamw-8bit",
    "adamw_torch_8bit": "adamw-8bit",
    "paged_adamw_8bit": "adamw-8bit",
    "paged_adamw_32bit": "adamw",
    "paged_adamw": "adamw",
    "paged_lion_32bit": "lion",
}


def optim_of(settings: TrainingSettings) -> tuple[dict[str, Any], list[Note]]:
    """The `optim` argument, and what it does not say."""
    name = settings.optimizer
    if name == "momentum":
        return {"optim": "sgd", "optim_args": "momentum=0.9"}, []
    if name == "adam":
        args = {
            "optim": "adamw_torch",
            "weight_decay": Remark(0.0, Sentence("AdamW without weight decay is Adam")),
        }
        return args, [
            Note("optimizer", Sentence("There is no Adam by name; AdamW without decay is the same."))
        ]
    if name == "adamw-8bit" and settings.sharding == "fsdp":
        # bitsandbytes does not know the sharded tensors of FSDP2; torchao does.
        return {"optim": "adamw_torch_8bit"}, []
    if name == "adamw-single":
        return {"optim": "adamw_torch"}, [
            Note(
                "optimizer",
                Sentence("AdamW is foreach here; for the loop, give the Trainer your own optimizer."),
            )
        ]
    if name is not None and name not in OPTIM:
        missing = Sentence("There is no {name} here: give the Trainer your own optimizer.", name=Code(name))
        return {}, [Note("optimizer", missing)]
    return {"optim": OPTIM[name] if name else None}, []


def sharding_of(settings: TrainingSettings) -> dict[str, Any]:
    """The FSDP or DeepSpeed arguments. DDP needs none: the launcher's number of processes decides."""
    if settings.sharding == "fsdp":
        full = settings.checkpointing in ("full", "selective") or None
        plugin = {"version": 2, "reshard_after_forward": True, "activation_checkpointing": full}
        return {"fsdp": True, "fsdp_config": plugin}
    if settings.sharding not in STAGES:
        return {}
    auto: dict[str, Any] = dict.fromkeys(
        ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto"
    )
    return {"deepspeed": auto | zero_sections(settings)}


def checkpointing_of(settings: TrainingSettings, on_by_default: bool) -> tuple[dict[str, Any], list[Note]]:
    """Activation checkpointing. FSDP has its own switch, and the two together would gather weights twice.

    Late releases of transformers 5 call it activation_checkpointing and warn at this name, but take it;
    earlier ones know no other.
    """
    if settings.checkpointing is None:
        return {}, []
    notes = []
    if settings.checkpointing == "selective":
        notes.append(
            Note("checkpointing", Sentence("There is no selective kind: every layer is recomputed whole."))
        )
    on = settings.checkpointing != "none"
    if on and settings.sharding != "fsdp":
        return {
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False},
        }, notes
    off = Remark(False, Sentence("FSDP recomputes, see fsdp_config")) if on else False
    return {"gradient_checkpointing": off} if on_by_default else {}, notes


def arguments(
    settings: TrainingSettings, framework: str, *, recomputes: bool = False
) -> tuple[dict[str, Any], list[Note]]:
    """What TrainingArguments can be told, with notes. `recomputes`: checkpointing is on by default."""
    micro, steps = counts(settings, framework)
    optim, notes = optim_of(settings)
    checkpointing, more = checkpointing_of(settings, recomputes)
    said: dict[str, Any] = {
        "per_device_train_batch_size": Remark(micro, Sentence("the micro-batch")),
        "gradient_accumulation_steps": steps,
    }
    if settings.precision:
        # ZeRO's own sections refine what is 16 bits; the two flags must agree with them.
        pure = settings.sharding in STAGES and settings.precision
        said |= {
            "bf16": settings.precision == "bf16-mixed" or pure == "bf16",
            "fp16": settings.precision == "fp16-mixed" or pure == "fp16",
        }
    return said | checkpointing | optim | sharding_of(settings), notes + more


def beyond_arguments(settings: TrainingSettings) -> list[Note]:
    """What belongs to the model, the tokenizer or the launcher, and so cannot stand among these arguments."""
    notes = []
    weights = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(settings.precision or "")
    if weights:
        loading = Code(f"from_pretrained(dtype=torch.{weights})")
        notes.append(
            Note("precision", Sentence("No mixed precision; load the weights with {code}.", code=loading))
        )
    elif settings.precision:
        notes.append(
            Note(
                "precision",
                Sentence(
                    "The weights stay in 32 bits: {code}.", code=Code("from_pretrained(dtype=torch.float32)")
                ),
            )
        )
    if settings.attention:
        kernel = kernel_of(settings.attention)
        notes.append(_code("attention", f'from_pretrained(attn_implementation="{kernel}")'))
    if settings.model:
        notes.append(_code("model", f'from_pretrained("{settings.model}")'))
    if settings.lora_rank:
        targets = f", target_modules={list(settings.lora_targets)}" if settings.lora_targets else ""
        notes.append(
            _code("lora_rank", f"get_peft_model(model, LoraConfig(r={settings.lora_rank}{targets}))")
        )
    notes += elsewhere(settings, "lora_targets")
    if settings.quantize:
        how = (
            'load_in_4bit=True, bnb_4bit_quant_type="nf4"'
            if settings.quantize == "nf4"
            else "load_in_8bit=True"
        )
        notes.append(_code("quantize", f"from_pretrained(quantization_config=BitsAndBytesConfig({how}))"))
    return notes + elsewhere(settings, "seq_len") + launch_notes(settings)


def _code(field: str, code: str) -> Note:
    """A note that is no more than what stands in the script."""
    return Note(field, Sentence("{code}", code=Code(code)))


def launch_notes(settings: TrainingSettings) -> list[Note]:
    """Notes on what the launcher decides."""
    notes = elsewhere(settings, "replicas", "nodes")
    if settings.sharding in ("none", "ddp"):
        notes.append(Note("sharding", Sentence("More than one process is DDP by itself.")))
    return notes


def from_arguments(file: Section) -> Reading:
    """What TrainingArguments say, under their names in transformers 4 and 5."""
    reading = Reading(
        micro_batch=file.count("per_device_train_batch_size", 8),
        accumulation_steps=file.count("gradient_accumulation_steps", 1),
        precision=mixed_precision(file),
        checkpointing="full" if _recomputes(file) else "none",
    )
    read_optim(file, "optim", reading)
    read_sharding(file, reading)
    if file.flag("auto_find_batch_size"):
        reading.notes.append("auto_find_batch_size may run a smaller micro-batch than the file says.")
    return reading


def mixed_precision(file: Section) -> str | None:
    """bf16 and fp16 ask for autocast. Without it the dtype of the loaded weights decides: not known here."""
    if file.flag("bf16") and file.flag("fp16"):
        raise file.bad("fp16", "false where bf16 is true")
    return "bf16-mixed" if file.flag("bf16") else "fp16-mixed" if file.flag("fp16") else None


#: The dtype of the weights under its names, in short.
DTYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}
_KERNELS = {"flash": "flash_attention_2"}


def kernel_of(attention: str | None) -> str | None:
    """transformers' name for an attention kernel."""
    return _KERNELS.get(attention or "", attention)


def attention_of(kernel: str | None) -> str | None:
    """batchfit's name for an attention kernel: every FlashAttention stores the same."""
    found = "flash" if "flash" in (kernel or "") else kernel
    return found if found in ATTENTION else None


def with_weights(reading: Reading, dtype: str | None) -> None:
    """Correct the precision where the weights' dtype is known beside the autocast flag.

    Autocast over weights that are 16 bits wide already keeps no 32-bit copy: not the mixed kind. But FSDP
    and ZeRO raise what they train to 32 bits when autocast is on, and so does PEFT with what it did not
    quantize.
    """
    autocast, fields = reading.fields.get("precision"), reading.fields
    weights = DTYPES.get((dtype or "").removeprefix("torch."))
    raised = fields.get("quantize") or (
        fields.get("sharding") in (*STAGES, "fsdp") and not fields.get("lora_rank")
    )
    if weights == "fp32":
        fields["precision"] = autocast or "fp32"
    elif weights and not (autocast and raised):
        fields["precision"] = weights


def _recomputes(file: Section) -> bool:
    names = ("activation_checkpointing", "gradient_checkpointing")
    plugin = file.section("fsdp_config") if file.sections("fsdp_config") else Section({})
    in_plugin = ("activation_checkpointing", "fsdp_activation_checkpointing")
    return any(file.flag(name) for name in names) or any(plugin.flag(name) for name in in_plugin)


def read_optim(file: Section, key: str, reading: Reading) -> None:
    """The optimizer under the Trainer's name for it; one batchfit does not model is noted."""
    name = file.word(key)
    if name is None:
        return
    name = name.lower()
    found = _OPTIM_READ.get(name)
    if found is None:
        reading.notes.append(f"{key} {name} is not one of batchfit's optimizers.")
    if name.startswith("paged_"):
        reading.notes.append(
            f"{key} {name} may page its states out to the host; they are counted on the GPU."
        )
    if found == "sgd" and "momentum" in file.scalar("optim_args"):
        found = "momentum"
    reading.fields["optimizer"] = found


def read_sharding(file: Section, reading: Reading) -> None:
    """`fsdp` in its old form (words) and its new one (true), and `deepspeed` inline or by path."""
    if file.value("deepspeed"):
        if not file.sections("deepspeed"):
            reading.notes.append(f"The sharding is in {file.value('deepspeed')}: give that file too.")
            return
        inner = file.section("deepspeed")
        reading.fields["sharding"] = sharding_of_config(inner)
        if said := precision_of_config(inner):
            reading.fields["precision"] = said
    elif file.value("fsdp") or (file.sections("fsdp_config") and file.value("fsdp") is None):
        words = (
            " ".join(file.words("fsdp") or ())
            if isinstance(file.value("fsdp"), list)
            else file.scalar("fsdp")
        )
        read_fsdp(
            file.section("fsdp_config") if file.sections("fsdp_config") else Section({}), words, reading
        )


#: FSDP's strategies: by name, and by the number Accelerate once wrote.
_STRATEGIES = {
    "full_shard": "fsdp",
    "1": "fsdp",
    "shard_grad_op": "zero2",
    "2": "zero2",
    "no_shard": "ddp",
    "3": "ddp",
    "hybrid_shard": "fsdp",
    "4": "fsdp",
    "hybrid_shard_zero2": "zero2",
    "5": "zero2",
}


def read_fsdp(plugin: Section, words: str, reading: Reading) -> None:
    """What FSDP shards. Keeping weights whole after the forward pass (SHARD_GRAD_OP) is what ZeRO-2 holds."""
    said = [words.lower()]
    for key in (
        "sharding_strategy",
        "fsdp_sharding_strategy",
        "reshard_after_forward",
        "fsdp_reshard_after_forward",
    ):
        if key in plugin:
            said.append(plugin.scalar(key))
    parts = [part for text in said for part in text.replace(",", " ").split()]
    if "false" in parts:
        parts.append("shard_grad_op")
    found = [_STRATEGIES[part] for part in parts if part in _STRATEGIES]
    reading.fields["sharding"] = found[0] if found else "fsdp"
    if any(part.startswith("hybrid") or part in ("4", "5") for part in parts):
        reading.notes.append("Hybrid sharding shards within a node only: each node holds a whole copy.")
    offloads = ("offload_params", "fsdp_offload_params", "cpu_offload")
    if "offload" in parts or any(plugin.flag(key) for key in offloads):
        reading.notes.append("FSDP offloads parameters to the host; they are counted on the GPU.")


def only(said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without their remarks and without those left out, for Python source."""
    bare = {key: value.value if isinstance(value, Remark) else value for key, value in said.items()}
    return {
        key: only(value) if isinstance(value, Mapping) else value
        for key, value in bare.items()
        if value is not None
    }
