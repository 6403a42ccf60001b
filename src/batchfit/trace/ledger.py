"""The ledger: which lines of a model's source hold the activation memory, where activations bind."""

from __future__ import annotations

import inspect
import linecache
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from torch import nn

from batchfit.profile import LedgerEntry
from batchfit.trace.kinds import Kinds
from batchfit.trace.phases import folded
from batchfit.trace.surface import Surface
from batchfit.trace.timeline import ALLOC, MARK, Frame, Timeline

#: What is made in backward: gradients on their way, and what checkpointing computes again.
IN_BACKWARD = "in backward"
INPUTS = "inputs"

#: Parts of a profile's lines that the ledger tells apart by line of code.
_TOLD = frozenset(("activations", "input"))


@dataclass(slots=True)
class _Sum:
    """What a line holds: bytes, and how many storages of each module that runs it."""

    per_sample: int = 0
    fixed: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    storages: defaultdict[str, defaultdict[tuple[object, ...], int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    @property
    def kind(self) -> str:
        """The kind of most of it."""
        return self.kinds.most_common(1)[0][0]

    @property
    def count(self) -> int:
        """How many places of the model run the line: a place may make several storages there."""
        return sum(max(kinds.values()) for kinds in self.storages.values())


def ledger_of(surface: Surface, model: nn.Module) -> tuple[LedgerEntry, ...]:
    """What is alive where activations bind, line by line of the model's code, most bytes per sample first.

    The bytes per sample sum up to the profile's activation memory per sample; those of a range of sequence lengths
    are at the longest. Parameters, gradients and optimizer state are no part of it. A storage counts once, with the
    line that made it, however many tensors share it.
    """
    point = surface.steepest()
    if point is None:
        return ()
    timeline = surface.timeline
    births = _Births(timeline)
    owners, kinds = Owners(model), Kinds(model, timeline)
    sums: defaultdict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    for index, count in enumerate(surface.counts(point)):
        event = timeline.events[index]
        if not count or event.kind == MARK:
            continue
        per_sample, fixed = surface.size_of(index)
        category = timeline.categories[event.storage]
        if category not in _TOLD and not per_sample:
            continue
        stack, in_backward = births.of(event.storage)
        module = timeline.modules.get(event.storage, "")
        owner, frame = owners.line(module, timeline.stacks[stack])
        place = INPUTS if category == "input" else IN_BACKWARD if in_backward else ""
        where = f"{frame.file}:{frame.line}" if frame else ""
        code = linecache.getline(frame.file, frame.line).strip() if frame else ""
        entry = sums[where, code, place]
        entry.kinds[place or kinds.of(event.storage)] += count * (per_sample or fixed)
        entry.per_sample += count * per_sample
        entry.fixed += count * fixed
        entry.storages[folded(owner)][stack, folded(module), event.nbytes] += count
    entries = [
        LedgerEntry(where, code, _common(list(s.storages)), s.kind, s.per_sample, s.fixed, s.count)
        for (where, code, _), s in sums.items()
        if s.per_sample or s.fixed
    ]
    return tuple(sorted(entries, key=lambda e: (-e.bytes_per_sample, -e.fixed_bytes, e.where)))


class _Births:
    """Where each storage was born: its stack, and whether in backward."""

    def __init__(self, timeline: Timeline) -> None:
        self._of: dict[int, tuple[int, bool]] = {}
        in_backward = False
        for event in timeline.events:
            if event.kind == MARK:
                in_backward = timeline.marks[event.stack].phase == "backward"
            elif event.kind == ALLOC:
                self._of[event.storage] = event.stack, in_backward

    def of(self, storage: int) -> tuple[int, bool]:
        """The number of the stack, and whether it was in backward."""
        return self._of[storage]


class Owners:
    """Finds, for what a module made, the line of the model's own code and the module whose code that is.

    The frames behind an operation end in whatever library it goes through (an attention interface, an activation
    function). The line that says most is the innermost in the file of the class of a module that runs: the innermost
    module whose class is not PyTorch's own.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._lines: dict[tuple[str, tuple[Frame, ...]], tuple[str, Frame | None]] = {}

    def line(self, module: str, stack: tuple[Frame, ...]) -> tuple[str, Frame | None]:
        """The path of the module, and the frame; None where no code of the person's is behind it."""
        key = module, stack
        if key not in self._lines:
            self._lines[key] = self._line(module, stack)
        return self._lines[key]

    def _line(self, module: str, stack: tuple[Frame, ...]) -> tuple[str, Frame | None]:
        for path in _upwards(module):
            of = self._modules.get(path)
            # What has no parameters (an activation function) is a detail of who calls it.
            file = None if of is None or next(of.parameters(), None) is None else _file_of(type(of))
            frame = next((frame for frame in stack if frame.file == file), None)
            if frame is not None:
                return path, frame
        return module, stack[0] if stack else None


def _upwards(path: str) -> list[str]:
    """The path, those of the modules around it, and the model's own."""
    pieces = path.split(".") if path else []
    return [".".join(pieces[:n]) for n in range(len(pieces), -1, -1)]


def _file_of(kind: type) -> str | None:
    """The file of a class, None where it has none."""
    try:
        return inspect.getfile(kind)
    except (TypeError, OSError):
        return None


def _common(paths: list[str]) -> str:
    """One path, or where several differ, what they share: "model.layers.*" of two norms in it."""
    if len(paths) == 1:
        return paths[0]
    pieces = [path.split(".") for path in paths if path]
    shared = []
    for level in zip(*pieces, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared)
