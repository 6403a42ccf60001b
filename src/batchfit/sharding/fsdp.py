"""Fully sharded data parallel (FSDP2): weights, gradients and optimizer state in shards, units gathered for use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from batchfit.errors import BadInput
from batchfit.profile import Line, MemoryProfile, States, Unit, evaluate
from batchfit.sharding.edit import (
    ITEM_BYTES,
    Amount,
    constant,
    edited,
    longest,
    part,
    plus,
    times,
)
from batchfit.sharding.precision import Elements, mixed_type

ROOT = "(root)"


@dataclass(frozen=True, slots=True)
class FSDP:
    """`torch.distributed.fsdp.fully_shard` on each repeated block of the model, and on the whole.

    With g replicas, one holds 1/g of the weights, of the gradients and of the optimizer state, and beside
    them (P: a block gathered, R: the rest of the model gathered, G: a block's gradients before they are
    reduced):

    - R from the first forward operation to the end of backward (the root is not resharded after forward).
    - In a block's forward 2 P: its parameters, and the buffer they were gathered into, which is held until the
      next block's are copied out. When a block is gathered, 3 P for a moment: its own two and the buffer of
      the block before.
    - In backward 2 P: the block's parameters and the buffer of the one before, gathered ahead. None is
      gathered ahead of the first block.
    - In backward the gradients of the block and of the root so far, G and more, whole; and from the second
      block on the input of the reduce-scatter of the one after, which is held until the next reduction.
    - At the end of backward the root's gradients, whole, and the input of their reduce-scatter.

    Without `reshard_after_forward` blocks stay gathered from forward to their backward. With
    `gradient_sync=False` (`set_requires_gradient_sync(False)` but for the last micro-batch, FSDP1's
    `no_sync`), gradients of earlier micro-batches are kept whole.

    `param_dtype` is the type that is gathered and computed in, `reduce_dtype` that of the reduction
    (`MixedPrecisionPolicy`), `sharded_dtype` that of the shards, of their gradients and of the optimizer
    state; by default all as traced. In a profile of mixed precision `param_dtype` is its 16-bit type.
    `shard_size` shards over that many replicas and replicates over the rest (HSDP).

    Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py, PyTorch 2.13;
    traces of `fully_shard` models agree within rounding (see the tests).
    """

    reshard_after_forward: bool = True
    gradient_sync: bool = True
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    sharded_dtype: str | None = None
    shard_size: int | None = None

    name = "fsdp"

    def __post_init__(self) -> None:
        for field in ("param_dtype", "reduce_dtype", "sharded_dtype"):
            dtype = getattr(self, field)
            if dtype is not None and dtype not in ITEM_BYTES:
                raise BadInput(
                    field,
                    "must be one of {allowed}; you typed {typed}",
                    allowed=", ".join(ITEM_BYTES),
                    typed=dtype,
                )

    def apply(self, profile: MemoryProfile, replicas: int) -> MemoryProfile:
        """The profile of one of `replicas`."""
        size = self.shard_size or replicas
        if replicas % size:
            raise BadInput(
                "shard_size",
                "must divide the {replicas} replicas; you gave {given}",
                replicas=replicas,
                given=size,
            )
        return _Shard(self, profile, size).profile()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of one block: gathered, its gradients whole, the input of their reduction, and its shards."""

    gathered: float
    gradients: float
    reduction: float
    weights_shard: float
    gradients_shard: float


@dataclass(frozen=True, slots=True)
class _Pass:
    """A forward and backward, as lines of one GPU and what is different about its gradients."""

    lines: tuple[Line, ...]
    #: Bytes of gradients that earlier micro-batches left.
    accumulated: float
    #: Whether the lines' gradients are this micro-batch's own (in later ones they are those accumulated).
    own: bool
    #: Whether blocks reduce their gradients as they finish.
    reduces: bool


@dataclass(frozen=True, slots=True)
class _Point:
    """A line of backward in a unit, with `finished` of the unit's blocks already done."""

    line: Line
    finished: int


