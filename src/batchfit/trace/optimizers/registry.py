"""The registry of optimizers, and how one is made for a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from batchfit.errors import BadInput
from batchfit.formulas.optimizer_state import BLOCK
from batchfit.trace.flat import is_trained
from batchfit.trace.optimizers.blockwise import (
    SMALLEST_8BIT,
    SMALLEST_PAGED,
    BlockwiseOptimizer,
    blockwise_state_bytes,
)
from batchfit.trace.optimizers.lion import Lion
from batchfit.trace.optimizers.muon import MuonWithAdamW, mark_hidden_matrices
from batchfit.trace.reads import without_data

#: A person's own: from the trainable parameters to an optimizer.
OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]

#: A parameter group as `torch.optim` takes it: {"params": [...], "weight_decay": ..., ...}.
ParamGroup = dict[str, Any]

#: Bytes of optimizer state on the GPU for one parameter of a group, once the first step is done.
StateBytes = Callable[[nn.Parameter, ParamGroup], int]


@dataclass(frozen=True, slots=True)
class OptimizerRecipe:
    """How an optimizer of this name is made, and what it keeps.

    make            a class, or a function that returns one (where a library is imported only when asked for)
    options         keyword arguments that the name stands for
    state_bytes     what its documentation says it keeps
    note            what the name means, in a sentence, with its source
    split           prepares the parameter groups where the class wants to know more than the parameters
    """

    name: str
    note: str
    make: Callable[[], type[Optimizer]]
    state_bytes: StateBytes
    options: Mapping[str, Any] = field(default_factory=dict)
    split: Callable[[nn.Module, list[ParamGroup]], list[ParamGroup]] | None = None


def _torch(name: str) -> Callable[[], type[Optimizer]]:
    def make() -> type[Optimizer]:
        return getattr(torch.optim, name)  # type: ignore[no-any-return]

    return make


def _transformers_adafactor() -> type[Optimizer]:
    from transformers.optimization import Adafactor

    return Adafactor


def _copies(count: int, *, step_on_gpu: bool = False) -> StateBytes:
    """`count` states of the parameter's shape and type; a fused step also counts itself on the GPU, in float32."""
    return lambda p, group: count * p.numel() * p.element_size() + 4 * step_on_gpu


