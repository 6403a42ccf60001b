"""Which blocks of a model are alike, so that a few of them can stand for all."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

#: Layers that repeat in a pattern (a global attention after five local ones) repeat after so many at most.
LONGEST_PERIOD = 8

#: Attributes by which a block knows its place: they are told apart and mean nothing else.
_PLACE = re.compile(r"(idx|index|_id|number|^layer|^block|^depth)$")

#: What `nn.Module` keeps for itself.
_OWN = frozenset(nn.Module().__dict__)

_SIMPLE = (int, str, bool, type(None), torch.dtype)


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks in a row that repeat: `copies` times `period` blocks of the list at `path`, from the block `start` on."""

    path: str
    start: int
    period: int
    copies: int

    def dropped(self, copies: int) -> range:
        """The blocks left out where only the first `copies` are kept."""
        stop = self.start + self.period * self.copies
        return range(self.start + self.period * copies, stop)


#: How many copies of each run are kept.
Depths = Mapping[Run, int]


def runs_of(model: nn.Module, at_least: int) -> list[Run]:
    """The model's runs of at least so many copies, in lists and sequences that are not inside of one another.

    Blocks are alike where their classes, settings and the shapes of their parameters are, down to the last of their
    parts. A block that shares parameters with another of its list is like none.
    """
    uses = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    found: list[Run] = []

    def visit(module: nn.Module, path: str) -> None:
        if type(module) in (nn.ModuleList, nn.Sequential) and len(module._modules) >= at_least:
            runs = list(_runs(path, _fingerprints(module._modules.values(), uses), at_least))
            if runs:
                found.extend(runs)
                return
        for name, child in module.named_children():
            visit(child, f"{path}.{name}" if path else name)

    visit(model, "")
    return found


def _runs(path: str, blocks: Sequence[object], at_least: int) -> Iterator[Run]:
    """The runs of a list, by the one with most blocks beyond its first two copies, then those on either side of it."""

    def search(low: int, high: int) -> Iterator[Run]:
        best: tuple[int, Run] | None = None
        for period in range(1, min(LONGEST_PERIOD, (high - low) // at_least) + 1):
            for start, length in _stretches(blocks, low, high, period):
                run = Run(path, start, period, length // period)
                further = period * (run.copies - 2)
                if run.copies >= at_least and (best is None or further > best[0]):
                    best = further, run
        if best is None:
            return
        run = best[1]
        yield from search(low, run.start)
        yield run
        yield from search(run.start + run.period * run.copies, high)

    return search(0, len(blocks))


def _stretches(blocks: Sequence[object], low: int, high: int, period: int) -> Iterator[tuple[int, int]]:
    """Where blocks equal those `period` further on: (start, length) of each whole stretch."""
    start = low
    for index in range(low, high):
        if index + period >= high or blocks[index] != blocks[index + period]:
            if index > start:
                yield start, index - start + period
            start = index + 1


def _fingerprints(blocks: Iterable[nn.Module | None], uses: Counter[int]) -> list[object]:
    """One object a block, equal for blocks that are alike."""
    seen: set[int] = set()
    numbers: dict[object, int] = {}
    result: list[object] = []
    for block in blocks:
        parameters = set() if block is None else {id(p) for p in block.parameters()}
        if block is None or id(block) in seen or not parameters or parameters & seen:
            result.append(object())
        else:
            key = _fingerprint(block, uses)
            result.append(numbers.setdefault(key, len(numbers)))
        seen |= parameters | {id(block)}
    return result


def _fingerprint(module: nn.Module, uses: Counter[int]) -> tuple[object, ...]:
    return (
        type(module),
        tuple((k, _setting(v)) for k, v in module.__dict__.items() if k not in _OWN and not _PLACE.search(k)),
        tuple((k, _tensor(p, uses)) for k, p in module._parameters.items() if p is not None),
        tuple((k, b.shape, b.dtype) for k, b in module._buffers.items() if b is not None),
        module.training,
        len(module._forward_hooks) + len(module._forward_pre_hooks),
        tuple((k, _fingerprint(c, uses)) for k, c in module._modules.items() if c is not None),
    )


def fingerprint(module: nn.Module) -> tuple[object, ...]:
    """Equal for modules that do the same to their inputs, with weights of the same shapes."""
    return _fingerprint(module, Counter())


def _tensor(parameter: nn.Parameter, uses: Counter[int]) -> tuple[object, ...]:
    shared = id(parameter) if uses[id(parameter)] > 1 else 0
    return parameter.shape, parameter.dtype, parameter.requires_grad, shared


def _setting(value: Any) -> object:
    """What an attribute can change: a rate of dropout matters only in being zero or not."""
    if isinstance(value, float):
        return value != 0
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_setting(item) for item in value)
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def dropped(model: nn.Module, depths: Depths) -> dict[nn.Module, set[int]]:
    """The lists of `model` that are to be shorter, each with the blocks it is to lose."""
    lists: dict[nn.Module, set[int]] = {}
    for run, copies in depths.items():
        lists.setdefault(model.get_submodule(run.path), set()).update(run.dropped(copies))
    return lists


def shorter(whole: nn.Module, lost: Container[int], copied: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """A list or sequence like `whole` without the blocks `lost`, of copies of the others, which move up."""
    kept = [
        (i, name, b) for i, (name, b) in enumerate(whole._modules.items()) if b is not None and i not in lost
    ]
    numbered = all(name.isdigit() for _, name, _ in kept)
    made = copy.copy(whole)
    made._modules = {}
    for place, (was, name, block) in enumerate(kept):
        made._modules[str(place) if numbered else name] = moved = copied(block)
        _renumber(moved, was, place)
    return made


def _renumber(block: nn.Module, was: int, place: int) -> None:
    """Tells a block and its parts their new place, where they know it, counted from 0 or from 1."""
    for module in block.modules() if was != place else ():
        for name, value in module.__dict__.items():
            if type(value) is int and value - was in (0, 1) and _PLACE.search(name):
                module.__dict__[name] = value - was + place


#: Halves of a model that may share a config, whose settings then begin with their names.
_HALVES = ("encoder", "decoder")


def fit_config(config: Any, path: str, blocks: int, lost: Collection[int]) -> None:
    """Makes a config that says how many `blocks` there are at `path`, or what each is, speak of those that are left."""
    others = [half for half in _HALVES if half not in path and any(h in path for h in _HALVES)]
    for name, value in list(vars(config).items()):
        if any(half in name for half in others):
            continue
        if isinstance(value, (list, tuple)) and len(value) == blocks:
            config.__dict__[name] = type(value)(item for i, item in enumerate(value) if i not in lost)
        elif type(value) is int and value == blocks and "layer" in name:
            config.__dict__[name] = blocks - len(lost)
