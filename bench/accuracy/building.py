"""Models and steps of published runs, made as their own programs made them, for `batchfit.trace`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from batchfit.trace import Lora, Training
from batchfit.trace.adapters import add_lora
from batchfit.trace.quantize import Linear4bit, prepare_for_training, quantize
from bench.accuracy import flash, litgpt_model, megatron, torchtitan_ranks
from bench.accuracy.frozen_units import hold_inputs_of_frozen_units
from bench.accuracy.fused_lora import fuse
from bench.accuracy.plain_models import PLAIN
from bench.accuracy.torchtune_llama import InBackward

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def training(asked: Mapping[str, Any]) -> Training:
    """The training that a question's `trace` describes."""
    model = _model(asked)
    adapters = asked.get("adapters")
    if asked.get("frozen") == "embeddings":
        model.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    if checkpoints_itself(asked):
        _checkpoint_reentrant(model)
    if asked.get("quantize"):
        if asked.get("quantized_from") == "fp16":
            _quantize_from_float16(model, asked["quantize"])
        else:
            quantize(model, asked["quantize"])
        holds = asked.get("holds_inputs")
        if holds == "always" or (holds == "of its time" and not _is_today()):
            _hold_inputs(model)
    if asked.get("kbit"):
        model = prepare_for_training(model, checkpointing=False)
        if asked["kbit"] == "trl-bf16":
            _embeddings_back_in_bf16(model)
    if adapters and "own" not in adapters:
        model = _adapted(model, adapters)
    if asked.get("fused_lora"):
        fuse(model, masked=asked["fused_lora"] == "masked")
    if checkpoints_itself(asked) and asked.get("frozen_units"):
        hold_inputs_of_frozen_units(model)
    _as_given(model)
    optimizer = OPTIMIZERS.get(asked.get("optimizer", ""))
    return Training(model, _batches(asked), LOSSES[asked.get("step", "model")], optimizer)


def _model(asked: Mapping[str, Any]) -> nn.Module:
    """The model of the config, on the meta device, in the type its weights are kept in."""
    config = dict(asked["config"])
    kind = config["model_type"]
    if kind in PLAIN:
        # Adapters of a library that writes models itself are its own, too.
        config["adapters"] = asked.get("adapters", {}).get("own")
        with torch.device("meta"), _default_type(DTYPES[asked["weights"]]):
            plain = PLAIN[kind](config, asked["seq_len"])
            torchtitan_ranks.divide_rank(plain, asked)
        return plain
    import transformers

    made = transformers.CONFIG_MAPPING[kind].from_dict(config)
    base = getattr(transformers, config["architectures"][0])
    # "dtype" since transformers 4.56, "torch_dtype" before.
    release = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    name = "dtype" if release >= (4, 56) else "torch_dtype"
    attention = "eager" if asked.get("attention") == "eager" else "sdpa"
    if asked.get("attention") == "flash" and flash.is_wanted():
        attention = "flash_attention_2"
    with torch.device("meta"):
        made_model: nn.Module = base._from_config(
            made, attn_implementation=attention, **{name: DTYPES[asked["weights"]]}
        )
    if asked.get("autocast"):
        made_model.__class__ = _autocasting(type(made_model), DTYPES[asked["autocast"]])
    return made_model


@contextmanager
def _default_type(dtype: torch.dtype) -> Iterator[None]:
    """Weights made in here are of this type; buffers that name theirs are of that."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _autocasting(base: type[nn.Module], dtype: torch.dtype) -> type[nn.Module]:
    """The class with a forward as accelerate wraps one for mixed precision: under autocast, and with a float32 copy of
    every 16-bit output (accelerate, `Accelerator.prepare_model` and `convert_outputs_to_fp32`)."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", dtype):
            output = base.forward(self, *args, **kwargs)
        for name, value in list(output.items()):
            if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
                output[name] = value.float()
        return output

    forward.__signature__ = inspect.signature(base.forward)  # type: ignore[attr-defined]
    return type(base.__name__, (base,), {"forward": forward})


def _as_given(model: nn.Module) -> None:
    """The model is trained in the types it comes in: float32 adapters beside 16-bit weights stay what they are."""
    base = type(model)
    model.__class__ = type(base.__name__, (base,), {"to": lambda self, *args, **kwargs: self})


def checkpoints_itself(asked: Mapping[str, Any]) -> bool:
    """Whether the model recomputes as transformers' Trainer had it until version 5, by reentrant checkpointing."""
    return bool(asked.get("reentrant")) and not _is_today()


def _is_today() -> bool:
    """Whether the libraries are today's, without what those of a run's time did otherwise."""
    import transformers

    return int(transformers.__version__.split(".")[0]) >= 5


def _checkpoint_reentrant(model: nn.Module) -> None:
    """Checkpointing as transformers' Trainer turned it on until 2025, its blocks' inputs detached by reentrant
    checkpointing; the embedding's output requires a gradient, else frozen blocks would have none."""
    enable: Any = model.gradient_checkpointing_enable
    enable({"use_reentrant": True})
    require: Any = model.enable_input_require_grads
    require()


def _quantize_from_float16(model: nn.Module, scheme: str) -> None:
    """Quantises every linear layer, the output layer too, as Lightning does: from float16, to which the layers bring
    their weights back before they cast them to what they compute in (`BitsandbytesPrecision`, `_Linear4bit.quantize`).
    """
    for path, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear):
            made = Linear4bit(layer, nested=scheme == "nf4-double")
            made.quantized_dtype = torch.float16
            model.set_submodule(path, made)