def _factored_fp32(p: nn.Parameter, group: ParamGroup) -> int:
    """transformers' Adafactor: float32 row and column means for matrices, else a full second moment; and an RMS."""
    if p.ndim < 2:
        return 4 * p.numel() + 4
    return 4 * (p.numel() // p.shape[-1] + p.numel() // p.shape[-2]) + 4


def _factored(p: nn.Parameter, group: ParamGroup) -> int:
    """torch.optim.Adafactor: row and column variances in the parameter's type for matrices, else a full one."""
    if p.ndim < 2:
        return p.numel() * p.element_size()
    return (p.numel() // p.shape[-1] + p.numel() // p.shape[-2]) * p.element_size()


def _muon_bytes(p: nn.Parameter, group: ParamGroup) -> int:
    """A momentum for hidden matrices, AdamW's two moments for the rest, in the parameter's type."""
    return _copies(1 if group["hidden"] else 2)(p, group)


_ADAM8 = (
    f"8-bit moments, one float32 absmax per {BLOCK} values; float32 moments below {SMALLEST_8BIT} elements"
)
_PAGED = f"those of {SMALLEST_PAGED} elements and more in managed memory, outside PyTorch's allocator"

OPTIMIZERS: dict[str, OptimizerRecipe] = {
    recipe.name: recipe
    for recipe in (
        OptimizerRecipe("sgd", "torch.optim.SGD without momentum", _torch("SGD"), _copies(0)),
        OptimizerRecipe(
            "momentum",
            "torch.optim.SGD with momentum: one buffer in the parameter's type",
            _torch("SGD"),
            _copies(1),
            {"momentum": 0.9},
        ),
        OptimizerRecipe("adam", "torch.optim.Adam, foreach as on CUDA", _torch("Adam"), _copies(2)),
        OptimizerRecipe("adamw", "torch.optim.AdamW, foreach as on CUDA", _torch("AdamW"), _copies(2)),
        OptimizerRecipe(
            "adamw-fused",
            "torch.optim.AdamW(fused=True): no temporaries; its step counters are on the GPU",
            _torch("AdamW"),
            _copies(2, step_on_gpu=True),
            {"fused": True},
        ),
        OptimizerRecipe(
            "adamw-single",
            "torch.optim.AdamW(foreach=False): one parameter at a time",
            _torch("AdamW"),
            _copies(2),
            {"foreach": False},
        ),
        OptimizerRecipe(
            "adamw-8bit",
            f"bitsandbytes.optim.AdamW8bit: {_ADAM8}",
            lambda: BlockwiseOptimizer,
            blockwise_state_bytes(states=2),
            {"states": 2},
        ),
        OptimizerRecipe(
            "adamw-8bit-paged",
            f"bitsandbytes.optim.PagedAdamW8bit: {_ADAM8}; {_PAGED}",
            lambda: BlockwiseOptimizer,
            blockwise_state_bytes(states=2, paged=True),
            {"states": 2, "paged": True},
        ),
        OptimizerRecipe(
            "adamw-paged",
            f"bitsandbytes.optim.PagedAdamW32bit: float32 moments, {_PAGED}",
            lambda: BlockwiseOptimizer,
            blockwise_state_bytes(states=2, bits=32, paged=True),
            {"states": 2, "bits": 32, "paged": True},
        ),
        OptimizerRecipe(
            "adafactor",
            "transformers.optimization.Adafactor as its Trainer makes it (no relative step, no parameter scaling)",
            _transformers_adafactor,
            _factored_fp32,
            {"lr": 1e-3, "scale_parameter": False, "relative_step": False},
        ),
        OptimizerRecipe(
            "adafactor-torch",
            "torch.optim.Adafactor, one parameter at a time",
            _torch("Adafactor"),
            _factored,
        ),
        OptimizerRecipe(
            "lion",
            "Lion (Chen et al., 2023) as its authors' PyTorch code: one momentum in the parameter's type",
            lambda: Lion,
            _copies(1),
        ),
        OptimizerRecipe(
            "lion-8bit",
            f"bitsandbytes.optim.Lion8bit: an 8-bit momentum, one float32 absmax per {BLOCK} values",
            lambda: BlockwiseOptimizer,
            blockwise_state_bytes(states=1),
            {"states": 1},
        ),
        OptimizerRecipe(
            "muon",
            "torch.optim.Muon for the hidden matrices, torch.optim.AdamW for embeddings, the output layer, "
            "norms and biases",
            lambda: MuonWithAdamW,
            _muon_bytes,
            split=mark_hidden_matrices,
        ),
        OptimizerRecipe("rmsprop", "torch.optim.RMSprop, foreach as on CUDA", _torch("RMSprop"), _copies(1)),
        OptimizerRecipe("adagrad", "torch.optim.Adagrad, foreach as on CUDA", _torch("Adagrad"), _copies(1)),
    )
}


def find_optimizer(name: str) -> OptimizerRecipe:
    """The recipe of that name. Raises BadInput, naming those there are, where there is none."""
    if recipe := OPTIMIZERS.get(name):
        return recipe
    raise BadInput(
        "optimizer",
        "must be one of {known}; you typed {typed}",
        known=", ".join(OPTIMIZERS),
        typed=repr(name),
    )


def create_optimizer(
    choice: str | OptimizerFactory,
    model: nn.Module,
    *,
    groups: list[ParamGroup] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
) -> Optimizer:
    """An optimizer for the trainable parameters of `model`, by name or from a person's own factory.

    groups            parameter groups, where the loop makes its own (default: one group of all that train)
    hyperparameters   keyword arguments of the optimizer, such as lr, betas, weight_decay, amsgrad

    Raises BadInput where the name or a hyperparameter is not known, or where the factory returns something else.
    """
    groups = groups or [{"params": [p for p in model.parameters() if is_trained(p)]}]
    if not isinstance(choice, str):
        return without_data(_from_factory(choice, groups))
    recipe = find_optimizer(choice)
    cls = recipe.make()
    options = {**recipe.options, **(hyperparameters or {})}
    _check_options(choice, cls, options)
    if recipe.split:
        groups = recipe.split(model, groups)
    return without_data(cls(groups, **options))


def documented_state_bytes(name: str, optimizer: Optimizer) -> int:
    """Bytes of state on the GPU that the optimizer of that name keeps for the parameters it was given."""
    recipe = find_optimizer(name)
    return sum(recipe.state_bytes(p, group) for group in optimizer.param_groups for p in group["params"])


def _from_factory(factory: OptimizerFactory, groups: list[ParamGroup]) -> Optimizer:
    made = factory([p for group in groups for p in group["params"]])
    if not isinstance(made, Optimizer):
        raise BadInput(
            "optimizer",
            "must be a function from parameters to a torch.optim.Optimizer; {factory} returned {kind}",
            factory=getattr(factory, "__qualname__", repr(factory)),
            kind=type(made).__name__,
        )
    return made


def _check_options(name: str, cls: type[Optimizer], options: Mapping[str, Any]) -> None:
    known = [p for p in inspect.signature(cls).parameters if p != "params"]
    for option, value in options.items():
        if option not in known:
            raise BadInput(
                "optimizer",
                "{name} takes {known}; you gave {option}={value}",
                name=name,
                known=", ".join(known),
                option=option,
                value=repr(value),
            )
