"""One replica whose blocks are gathered for use, one after the other: what FSDP2 and FSDP1 have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from batchfit.errors import BadInput
from batchfit.kept import kept
from batchfit.profile import Line, MemoryProfile, ReservedPoint, States, Unit, evaluate
from batchfit.sharding.edit import (
    ITEM_BYTES,
    Activations,
    Amount,
    constant,
    edited,
    fixed,
    longest,
    part,
    raised,
    times,
)
from batchfit.sharding.precision import Elements, mixed_type

ROOT = "(root)"


class Policy(Protocol):
    """What both generations of FSDP can be told. Types are names of ITEM_BYTES, None as traced."""

    @property
    def reshard_after_forward(self) -> bool: ...
    @property
    def gradient_sync(self) -> bool: ...
    @property
    def param_dtype(self) -> str | None: ...
    @property
    def reduce_dtype(self) -> str | None: ...
    @property
    def sharded_dtype(self) -> str | None: ...
    @property
    def shard_size(self) -> int | None: ...


def check_policy(policy: Policy) -> None:
    """Raises BadInput for a type that is not known."""
    for field in ("param_dtype", "reduce_dtype", "sharded_dtype"):
        dtype = getattr(policy, field)
        if dtype is not None and dtype not in ITEM_BYTES:
            raise BadInput(
                field,
                "must be one of {allowed}; you typed {typed}",
                allowed=", ".join(ITEM_BYTES),
                typed=dtype,
            )


def shards_of(policy: Policy, replicas: int) -> int:
    """In how many shards each weight lies. Raises BadInput where groups do not divide the replicas."""
    size = policy.shard_size or replicas
    if replicas % size:
        raise BadInput(
            "shard_size",
            "must divide the {replicas} replicas; you gave {given}",
            replicas=replicas,
            given=size,
        )
    return size


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one block: gathered, its gradients whole, the input of their reduction, and its shards; and its
    gradients as traced."""

    gathered: float
    gradients: float
    reduction: float
    weights_shard: float
    gradients_shard: float
    traced: float


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward and backward, as lines of one GPU and what is different about its gradients."""

    lines: tuple[Line, ...]
    #: Bytes of gradients that earlier micro-batches left.
    accumulated: float
    #: Whether the lines' gradients are this micro-batch's own (in later ones they are those accumulated).
    own: bool
    #: Whether blocks reduce their gradients as they finish.
    reduces: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A line of backward in a unit, with `finished` of the unit's blocks already done."""

    line: Line
    finished: int


