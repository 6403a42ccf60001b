"""Runs a compiled graph for its memory: the tensors that Inductor's kernels leave, in the order that it makes them.

Inductor (torch/_inductor/lowering.py, `ir.StorageBox.realize`) keeps pointwise operations as expressions, which are
written into whatever kernel reads them. A tensor is made only where

- an operation is left to a library or to ATen (matrix products, attention, convolutions, everything complex),
- an operation reduces (its operands are expressions),
- a pointwise result is read by one of those left to a library, or is an output of the graph.

A pointwise result is made when the first operation that needs it runs, at the latest when the graph ends. A tensor goes
with its last reader; a pointwise kernel writes in the place of an operand of the same size that goes with it
(`config.inplace_buffers`). Expressions are taken to be written into every reader, however many: Inductor makes tensors
of those that read many others (`config.realize_reads_threshold`), which are not counted here.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._prims_common import is_complex_dtype

from batchfit.errors import BadInput
from batchfit.trace.tracker import current_tracker

#: Not tagged as pointwise in PyTorch, and lowered by Inductor as an expression all the same.
_EXPRESSIONS = {
    "aten::arange",
    "aten::cat",
    "aten::clone",
    "aten::constant_pad_nd",
    "aten::copy",
    "aten::embedding",
    "aten::empty",
    "aten::empty_strided",
    "aten::flip",
    "aten::full",
    "aten::full_like",
    "aten::gather",
    "aten::index",
    "aten::new_empty",
    "aten::rand",
    "aten::rand_like",
    "aten::repeat",
    "aten::scalar_tensor",
    "aten::select_scatter",
    "aten::slice_scatter",
    "aten::_to_copy",
    "aten::tril",
    "aten::triu",
    "prims::convert_element_type",
    "prims::device_put",
    "prims::inductor_lookup_seed",
    "prims::inductor_random",
    "prims::inductor_seeds",
    "prims::iota",
}

#: Scattering onto a constant, such as the one of a label onto zeros, is an expression of the index
#: (`scatter_upon_const_tensor` in torch/_inductor/fx_passes/post_grad.py).
_SCATTERS = {"aten::scatter"}
_CONSTANTS = {"aten::full", "aten::full_like"}

#: Results that their schemas call new, and that are views.
_SECRET_VIEWS = {"aten::_unsafe_view"}


@dataclass(slots=True)
class _Step:
    """A kernel: `nodes` run and give the tensors `made`, after which the tensors `gone` are not read again. `over` says
    which of the made is written over which of the gone.

    One of Inductor's kernels can run several nodes; an operation left to others can have several results.
    """

    nodes: list[fx.Node]
    made: list[fx.Node]
    gone: list[fx.Node] = field(default_factory=list)
    over: dict[fx.Node, fx.Node] = field(default_factory=dict)


def program(graph: fx.GraphModule, donated: Container[str] = ()) -> Callable[[list[Any]], list[Any]]:
    """A function that runs `graph`: it takes the list of inputs, which it empties, and answers the outputs.

    It may write over the inputs that `donated` names.
    """
    run = _Program(graph, donated)
    # How AOTAutograd is told that a function frees its inputs itself.
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _Program:
    def __init__(self, module: fx.GraphModule, donated: Container[str]) -> None:
        nodes = list(module.graph.nodes)
        self._donated = donated
        self._inputs = [node for node in nodes if node.op == "placeholder"]
        self._constants = {n: _attribute(module, str(n.target)) for n in nodes if n.op == "get_attr"}
        (output,) = (node for node in nodes if node.op == "output")
        self._outputs: Sequence[Any] = output.args[0]
        self._made = _made(nodes, self._outputs)
        self._read: dict[fx.Node, list[fx.Node]] = {}
        self._steps = self._scheduled(nodes)

    # -- planning

    def _scheduled(self, nodes: Sequence[fx.Node]) -> list[_Step]:
        steps: list[_Step] = []
        waiting = {node for node in self._made if _is_expression(node)}
        done = set[fx.Node]()

        def make(tensor: fx.Node) -> None:
            node = _maker(tensor)
            if node in done:
                return
            waiting.discard(node)
            for read in self._tensors_read(node):
                if read in self._made:
                    make(read)
            done.add(node)
            kernel = [node]
            if _is_expression(node):
                kernel += [other for other in nodes if other in waiting and self._joins(other, node, done)]
                done.update(kernel)
                waiting.difference_update(kernel)
            steps.append(_Step(kernel, [result for each in kernel for result in _results(each)]))

        for node in nodes:
            # What is pointwise waits for its first reader.
            if node in self._made and not _is_expression(_maker(node)):
                make(node)
        for node in _nodes_in(self._outputs):
            base = base_of(node)
            if base in self._made:
                make(base)
        return self._with_lifetimes(steps)

    def _joins(self, other: fx.Node, node: fx.Node, done: Container[fx.Node]) -> bool:
        """Whether Inductor fuses two pointwise results: they are as large, read something in common, and all that the
        other one reads is there (`Scheduler.can_fuse` and `score_fusion_memory` in torch/_inductor/scheduler.py)."""
        reads = self._tensors_read(other)
        return (
            other.meta["val"].numel() == node.meta["val"].numel()
            and all(read not in self._made or _maker(read) in done for read in reads)
            and not set(reads).isdisjoint(self._tensors_read(node))
        )

    def _with_lifetimes(self, steps: list[_Step]) -> list[_Step]:
        stay = {base_of(node) for node in _nodes_in(self._outputs)}
        last: dict[fx.Node, _Step] = {}
        for step in steps:
            last.update(dict.fromkeys(step.made, step))
            for node in step.nodes:
                last.update(dict.fromkeys(self._tensors_read(node), step))
        for node, step in last.items():
            if node not in stay:
                step.gone.append(node)
        for step in steps:
            # A tensor that several of the kernel's nodes read is not written over, whichever of them comes last.
            readers = Counter(read for node in step.nodes for read in self._tensors_read(node))
            free = [tensor for tensor in step.gone if readers[tensor] == 1]
            for node in step.nodes if _is_expression(step.nodes[0]) else ():
                reads = self._tensors_read(node)
                place = next((t for t in free if t in reads and self._fits(t, node)), None)
                if place is not None:
                    free.remove(place)
                    step.over[node] = place
        return steps

    def _fits(self, gone: fx.Node, node: fx.Node) -> bool:
        """Whether `node` can be written over `gone`, a tensor of this graph's own."""
        if gone is node or not (gone in self._made or gone.name in self._donated):
            return False
        there, wanted = gone.meta["val"], node.meta["val"]
        return isinstance(there, Tensor) and _storage_bytes(there) == _storage_bytes(wanted)

    def _tensors_read(self, node: fx.Node) -> list[fx.Node]:
        """The inputs and made tensors that a kernel for `node` reads, through views and expressions."""
        known = self._read.get(node)
        if known is not None:
            return known
        found: dict[fx.Node, None] = {}
        seen = set[fx.Node]()
        waiting = list(node.all_input_nodes)
        while waiting:
            base = base_of(waiting.pop())
            if base in seen:
                continue
            seen.add(base)
            if base in self._made or base.op != "call_function":
                found[base] = None
            else:
                waiting += base.all_input_nodes
        self._read[node] = list(found)
        return self._read[node]

    # -- running

    def __call__(self, inputs: list[Any]) -> list[Any]:
        there: dict[fx.Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        inputs.clear()
        there.update(self._constants)
        tracker = current_tracker()
        for step in self._steps:
            for node in step.nodes:
                result = self._run(node, step.over.get(node), there)
                there.update((n, result if n is node else result[n.args[1]]) for n in _results(node))
                del result
            if tracker is not None and _is_kernel_of_inductor(step.nodes[0]):
                reads = {read for node in step.nodes for read in self._tensors_read(node)}
                tracker.fused([there[node] for node in (*reads, *step.made)])
            for node in step.gone:
                there.pop(node, None)
        return [self._value(output, there) for output in self._outputs]

    def _run(self, node: fx.Node, over: fx.Node | None, there: dict[fx.Node, Any]) -> Any:
        if _is_kernel_of_inductor(node):
            place = None if over is None else there[over].untyped_storage()
            return _map(lambda described: _new(described, place), node.meta["val"])
        args, kwargs = self._value(node.args, there), self._value(node.kwargs, there)
        target: Any = node.target
        if not isinstance(target, torch._ops.HigherOrderOperator):
            return target(*args, **kwargs)
        # What draws random numbers and is recomputed comes with the generator's state, which the host has.
        if target.name() == "run_and_save_rng_state":
            return torch.empty(0, dtype=torch.uint8, device="cpu"), args[0](*args[1:], **kwargs)
        if target.name() == "run_with_rng_state":
            return args[1](*args[2:], **kwargs)
        raise BadInput("compile", "does not know the operation {operation}", operation=target.name())

    def _value(self, argument: Any, there: dict[fx.Node, Any]) -> Any:
        """An argument with tensors in the place of nodes; views are taken anew each time, for they hold memory."""
        if isinstance(argument, fx.Node):
            if argument in there:
                return there[argument]
            args, kwargs = self._value(argument.args, there), self._value(argument.kwargs, there)
            return argument.target(*args, **kwargs)  # type: ignore[operator]
        return _map(lambda value: self._value(value, there), argument, leaf=False)


def _new(described: Any, place: torch.UntypedStorage | None) -> Any:
    """A tensor as described, in this place or a new one."""
    if not isinstance(described, Tensor):
        return described
    size, stride, dtype = tuple(described.size()), described.stride(), described.dtype
    if place is None:
        return torch.empty_strided(size, stride, dtype=dtype, device=described.device)
    # No operation of the program: nobody is to see it.
    with torch._C._DisableTorchDispatch():
        return torch.empty(0, dtype=dtype, device="meta").set_(place, 0, size, stride)


def _made(nodes: Sequence[fx.Node], outputs: Sequence[Any]) -> set[fx.Node]:
    """The nodes whose results exist as tensors."""
    made = set[fx.Node]()
    for node in nodes:
        if node.op != "call_function" or _is_view(node):
            continue
        if not _is_expression(node):
            made.update(_results(node))
            if not _is_kernel_of_inductor(node):
                made.update(b for b in map(base_of, node.all_input_nodes) if b.op == "call_function")
    # A complex number is made of two tensors' worth of memory by ATen, and so is read from memory.
    for node in nodes:
        if node.op == "call_function" and _is_view(node) and _is_complex(node):
            made.update(b for b in map(base_of, node.all_input_nodes) if b.op == "call_function")
    made.update(b for b in map(base_of, _nodes_in(outputs)) if b.op == "call_function")
    return made


def _is_view(node: fx.Node) -> bool:
    """Whether the result is its first argument, seen another way, or one of several results."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    if target._schema.name in _SECRET_VIEWS:
        return True
    returns = target._schema.returns
    return bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write


def base_of(node: fx.Node) -> fx.Node:
    """The node whose memory `node` looks at: a result, or one of several."""
    while node.op == "call_function" and _is_view(node) and not _is_result(node):
        node = node.all_input_nodes[0]
    return node


def _is_result(node: fx.Node) -> bool:
    """Whether `node` takes one of an operation's several results: not one out of a tuple that is itself one, nor one of
    several views."""
    return node.target is operator.getitem and not _is_view(node.all_input_nodes[0])


def _maker(node: fx.Node) -> fx.Node:
    """The operation that makes `node`, which may be one of several results."""
    return node.all_input_nodes[0] if node.target is operator.getitem else node


def _results(node: fx.Node) -> list[fx.Node]:
    """What a made operation gives: itself, or those of its several results that are used."""
    several = [user for user in node.users if user.target is operator.getitem]
    return several or [node]


def _is_expression(node: fx.Node) -> bool:
    """Whether Inductor writes the operation into the kernels that read it."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or _is_complex(node):
        return False
    if target._schema.name in _SCATTERS:
        onto = node.args[0]
        return isinstance(onto, fx.Node) and _name(onto) in _CONSTANTS
    return torch.Tag.pointwise in target.tags or target._schema.name in _EXPRESSIONS


def _is_kernel_of_inductor(node: fx.Node) -> bool:
    """Whether Inductor writes the kernel itself: then operands are expressions."""
    return _is_expression(node) or (_name(node) in _REDUCTIONS and not _is_complex(node))


#: What Inductor reduces with, as its decompositions leave it.
_REDUCTIONS = {
    "aten::all",
    "aten::amax",
    "aten::amin",
    "aten::any",
    "aten::argmax",
    "aten::argmin",
    "aten::max",
    "aten::mean",
    "aten::min",
    "aten::prod",
    "aten::sum",
    "aten::var",
    "aten::var_mean",
}


def _name(node: fx.Node) -> str:
    target = node.target
    return target._schema.name if isinstance(target, torch._ops.OpOverload) else ""


def _is_complex(node: fx.Node) -> bool:
    """Whether an operation reads or gives complex numbers, for which Inductor has no kernels."""
    values = [node.meta.get("val"), *(argument.meta.get("val") for argument in node.all_input_nodes)]
    return any(isinstance(value, Tensor) and is_complex_dtype(value.dtype) for value in values)


def _storage_bytes(tensor: Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size() if tensor.numel() else 0


def _nodes_in(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes_in(item)


def _map(function: Callable[[Any], Any], value: Any, *, leaf: bool = True) -> Any:
    """`function` of each item of lists, tuples and dicts, and, with `leaf`, of what is neither."""
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(function(item) for item in value)
    return function(value) if leaf else value


def _attribute(module: fx.GraphModule, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    return value