class _Shard:
    """One replica's lines. Blocks are alike within a unit, and a line over them is told by how far it got."""

    def __init__(self, fsdp: FSDP, profile: MemoryProfile, g: int) -> None:
        self.fsdp, self.base, self.g = fsdp, profile, g
        self.seq_len = longest(profile)
        self.elements = Elements.of(profile)
        units = profile.model.units
        self.blocks = [u for u in units if u.name != ROOT]
        self.sizes = {u.name: self._sizes(u) for u in units}
        self.root = self.sizes.get(ROOT, _Sizes(0, 0, 0, 0, 0))
        # The block that is last in forward order, and so the first in backward.
        self.last = self.sizes[self.blocks[-1].name] if self.blocks else _Sizes(0, 0, 0, 0, 0)
        self.weights = self._all("weights_shard")
        self.gradients = self._all("gradients_shard")
        traced = sum(u.count * u.trainable_weights_bytes for u in units)
        self.optimizer_factor = self.gradients / traced if traced else 1 / g
        self.gradients_factor = self._all("gradients") / traced if traced else 1.0
        self.saved = {u.name: self._saved_by_block(u) for u in self.blocks}

    def _sizes(self, unit: Unit) -> _Sizes:
        fsdp, g = self.fsdp, self.g
        compute, mixed = mixed_type(self.base)
        param = ITEM_BYTES.get(fsdp.param_dtype or "", compute if mixed else 0)
        gradients = unit.trainable_parameters * param or unit.trainable_weights_bytes
        reduction = unit.trainable_parameters * ITEM_BYTES.get(fsdp.reduce_dtype or "", 0) or gradients
        item = ITEM_BYTES.get(fsdp.sharded_dtype or "", 0)
        return _Sizes(
            gathered=unit.parameters * param or unit.weights_bytes,
            gradients=gradients,
            reduction=reduction,
            weights_shard=(unit.parameters * item or unit.weights_bytes) / g,
            gradients_shard=(unit.trainable_parameters * item or unit.trainable_weights_bytes) / g,
        )

    def _all(self, field: str) -> float:
        return sum(u.count * float(getattr(self.sizes[u.name], field)) for u in self.base.model.units)

    # -- the profile

    def profile(self) -> MemoryProfile:
        base = self.base
        phases = {"first_micro": self._micro(self._first())}
        if "later_micro" in base.phases:
            phases["later_micro"] = self._micro(self._later())
        if "optimizer_step" in base.phases:
            phases["optimizer_step"] = tuple(
                self._line(line, gradients=constant(self.gradients)) for line in base.phases["optimizer_step"]
            )
        states = States(
            weights_bytes=round(self.weights),
            gradients_bytes=round(self.gradients),
            optimizer_bytes=round(base.states.optimizer_bytes * self.optimizer_factor),
            buffers_bytes=base.states.buffers_bytes,
        )
        return replace(base, phases=phases, states=states)

    def _first(self) -> _Pass:
        return _Pass(self.base.phases.get("first_micro", ()), accumulated=0, own=True, reduces=True)

    def _later(self) -> _Pass:
        first = self._first().lines
        if self.fsdp.gradient_sync:
            return _Pass(first, accumulated=self.gradients, own=True, reduces=True)
        whole, kept = self._all("gradients"), self._all("reduction")
        if kept == whole:
            # Each new gradient is added to the one that is there, as on one GPU.
            return _Pass(self.base.phases["later_micro"], accumulated=whole, own=False, reduces=False)
        # They are kept in another type, so a block's own are whole beside them.
        return _Pass(first, accumulated=kept, own=True, reduces=False)

    def _micro(self, run: _Pass) -> tuple[Line, ...]:
        made = [*self._forward(run), *self._backward(run)]
        if run.reduces and run.lines:
            made.append(self._root_reduction(run))
        return tuple(made)

    def _line(
        self,
        line: Line,
        *,
        gradients: Amount,
        gathered: float = 0,
        communication: float = 0,
        activations: Amount | None = None,
        where: str | None = None,
    ) -> Line:
        """`line` on a replica, beside its shards of weights and optimizer state."""
        return edited(
            line,
            {
                "weights": constant(self.weights + gathered),
                "gradients": gradients,
                "optimizer": times(part(line, "optimizer"), self.optimizer_factor),
                "buffers": plus(self.elements.without_cast_copies(line), constant(communication)),
                "activations": part(line, "activations") if activations is None else activations,
            },
            where,
        )

    def _within(self, run: _Pass, direction: str, unit: Unit | None) -> list[Line]:
        """The lines of a direction that run in a unit; None for those in none of the blocks."""
        return [
            line for line in run.lines if line.where.startswith(direction) and self._unit_of(line) is unit
        ]

    def _unit_of(self, line: Line) -> Unit | None:
        _, _, module = line.where.partition(": ")
        return next((u for u in self.blocks if f"{module}.".startswith(f"{u.name}.")), None)

    # -- forward

    def _forward(self, run: _Pass) -> Iterator[Line]:
        gradients = constant(run.accumulated)
        stay = 0.0
        for unit in self.blocks:
            size = self.sizes[unit.name].gathered
            before = stay
            if not self.fsdp.reshard_after_forward:
                stay += unit.count * size
            gathered = self.root.gathered + max(stay, before + size)
            inside = self._within(run, "forward", unit)
            for line in inside:
                yield self._line(line, gradients=gradients, gathered=gathered, communication=size)
            if inside and (unit.count > 1 or unit is not self.blocks[0]):
                top = max(inside, key=self._steepness)
                yield self._line(
                    top,
                    gradients=gradients,
                    gathered=gathered,
                    communication=2 * size,
                    activations=plus(part(top, "activations"), times(self.saved[unit.name], -1)),
                    where=f"forward: all-gather of {unit.name}",
                )
        for line in self._within(run, "forward", None):
            yield self._line(
                line,
                gradients=gradients,
                gathered=self.root.gathered + stay,
                communication=self.last.gathered,
            )

    # -- backward

    def _backward(self, run: _Pass) -> Iterator[Line]:
        for line in self._within(run, "backward", None):
            yield self._backward_in_root(line, run)
        for unit in self.blocks:
            for point in self._points(unit, run):
                yield self._backward_in_block(point, unit, run)

    def _backward_in_root(self, line: Line, run: _Pass) -> Line:
        """Before the blocks' backward, the last block is gathered already; after it, only the root is."""
        gradients = part(line, "gradients")
        over_blocks = self.blocks and self._fixed(gradients) > self._traced(
            [u for u in self._units() if u.name == ROOT]
        )
        if run.own and over_blocks:
            finished = 0 if run.accumulated else self.gradients - self.root.gradients_shard
            own = self._whole(plus(gradients, constant(-self._traced(self.blocks))))
            return self._line(
                line,
                gradients=plus(own, constant(run.accumulated + finished)),
                gathered=self.root.gathered,
                communication=self.sizes[self.blocks[0].name].reduction if run.reduces else 0,
            )
        resharded = self.fsdp.reshard_after_forward
        stay = 0.0 if resharded else sum(u.count * self.sizes[u.name].gathered for u in self.blocks)
        return self._line(
            line,
            gradients=plus(self._whole(gradients) if run.own else constant(0), constant(run.accumulated)),
            gathered=self.root.gathered + stay,
            communication=self.last.gathered if resharded else 0,
        )

    def _backward_in_block(self, point: _Point, unit: Unit, run: _Pass) -> Line:
        sizes, n = self.sizes[unit.name], point.finished
        index = self.blocks.index(unit)
        earlier, later = self.blocks[:index], self.blocks[index + 1 :]
        finished = n * sizes.gradients_shard + sum(
            u.count * self.sizes[u.name].gradients_shard for u in later
        )
        gradients = run.accumulated
        if run.reduces:
            gradients += 0 if run.accumulated else finished
            reducing = sizes.reduction if n else self.sizes[later[0].name].reduction if later else 0.0
        else:
            # In the micro-batch that is reduced after all, the block before has its shard already, while the
            # input of its reduction takes the place of what it had accumulated.
            gradients += sizes.gradients_shard if n else 0
            reducing = 0.0
        if self.fsdp.reshard_after_forward:
            gathered = sizes.gathered
            ahead = sizes.gathered if n < unit.count - 1 else 0.0
            if earlier and n == unit.count - 1:
                ahead = self.sizes[earlier[-1].name].gathered
        else:
            gathered = (unit.count - n) * sizes.gathered
            gathered += sum(u.count * self.sizes[u.name].gathered for u in earlier)
            ahead = 0.0
        own = constant(0)
        if run.own:
            done = n * unit.trainable_weights_bytes + self._traced(later)
            own = self._whole(plus(part(point.line, "gradients"), constant(-done)))
        return self._line(
            point.line,
            gradients=plus(own, constant(gradients)),
            gathered=self.root.gathered + gathered,
            communication=ahead + reducing,
        )

    def _points(self, unit: Unit, run: _Pass) -> list[_Point]:
        """Where backward can be highest in a unit: in its first two blocks and in its last two.

        A profile's lines hold the first block of backward, where most activations are alive, and the last,
        where all gradients are. Memory is linear in between but for what is gathered and reduced, and that
        differs in the first and in the last block only; so the second and the last but one are interpolated.
        """
        points = self._told(unit, run)
        first = [p for p in points if not p.finished]
        block = unit.trainable_weights_bytes if run.own else 0
        for n in sorted({1, unit.count - 2} - {p.finished for p in points}):
            if 0 < n < unit.count:
                points += [_Point(self._deeper(p.line, n, unit, block), n) for p in first]
        return points

    def _told(self, unit: Unit, run: _Pass) -> list[_Point]:
        """The profile's lines of backward in a unit, each with the number of blocks that were done."""
        inside = self._within(run, "backward", unit)
        block = unit.trainable_weights_bytes if run.own else 0
        gradients = [self._fixed(part(line, "gradients")) for line in inside]
        # A little more than the division gives, since norms at a block's edges may be counted on either side.
        return [
            _Point(line, min(int((held - min(gradients)) / block + 0.01) if block else 0, unit.count - 1))
            for line, held in zip(inside, gradients, strict=True)
        ]

    def _deeper(self, line: Line, n: int, unit: Unit, block_gradients: int) -> Line:
        """A line of the first block, with n blocks finished: their activations gone, their gradients there."""
        return edited(
            line,
            {
                "activations": plus(part(line, "activations"), times(self.saved[unit.name], -n)),
                "gradients": plus(part(line, "gradients"), constant(n * block_gradients)),
            },
        )

    def _saved_by_block(self, unit: Unit) -> Amount:
        """Activations that each of the unit's blocks keeps for backward: what the first has more than the last.

        Nothing where the profile's lines do not tell, as where no weight of the blocks is trained.
        """
        points = self._told(unit, self._first())
        first = [p.line for p in points if p.finished == 0]
        last = [p.line for p in points if p.finished == unit.count - 1]
        if not first or not last or unit.count < 2:
            return (0,), (0,)
        top, bottom = max(first, key=self._steepness), max(last, key=self._steepness)
        apart = plus(part(top, "activations"), times(part(bottom, "activations"), -1))
        return times(apart, 1 / (unit.count - 1))

    def _root_reduction(self, run: _Pass) -> Line:
        """The end of backward: the root's gradients and the input of their reduction, both whole."""
        shards = run.accumulated or self.gradients - self.root.gradients_shard
        return self._line(
            run.lines[0],
            gradients=constant(self.root.gradients + shards),
            communication=self.root.reduction,
            activations=((0,), (0,)),
            where=f"backward: reduce-scatter of {ROOT}",
        )

    # -- small helpers

    def _units(self) -> tuple[Unit, ...]:
        return self.base.model.units

    def _traced(self, units: Iterable[Unit]) -> int:
        """Bytes of these units' gradients as traced."""
        return sum(u.count * u.trainable_weights_bytes for u in units)

    def _steepness(self, line: Line) -> float:
        return evaluate(line.per_sample, self.seq_len)

    def _fixed(self, amount: Amount) -> float:
        return evaluate(amount[0], self.seq_len)

    def _whole(self, traced: Amount) -> Amount:
        """Gradients in the type they are computed in; none where the traced ones were all finished."""
        return times(traced, self.gradients_factor) if self._fixed(traced) > 0 else constant(0)