class Told:
    """What a profile's lines tell of its blocks, however many replicas share them: where lines run, how far backward
    got there, and what a block keeps. `traced` are the bytes of each unit's gradients as traced, one block's."""

    def __init__(self, profile: MemoryProfile, traced: tuple[int, ...]) -> None:
        self.seq_len = longest(profile)
        units = profile.model.units
        self.blocks = [u for u in units if u.name != ROOT]
        self._traced = {u.name: nbytes for u, nbytes in zip(units, traced, strict=True)}
        # Phases and units are told by being the same object: units may be alike in name.
        self._within: dict[tuple[int, str, int], list[Line]] = {}
        self._points: dict[tuple[int, bool, int], list[Point]] = {}
        first = profile.phases.get("first_micro", ())
        self.saved = {u.name: self._saved_by_block(u, first) for u in self.blocks}

    def within(self, lines: tuple[Line, ...], direction: str, unit: Unit | None) -> list[Line]:
        """Those of a phase's lines that run in a direction in a unit; None for those in none of the blocks."""
        key = id(lines), direction, id(unit)
        if key not in self._within:
            self._within[key] = [
                line for line in lines if line.where.startswith(direction) and self._unit_of(line) is unit
            ]
        return self._within[key]

    def _unit_of(self, line: Line) -> Unit | None:
        _, _, module = line.where.partition(": ")
        return next((u for u in self.blocks if f"{module}.".startswith(f"{u.name}.")), None)

    def points(self, lines: tuple[Line, ...], unit: Unit, own: bool) -> list[Point]:
        """Where backward can be highest in a unit: in its first two blocks and in its last two.

        A profile's lines hold the first block of backward, where most activations are alive, and the last,
        where all gradients are. Memory is linear in between but for what is gathered and reduced, and that
        differs in the first and in the last block only; so the second and the last but one are interpolated.
        """
        key = id(lines), own, id(unit)
        if key not in self._points:
            self._points[key] = self._found(lines, unit, own)
        return self._points[key]

    def _found(self, lines: tuple[Line, ...], unit: Unit, own: bool) -> list[Point]:
        points = self._of_lines(lines, unit, own)
        first = [p for p in points if not p.finished]
        block = self._traced[unit.name] if own else 0
        for n in sorted({1, unit.count - 2} - {p.finished for p in points}):
            if 0 < n < unit.count:
                points += [Point(self._deeper(p.line, n, unit, block), n) for p in first]
        return points

    def _of_lines(self, lines: tuple[Line, ...], unit: Unit, own: bool) -> list[Point]:
        """The profile's lines of backward in a unit, each with the number of blocks that were done."""
        inside = self.within(lines, "backward", unit)
        block = self._traced[unit.name] if own else 0
        gradients = [fixed(line, "gradients", self.seq_len) for line in inside]
        # A little more than the division gives, since norms at a block's edges may be counted on either side.
        return [
            Point(line, min(int((held - min(gradients)) / block + 0.01) if block else 0, unit.count - 1))
            for line, held in zip(inside, gradients, strict=True)
        ]

    def _deeper(self, line: Line, n: int, unit: Unit, block_gradients: float) -> Line:
        """A line of the first block, with n blocks finished: their activations gone, their gradients there."""
        return edited(
            line,
            {"gradients": raised(part(line, "gradients"), n * block_gradients)},
            activations=Activations.of(line).plus(self.saved[unit.name], -n),
        )

    def _saved_by_block(self, unit: Unit, lines: tuple[Line, ...]) -> Activations:
        """Activations that each of the unit's blocks keeps for backward: what the first has more than the last.

        Nothing where the profile's lines do not tell, as where no weight of the blocks is trained.
        """
        points = self._of_lines(lines, unit, own=True)
        first = [p.line for p in points if p.finished == 0]
        last = [p.line for p in points if p.finished == unit.count - 1]
        if not first or not last or unit.count < 2:
            return Activations()
        top, bottom = max(first, key=self.steepness), max(last, key=self.steepness)
        apart = Activations.of(top).plus(Activations.of(bottom), -1)
        return apart.times(1 / (unit.count - 1))

    def steepness(self, line: Line) -> float:
        """Bytes that one more sample adds, at the longest length."""
        return evaluate(line.per_sample, self.seq_len)


#: What lines tell is kept of a few dozen models: each number of replicas asks for it again.
@kept(256)
def told(profile: MemoryProfile, traced: tuple[int, ...]) -> Told:
    """What a profile's lines tell of its blocks."""
    return Told(profile, traced)


