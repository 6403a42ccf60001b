"""What kind of layer a storage belongs to: attention, a feed-forward network, a norm, and so on.

It is told by the module that made it (in backward, whose operation is differentiated): by its class where PyTorch's
own says it, by what a trace saw it compute (attention), by what it is made of (layers without attention in a
repeated block are its feed-forward network), and by when it runs (behind the last block come logits and loss).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from batchfit.trace.timeline import ALLOC, MARK, Timeline

ATTENTION, MLP, CONVOLUTION, NORM = "attention", "MLP", "convolution", "norm"
EMBEDDING, LOSS, OTHER = "embedding", "logits and loss", "other"
#: Sums that a block makes itself, of what comes in and what its parts make of it.
RESIDUAL = "residual stream"

#: Norms by their class: PyTorch's, and others, which are all called so.
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase)
_NORM_CLASS = re.compile(r"norm(?!al)", re.IGNORECASE)
#: A module around the one that attends is still attention where it is called so.
_ATTENTION_NAME = re.compile(r"att(n|ention)", re.IGNORECASE)

#: Layers whose kind a function without weights has that follows them, such as an activation function or dropout.
_LAYERS = frozenset((ATTENTION, MLP, CONVOLUTION, EMBEDDING))


class Kinds:
    """The kinds of what a step of `model` makes, of which `timeline` is the trace."""

    def __init__(self, model: nn.Module, timeline: Timeline) -> None:
        self._modules = dict(model.named_modules())
        self._blocks = {path for path in self._modules if self._is_block(path)}
        self._attention = {self._around(path) for path in timeline.attention if path not in self._blocks}
        self._attending_blocks = {path for path in timeline.attention if path in self._blocks}
        self._told_of: dict[str, str] = {}
        #: What runs before a function without weights; of one that is called within a block's own code, by its place.
        self._layers_before: dict[str | tuple[str, int], str] = {}
        self._births = {event.storage: event.stack for event in timeline.events if event.kind == ALLOC}
        self._sums = timeline.sums
        self._behind_blocks: set[str] = set()
        self._loss: set[int] = set()
        #: Whether parts of blocks (or of a model without any) were seen to run: graphs that were compiled from them are
        #: not told apart.
        self.tells = False
        self._follow(timeline)
        self._categories, self._made_in = timeline.categories, timeline.modules

    def of(self, storage: int) -> str:
        """The kind of layer that a storage of the timeline belongs to."""
        module = self._made_in.get(storage, "")
        if not module:
            of_loss = storage in self._loss and self._categories[storage] != "input"
            return LOSS if of_loss else OTHER
        return self._within_block(module, storage) if module in self._blocks else self._kind(module)

    def _within_block(self, block: str, storage: int) -> str:
        """The kind of what a block's own code makes: a sum, or a function of what a layer makes."""
        told = self._told(block)
        if told or block in self._attending_blocks:
            return told or OTHER
        return self._layers_before.get((block, self._births[storage])) or OTHER

    # -- what the order of a step tells

    def _follow(self, timeline: Timeline) -> None:
        """Goes through the first forward for what runs when, and through all for what the loss makes."""
        last = 0
        for phase, events in _stretches(timeline):
            if phase == "forward":
                first, last = not last, self._last_in_blocks(timeline, events)
                if first:
                    self._note_order(timeline, events, last)
            for index in events:
                event = timeline.events[index]
                outside = event.kind == ALLOC and event.storage not in timeline.modules
                if outside and last > 0 and (phase == "backward" or index > last):
                    self._loss.add(event.storage)

    def _last_in_blocks(self, timeline: Timeline, events: range) -> int:
        """The last event of a forward that a block makes; of a model without blocks, any module. 0 where none does, as
        in one graph of all."""
        born = (i for i in events if timeline.events[i].kind == ALLOC)
        made = [(i, timeline.modules.get(timeline.events[i].storage, "")) for i in born]
        in_blocks = [i for i, module in made if self._block_of(module)]
        return max(in_blocks or [i for i, module in made if module], default=0)

    def _note_order(self, timeline: Timeline, events: range, last: int) -> None:
        """Which modules run behind the last block, and which layer runs before each function without weights."""
        layer = block = ""
        for index in events:
            event = timeline.events[index]
            path = timeline.modules.get(event.storage, "")
            if event.kind != ALLOC or not path:
                continue
            outer, block = block, self._block_of(path)
            self.tells = self.tells or bool(path not in self._blocks if block else not self._blocks)
            if block != outer and not outer.startswith(f"{block}."):
                layer = ""
            kind = self._told(path)
            if kind in _LAYERS:
                layer = kind
                continue
            place = (path, event.stack) if path in self._blocks else path
            if place not in self._layers_before:
                self._layers_before[place] = RESIDUAL if event.storage in self._sums else layer
                if index > last:
                    self._behind_blocks.add(path)

    # -- what modules are

    def _is_block(self, path: str) -> bool:
        """One of a list or sequence of modules that have parts. What stands in a list that itself is one of a list is
        a part of a block: lists do not run, so the inner one only holds it together."""
        outer, _, last = path.rpartition(".")
        inner_list = _is_number(outer) and isinstance(self._modules[outer], nn.ModuleList)
        return last.isdigit() and self._has_parts(path) and not inner_list

    def _kind(self, path: str) -> str:
        kind = self._told(path)
        if kind:
            return kind
        if path in self._behind_blocks:
            return LOSS
        if path in self._modules and not self._has_layers(path) and not self._has_parts(path):
            return self._layers_before.get(path) or OTHER
        return OTHER

    def _told(self, path: str) -> str:
        """The kind that a module, or one around it, is of by itself; nothing where that depends on what runs when."""
        if path not in self._told_of:
            self._told_of[path] = self._tell(path)
        return self._told_of[path]

    def _tell(self, path: str) -> str:
        around = [each for each in _upwards(path) if each in self._modules]
        if any(self._is_norm(each) for each in around):
            return NORM
        if not self._attention.isdisjoint(around):
            return ATTENTION
        if any(self._is_embedding(each) for each in around):
            return EMBEDDING
        if any(self._is_feed_forward(each) for each in around):
            return MLP
        return CONVOLUTION if any(isinstance(self._modules[each], _ConvNd) for each in around) else ""

    def _is_norm(self, path: str) -> bool:
        module = self._modules[path]
        named = isinstance(module, _NORMS) or _NORM_CLASS.search(type(module).__name__) is not None
        # What is called so and has several layers is a norm and whatever comes behind it.
        return named and not self._holds_attention(path) and len(list(self._layers_in(path))) < 2

    def _is_embedding(self, path: str) -> bool:
        """Tables of vectors, images cut into patches, and what is put around these in front of the blocks."""
        if self._block_of(path) or any(block.startswith(f"{path}.") for block in self._blocks):
            return False
        return any(
            isinstance(module, nn.Embedding) or _cuts_into_patches(module)
            for module in self._modules[path].modules()
        )

    def _is_feed_forward(self, path: str) -> bool:
        """A part of a block that has linear layers, and neither attention nor convolutions."""
        block = path.rpartition(".")[0]
        if block not in self._blocks or block in self._attending_blocks or self._holds_attention(path):
            return False
        inside = list(self._layers_in(path))
        return bool(inside) and not any(isinstance(self._modules[each], _ConvNd) for each in inside)

    def _around(self, path: str) -> str:
        """The outermost module within the same block around one that attends that is still called attention."""
        found = path
        for each in _upwards(path)[1:]:
            if each in self._blocks or each not in self._modules:
                break
            names = each.rpartition(".")[2], type(self._modules[each]).__name__
            if any(map(_ATTENTION_NAME.search, names)) and not self._holds_blocks(each):
                found = each
        return found

    def _holds_attention(self, path: str) -> bool:
        inside = f"{path}."
        return any(f"{each}.".startswith(inside) for each in (*self._attention, *self._attending_blocks))

    def _holds_blocks(self, path: str) -> bool:
        return any(block.startswith(f"{path}.") for block in self._blocks)

    def _has_layers(self, path: str) -> bool:
        return next(self._layers_in(path), None) is not None

    def _layers_in(self, path: str) -> Iterator[str]:
        """Modules in one, or itself, that have a matrix of weights of their own."""
        for name, module in self._modules[path].named_modules():
            if any(p.dim() > 1 for p in module.parameters(recurse=False)):
                yield f"{path}.{name}".rstrip(".")

    def _has_parts(self, path: str) -> bool:
        return next(self._modules[path].children(), None) is not None

    def _block_of(self, path: str) -> str:
        """The innermost block that a module is in, or is; nothing outside of any."""
        return next((each for each in _upwards(path) if each in self._blocks), "")


def _stretches(timeline: Timeline) -> Iterator[tuple[str, range]]:
    """The events from each mark to the next, and what the step does there."""
    marks = [index for index, event in enumerate(timeline.events) if event.kind == MARK]
    for start, stop in pairwise([*marks, len(timeline.events)]):
        yield timeline.marks[timeline.events[start].stack].phase, range(start, stop)


def _upwards(path: str) -> list[str]:
    """The path, and those of the modules around it, without the model's own."""
    pieces = path.split(".") if path else []
    return [".".join(pieces[:n]) for n in range(len(pieces), 0, -1)]


def _is_number(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()


def _cuts_into_patches(module: nn.Module) -> bool:
    """Whether it is a convolution whose windows do not overlap."""
    if not isinstance(module, _ConvNd):
        return False
    window, step = _numbers(module.kernel_size), _numbers(module.stride)
    return window == step and max(window) > 1


def _numbers(value: int | str | Iterable[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(map(int, value))