def _hold_inputs(model: nn.Module) -> None:
    """4-bit layers as bitsandbytes had them before 0.43.2: each node of the graph holds its input, which nothing needs,
    by an attribute, and so until the graph itself is gone (bitsandbytes, pull request 1270)."""
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.__class__ = _HoldingLinear4bit


class _HoldingLinear4bit(Linear4bit):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held: torch.Tensor = _Hold.apply(super().forward(x), x)  # type: ignore[no-untyped-call]
        return held


class _Hold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.held = x
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


def _embeddings_back_in_bf16(model: nn.Module) -> None:
    """TRL's `peft_module_casting_to_bf16` (`bf16=True` on one GPU): what PEFT's preparation brought to float32 goes
    back, but for the norms."""
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if name in ("lm_head", "embed_tokens", "wte", "wpe") and isinstance(module.weight, nn.Parameter):
            module.weight.data = module.weight.data.to(torch.bfloat16)


def _adapted(model: nn.Module, asked: Mapping[str, Any]) -> nn.Module:
    """The model with adapters: LoRA by batchfit's own words, or any method of PEFT by its config."""
    dtype = asked.get("dtype")
    if "lora" in asked:
        lora = dict(asked["lora"])
        lora["targets"] = tuple(lora["targets"]) if lora.get("targets") else None
        model = add_lora(model, Lora(**lora))
    else:
        import peft

        config = dict(asked["peft"])
        method = config.pop("peft_type")
        made = peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING[method](**config)
        if method in _DRAWN:
            _move(model, _on_host)
            model = peft.get_peft_model(model, made)
            _move(model, lambda tensor: tensor.to("meta"))
        else:
            with torch.device("meta"):
                model = peft.get_peft_model(model, made)
    if dtype:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(DTYPES[dtype])
    return model


#: PEFT's methods that draw the places of their weights when they are made, and look these up in forward: they are made
#: on the host, where there are numbers.
_DRAWN = ("UNILORA", "WAVEFT")


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the host that takes the memory of one number."""
    return torch.zeros((), dtype=tensor.dtype, device="cpu").expand(tensor.shape)


def _move(model: nn.Module, place: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Puts each parameter of `model` where `place` has it; tied ones stay tied."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if parameter not in made:
                    made[parameter] = nn.Parameter(place(parameter.detach()), parameter.requires_grad)
                module._parameters[name] = made[parameter]


def _batches(asked: Mapping[str, Any]) -> Callable[..., dict[str, torch.Tensor]]:
    per_sample = asked.get("labels", "token")

    def batch(micro_batch: int, length: int = asked["seq_len"]) -> dict[str, torch.Tensor]:
        ids = torch.ones(micro_batch, length, dtype=torch.long)
        made = {"input_ids": ids}
        if per_sample == "token":
            made["labels"] = ids.clone()
        elif per_sample == "sample":
            made["labels"] = torch.zeros(micro_batch, dtype=torch.long)
        if asked.get("attention_mask"):
            made["attention_mask"] = ids.clone()
        return made

    return batch


def _of_model(model: nn.Module, batch: Any) -> Any:
    return model(**batch)


def _mean_of_logits(model: nn.Module, batch: Any) -> Any:
    """A notebook's `output = model(x); output.logits.mean().backward()`, with `output` kept by its name. Until 4.45
    transformers returned float32 logits."""
    output = model(**batch)
    output.logits = output.logits.float()
    output["loss"] = output.logits.mean()
    _named["output"] = output
    return output


#: What a notebook keeps by name from one cell to the next.
_named: dict[str, Any] = {}


#: Optimizers that only a program of its own has, by name; others are batchfit's.
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "paged adamw-8bit in backward": lambda model: InBackward(model.parameters()),
}


def _litgpt(model: nn.Module, batch: Any) -> dict[str, Any]:
    """litgpt's loop: the logits are a variable, there until the end of backward."""
    logits = model(batch["input_ids"])
    return {"loss": litgpt_model.loss(logits, batch["labels"]), "logits": logits}


def _litgpt_again(model: nn.Module, batch: Any) -> dict[str, Any]:
    """The same where samples as long came just before: their logits are there until the variable has others."""
    _named["logits"] = model(batch["input_ids"])
    return {"loss": litgpt_model.loss(_named["logits"], batch["labels"])}


def _torchtitan_until_june_2024(model: Any, batch: Any) -> dict[str, Any]:
    """torchtitan's loop before `del pred`: the logits are a variable, and there until it has the next ones."""
    _named["pred"] = model.logits(batch["input_ids"])
    return {"loss": model.loss(_named["pred"], batch["labels"])}


def _gpt_neox(model: nn.Module, batch: Any) -> dict[str, Any]:
    """GPT-NeoX's loss, Megatron's: in place, of a float32 copy of the logits (`cross_entropy` in
    megatron/model/gpt2_model.py, megatron/mpu/cross_entropy.py). The logits are a variable."""
    logits = model(batch["input_ids"]).logits
    return {"loss": megatron.loss(logits.float(), batch["labels"]), "logits": logits}


LOSSES: dict[str, Callable[[nn.Module, Any], Any]] = {
    "model": _of_model,
    "mean of logits": _mean_of_logits,
    "gpt-neox": _gpt_neox,
    "litgpt": _litgpt,
    "litgpt again": _litgpt_again,
    "torchtitan until June 2024": _torchtitan_until_june_2024,
}
