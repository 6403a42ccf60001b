"""Modules compiled as torch.compile does: which ones, and how their graphs are obtained on tensors without data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from batchfit.errors import BadInput
from batchfit.trace.blocks import fingerprint
from batchfit.trace.checkpointing import repeated_blocks
from batchfit.trace.compiled.fusion import program
from batchfit.trace.compiled.partition import Partition
from batchfit.trace.tracker import current_tracker, true_tensors

#: Kernels of CUDA that Inductor does not call: it takes the operation apart and fuses it with its neighbours.
_TAKEN_APART = {"aten::_fused_rms_norm"}


def compile_model(model: nn.Module, kind: str, checkpointing: str, known: dict[Any, Any]) -> None:
    """Makes `model` run compiled, in place. Blocks are checkpointed within their graphs.

    `known` has graphs of modules that may be like this model's, and is given its own: PyTorch compiles alike modules
    once, too.

    Raises BadInput where it has no repeated blocks to compile.
    """
    if kind == "none":
        return
    _without_cache(model)
    if kind == "whole":
        _compile(model, "none", known)
        return
    blocks = repeated_blocks(model)
    if not blocks:
        raise BadInput(
            "compile",
            "block needs repeated blocks, and {model} has none (a ModuleList or Sequential of alike modules); "
            "choose whole",
            model=type(model).__name__,
        )
    for block in blocks:
        _compile(block, checkpointing, known)
    for module in model.modules():
        if isinstance(module, nn.modules.loss._Loss):
            _compile(module, "none", known)


def _without_cache(model: nn.Module) -> None:
    """Models of transformers hand a cache of keys and values from block to block, which is of no use in training and no
    tensor that a graph could take."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False  # type: ignore[union-attr]


def _compile(module: nn.Module, checkpointing: str, known: dict[Any, _Graphs]) -> None:
    alike = fingerprint(module)
    module.forward = _Unit(module, module.forward, checkpointing, alike, known)


@dataclass(frozen=True, slots=True)
class _Graphs:
    """A compiled module for one kind of arguments: `run` takes its weights, buffers and arguments in one row."""

    run: Callable[..., Any]
    outputs: pytree.TreeSpec


class _Unit:
    """The forward of a compiled module."""

    def __init__(
        self,
        module: nn.Module,
        forward: Callable[..., Any],
        checkpointing: str,
        alike: object,
        known: dict[Any, _Graphs],
    ) -> None:
        self._bare = _Bare(module, forward)
        self._checkpointing = checkpointing
        self._alike = alike
        self._known = known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        own = dict(self._bare.named_parameters()) | dict(self._bare.named_buffers())
        tensors = [*own.values(), *(leaf for leaf in leaves if isinstance(leaf, Tensor))]
        with true_tensors():
            key = (
                self._alike,
                self._checkpointing,
                spec,
                *map(_described, [*own.values(), *leaves]),
                *_state(),
            )
            graphs = self._known.get(key)
            if graphs is None:
                graphs = self._known[key] = self._captured(list(own), leaves, spec, tensors)
            flat = graphs.run(*tensors)
        return pytree.tree_unflatten(flat, graphs.outputs)

    def _captured(
        self, names: list[str], leaves: list[Any], spec: pytree.TreeSpec, tensors: list[Tensor]
    ) -> _Graphs:
        """The module's graphs, from AOTAutograd itself: its functionalisation, decompositions and partitioner."""
        from torch._functorch.aot_autograd import aot_module_simplified
        from torch._inductor.decomposition import select_decomp_table

        flat = _Flat(self._bare, names, leaves, spec)
        tracker = current_tracker()
        assert tracker is not None
        kernels = {op: k for op, k in tracker.kernels.items() if op._schema.name not in _TAKEN_APART}
        cut = Partition(self._checkpointing, len(names))
        with ExitStack() as stack:
            stack.enter_context(_disable_current_modes())
            stack.enter_context(_StandIns(kernels))
            stack.enter_context(mock.patch("torch.compiler._is_compiling_flag", True))
            # A trainer may have been told that there is one; AOTAutograd would ask it for its random state.
            stack.enter_context(mock.patch("torch.cuda.is_available", return_value=False))
            stack.enter_context(warnings.catch_warnings())
            # Of losses that stand-ins for autocast hand on: they are taken apart before autograd.
            warnings.filterwarnings("ignore", "(?s).*an autograd kernel was not registered")
            # Leaves, since no graph leads back from here.
            leaves = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
            run = aot_module_simplified(
                flat,  # type: ignore[arg-type]  # any module will do
                leaves,
                fw_compiler=lambda graph, inputs: program(graph),
                bw_compiler=lambda graph, inputs: program(graph, cut.donated),
                partition_fn=cut,
                decompositions=select_decomp_table(),
            )
        assert flat.outputs is not None
        return _Graphs(run, flat.outputs)


#: Where an argument is a tensor.
_TENSOR = object()


class _Bare(nn.Module):
    """A module by its own forward, whatever stands in that one's place now."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self._forward = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(*args, **kwargs)


class _Flat(nn.Module):
    """A module as AOTAutograd takes one: weights, buffers and arguments in one row, and outputs in one."""

    def __init__(self, bare: _Bare, names: list[str], leaves: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        # Not as a child: its weights come as arguments.
        self.__dict__["_bare"] = bare
        self._names, self._spec = names, spec
        # No tensors are kept, which would live as long as the graph does.
        self._leaves = [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.outputs: pytree.TreeSpec | None = None

    def forward(self, *tensors: Tensor) -> list[Any]:
        given = iter(tensors[len(self._names) :])
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        # The model's own code finds the GPU that a trace pretends to have; AOTAutograd's must not.
        with torch._C._EnableTorchFunction():
            out = functional_call(
                self.__dict__["_bare"], dict(zip(self._names, tensors, strict=False)), args, kwargs
            )
        flat, self.outputs = pytree.tree_flatten(out)
        return flat


class _StandIns(TorchDispatchMode):
    """While a graph is captured, operations run by the kernels that stand for PyTorch's in a trace: CUDA's attention,
    its dropout, its autocast."""

    def __init__(self, kernels: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kernels = kernels

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with true_tensors():
            kernel = self._kernels.get(func)
            if kernel is not None and kernel.called():
                with self:
                    return kernel.run(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))


def _described(value: Any) -> object:
    """What a graph depends on of an argument."""
    if isinstance(value, Tensor):
        return value.size(), value.stride(), value.dtype, value.requires_grad, value.is_meta
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def _state() -> tuple[object, ...]:
    """What a graph depends on beside its arguments."""
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    return torch.is_grad_enabled(), autocast
