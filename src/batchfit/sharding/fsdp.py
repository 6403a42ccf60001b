"""Fully sharded data parallel (FSDP2): weights, gradients and optimizer state in shards, units gathered for use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batchfit.profile import Line, MemoryProfile, Unit
from batchfit.sharding.edit import Activations, constant, part, raised
from batchfit.sharding.replica import ROOT, BlockReplica, Pass, Point, check_policy, shards_of


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
    (`MixedPrecisionPolicy`), `sharded_dtype` that of the shards of trained weights, of their gradients and of
    the optimizer state; by default all as traced. In a profile of mixed precision `param_dtype` is its 16-bit
    type.
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
        check_policy(self)

    def apply(self, profile: MemoryProfile, replicas: int) -> MemoryProfile:
        """The profile of one of `replicas`."""
        return _Replica(self, profile, shards_of(self, replicas)).profile()


class _Replica(BlockReplica):
    """One replica's lines under FSDP2."""

    # -- forward

    def _forward(self, run: Pass) -> Iterator[Line]:
        gradients = constant(run.accumulated)
        reduced = self._reduced(run)
        stay = 0.0
        for unit in self.blocks:
            size = self.sizes[unit.name].gathered
            before = stay
            if not self.policy.reshard_after_forward:
                stay += unit.count * size
            gathered = self.root.gathered + max(stay, before + size)
            inside = self._within(run, "forward", unit)
            for line in inside:
                yield self._line(
                    line,
                    gradients=gradients,
                    gathered=gathered,
                    communication=size,
                    elsewhere=size + reduced,
                )
            if inside and (unit.count > 1 or unit is not self.blocks[0]):
                top = max(inside, key=self.told.steepness)
                yield self._line(
                    top,
                    gradients=gradients,
                    gathered=gathered,
                    communication=2 * size,
                    activations=Activations.of(top).plus(self.saved[unit.name], -1),
                    where=f"forward: all-gather of {unit.name}",
                    elsewhere=2 * size + reduced,
                )
        for line in self._within(run, "forward", None):
            yield self._line(
                line,
                gradients=gradients,
                gathered=self.root.gathered + stay,
                communication=self.last.gathered,
                elsewhere=self.last.gathered + reduced,
            )

    # -- backward

    def _backward(self, run: Pass) -> Iterator[Line]:
        for line in self._within(run, "backward", None):
            yield self._backward_in_root(line, run)
        for unit in self.blocks:
            for point in self._points(unit, run):
                yield self._backward_in_block(point, unit, run)
        if run.reduces and run.lines:
            yield self._root_reduction(run)

    def _backward_in_root(self, line: Line, run: Pass) -> Line:
        """Before the blocks' backward, the last block is gathered already; after it, only the root is."""
        gradients = part(line, "gradients")
        over_blocks = self.blocks and self._fixed(gradients) > self._traced(
            [u for u in self._units() if u.name == ROOT]
        )
        if run.own and over_blocks:
            finished = 0 if run.accumulated else self.gradients - self.root.gradients_shard
            own = self._whole(raised(gradients, -self._traced(self.blocks)))
            return self._line(
                line,
                gradients=raised(own, run.accumulated + finished),
                gathered=self.root.gathered,
                communication=self.sizes[self.blocks[0].name].reduction if run.reduces else 0,
                elsewhere=finished + self._reduced(run),
            )
        resharded = self.policy.reshard_after_forward
        stay = 0.0 if resharded else sum(u.count * self.sizes[u.name].gathered for u in self.blocks)
        return self._line(
            line,
            gradients=raised(self._whole(gradients) if run.own else constant(0), run.accumulated),
            gathered=self.root.gathered + stay,
            communication=self.last.gathered if resharded else 0,
            elsewhere=(self.last.gathered if resharded else 0) + self._reduced(run),
        )

    def _backward_in_block(self, point: Point, unit: Unit, run: Pass) -> Line:
        sizes, n = self.sizes[unit.name], point.finished
        index = self.blocks.index(unit)
        earlier, later = self.blocks[:index], self.blocks[index + 1 :]
        finished = n * sizes.gradients_shard + sum(
            u.count * self.sizes[u.name].gradients_shard for u in later
        )
        gradients = run.accumulated
        shards = self._reduced(run)
        if run.reduces:
            gradients += 0 if run.accumulated else finished
            shards += 0 if run.accumulated else finished
            reducing = sizes.reduction if n else self.sizes[later[0].name].reduction if later else 0.0
        else:
            # In the micro-batch that is reduced after all, the block before has its shard already, while the
            # input of its reduction takes the place of what it had accumulated.
            gradients += sizes.gradients_shard if n else 0
            reducing = 0.0
        if self.policy.reshard_after_forward:
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
            done = n * sizes.traced + self._traced(later)
            own = self._whole(raised(part(point.line, "gradients"), -done))
        return self._line(
            point.line,
            gradients=raised(own, gradients),
            gathered=self.root.gathered + gathered,
            communication=ahead + reducing,
            elsewhere=ahead + shards,
        )

    def _root_reduction(self, run: Pass) -> Line:
        """The end of backward: the root's gradients and the input of their reduction, both whole."""
        shards = run.accumulated or self.gradients - self.root.gradients_shard
        return self._line(
            run.lines[0],
            gradients=constant(self.root.gradients + shards),
            communication=self.root.reduction,
            activations=Activations(),
            where=f"backward: reduce-scatter of {ROOT}",
            elsewhere=shards,
        )

    # -- streams

    def _reduced(self, run: Pass) -> float:
        """Shards of gradients that earlier micro-batches left, which the stream of reductions allocated."""
        return run.accumulated if self.policy.gradient_sync else 0.0

    def _other_streams(self) -> float:
        """The stream that gathers, highest when the first block is gathered while what the root was gathered into is
        still held, both from shards cast to the type that is gathered; and the stream that reduces, which allocates the
        shards of all gradients (`foreach_all_gather` and `foreach_reduce` in _fsdp_collectives.py)."""
        first = self.sizes[self.blocks[0].name].gathered if self.blocks else 0.0
        cast = 1 / self.g if self.policy.param_dtype != self.policy.sharded_dtype else 0.0
        return (self.root.gathered + first) * (1 + cast) + self.gradients