class BlockReplica(ABC):
    """One replica's lines. Blocks are alike within a unit, and a line over them is told by how far it got."""

    def __init__(self, policy: Policy, profile: MemoryProfile, g: int) -> None:
        self.policy, self.base, self.g = policy, profile, g
        self.seq_len = longest(profile)
        self.elements = Elements.of(profile)
        units = profile.model.units
        self.blocks = [u for u in units if u.name != ROOT]
        self.sizes = {u.name: self._sizes(u) for u in units}
        self.root = self.sizes.get(ROOT, Sizes(0, 0, 0, 0, 0, 0))
        # The block that is last in forward order, and so the first in backward.
        self.last = self.sizes[self.blocks[-1].name] if self.blocks else Sizes(0, 0, 0, 0, 0, 0)
        self.weights = self._all("weights_shard")
        self.gradients = self._all("gradients_shard")
        self.optimizer_factor = self._optimizer_factor()
        traced = self._all("traced")
        self.gradients_factor = self._all("gradients") / traced if traced else 1.0
        self.told = told(profile, tuple(self._with_gradients(unit)[1] for unit in units))
        self.saved = self.told.saved
        #: Of each line made, in order, the bytes in pools of other streams.
        self._elsewhere: list[float] = []

    def _sizes(self, unit: Unit) -> Sizes:
        policy, g = self.policy, self.g
        compute, mixed = mixed_type(self.base)
        param = ITEM_BYTES.get(policy.param_dtype or "", compute if mixed else 0)
        elements, traced = self._with_gradients(unit)
        gradients = elements * param or traced
        item = ITEM_BYTES.get(policy.sharded_dtype or "", 0)
        return Sizes(
            gathered=unit.trainable_parameters * param + self._frozen(unit, param)
            if param
            else unit.weights_bytes,
            gradients=gradients,
            reduction=elements * ITEM_BYTES.get(policy.reduce_dtype or "", 0) or gradients,
            weights_shard=(
                (unit.trainable_parameters * item or unit.trainable_weights_bytes) + self._frozen(unit, 0)
            )
            / g,
            gradients_shard=(elements * item or traced) / g,
            traced=traced,
        )

    def _frozen(self, unit: Unit, item: int) -> int:
        """Bytes of a block's frozen weights at so many an element (0: as traced); in fewer than 16 bits as traced."""
        count = unit.parameters - unit.trainable_parameters
        nbytes = unit.weights_bytes - unit.trainable_weights_bytes
        return count * item if item and nbytes >= 2 * count else nbytes

    def _with_gradients(self, unit: Unit) -> tuple[int, int]:
        """How many weights of a block get a gradient, and the bytes of these gradients as traced."""
        return unit.trainable_parameters, unit.trainable_weights_bytes

    def _optimizer_factor(self) -> float:
        """What the traced optimizer state is multiplied by: a shard of it, in the type of the shards."""
        units = self.base.model.units
        trained = sum(u.count * u.trainable_parameters for u in units)
        traced = sum(u.count * u.trainable_weights_bytes for u in units)
        item = ITEM_BYTES.get(self.policy.sharded_dtype or "", 0)
        return (trained * item or traced) / traced / self.g if traced else 1 / self.g

    def _all(self, field: str) -> float:
        return sum(u.count * float(getattr(self.sizes[u.name], field)) for u in self.base.model.units)

    # -- the profile

    def profile(self) -> MemoryProfile:
        base = self.base
        phases = self._phases()
        states = States(
            weights_bytes=round(self.weights),
            gradients_bytes=round(self.gradients),
            optimizer_bytes=round(base.states.optimizer_bytes * self.optimizer_factor),
            buffers_bytes=base.states.buffers_bytes,
        )
        return replace(base, phases=phases, states=states, reserved=self._reserved(phases))

    def _phases(self) -> dict[str, tuple[Line, ...]]:
        base = self.base
        self._elsewhere.clear()
        phases = {"first_micro": self._micro(self._first())}
        if "later_micro" in base.phases:
            phases["later_micro"] = self._micro(self._later())
        if "optimizer_step" in base.phases:
            phases["optimizer_step"] = tuple(
                self._line(line, gradients=constant(self.gradients), elsewhere=self.gradients)
                for line in base.phases["optimizer_step"]
            )
        return phases

    def _reserved(self, phases: dict[str, tuple[Line, ...]]) -> tuple[ReservedPoint, ...]:
        """What the allocator reserves: where other streams have pools of their own, their highest and that of the
        default stream together, whenever each of them is, and in the default stream as much beyond what is allocated
        as on one GPU."""
        pools = self._other_streams()
        if pools is None:
            return self.base.reserved
        highest = _Highest(phases, self._elsewhere, self.seq_len)
        points = []
        for point in self.base.reserved:
            whole, default = highest.at(point)
            reserved = round(default * point.reserved_bytes / point.allocated_bytes + pools)
            points.append(replace(point, allocated_bytes=round(whole), reserved_bytes=reserved))
        return tuple(points)

    def _other_streams(self) -> float | None:
        """Bytes of the pools of streams beside the default one, each at its highest; None where all is in one pool."""
        return None

    def _first(self) -> Pass:
        return Pass(self.base.phases.get("first_micro", ()), accumulated=0, own=True, reduces=True)

    def _later(self) -> Pass:
        first = self._first().lines
        if self.policy.gradient_sync:
            return Pass(first, accumulated=self.gradients, own=True, reduces=True)
        whole, kept = self._all("gradients"), self._all("reduction")
        if kept == whole:
            # Each new gradient is added to the one that is there, as on one GPU.
            return Pass(self.base.phases["later_micro"], accumulated=whole, own=False, reduces=False)
        # They are kept in another type, so a block's own are whole beside them.
        return Pass(first, accumulated=kept, own=True, reduces=False)

    def _micro(self, run: Pass) -> tuple[Line, ...]:
        return (*self._forward(run), *self._backward(run))

    def _line(
        self,
        line: Line,
        *,
        gradients: Amount,
        gathered: float = 0,
        communication: float = 0,
        activations: Activations | None = None,
        where: str | None = None,
        elsewhere: float = 0,
    ) -> Line:
        """`line` on a replica, beside its shards of weights and optimizer state. `elsewhere` is how much of all this
        lies in pools of other streams."""
        self._elsewhere.append(elsewhere)
        return edited(
            line,
            {
                "weights": constant(self.weights + gathered),
                "gradients": gradients,
                "optimizer": times(part(line, "optimizer"), self.optimizer_factor),
                "buffers": raised(self.elements.without_cast_copies(line), communication),
            },
            where,
            activations,
        )

    def _within(self, run: Pass, direction: str, unit: Unit | None) -> list[Line]:
        """The lines of a direction that run in a unit; None for those in none of the blocks."""
        return self.told.within(run.lines, direction, unit)

    # -- what each generation does in its own way

    @abstractmethod
    def _forward(self, run: Pass) -> Iterator[Line]:
        """The lines of forward."""

    @abstractmethod
    def _backward(self, run: Pass) -> Iterator[Line]:
        """The lines of backward."""

    def _points(self, unit: Unit, run: Pass) -> list[Point]:
        """Where backward can be highest in a unit."""
        return self.told.points(run.lines, unit, run.own)

    # -- small helpers

    def _units(self) -> tuple[Unit, ...]:
        return self.base.model.units

    def _traced(self, units: Iterable[Unit]) -> float:
        """Bytes of these units' gradients as traced."""
        return sum(u.count * self.sizes[u.name].traced for u in units)

    def _fixed(self, amount: Amount) -> float:
        return evaluate(amount[0], self.seq_len)

    def _whole(self, traced: Amount) -> Amount:
        """Gradients in the type they are computed in; none where the traced ones were all finished."""
        return times(traced, self.gradients_factor) if self._fixed(traced) > 0 else constant(0)


class _Highest:
    """The highest of a replica's lines: of all that is there, and of what is in the default stream."""

    def __init__(
        self, phases: dict[str, tuple[Line, ...]], elsewhere: list[float], seq_len: int | None
    ) -> None:
        """`elsewhere` has each line's bytes in other streams, in the lines' order; `seq_len` is the length of points
        that say none."""
        self._seq_len = seq_len
        each = ((phase, line) for phase, lines in phases.items() for line in lines)
        self._lines = [
            (phase == "later_micro", line, nbytes)
            for (phase, line), nbytes in zip(each, elsewhere, strict=True)
        ]
        self._known: dict[int | None, list[tuple[bool, float, float, float]]] = {}

    def at(self, point: ReservedPoint) -> tuple[float, float]:
        """Bytes at a point."""
        tokens = self._seq_len if point.seq_len is None else point.seq_len
        lines = self._known.get(tokens)
        if lines is None:
            lines = self._known[tokens] = [
                (later, evaluate(line.constant, tokens), evaluate(line.per_sample, tokens), nbytes)
                for later, line, nbytes in self._lines
            ]
        b, accumulates = point.micro_batch, point.accumulation_steps > 1
        found = [
            (c + b * slope, c + b * slope - n) for later, c, slope, n in lines if accumulates or not later
        ]
        return max(whole for whole, _ in found), max(default for _, default in found)
