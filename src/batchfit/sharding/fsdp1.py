"""Fully sharded data parallel of the first generation (FSDP1): each unit's weights flattened into one parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from batchfit.errors import BadInput
from batchfit.profile import Line, MemoryProfile, Unit, evaluate
from batchfit.sharding.edit import Activations, constant, part, raised
from batchfit.sharding.replica import ROOT, BlockReplica, Pass, Point, Sizes, check_policy, shards_of

PREFETCH = ("pre", "post", "none")

#: The setting of a profile whose frozen weights have gradients where they lie beside trained ones.
FLAT = "flat_gradients"


@dataclass(frozen=True, slots=True)
class FSDP1:
    """`torch.distributed.fsdp.FullyShardedDataParallel` around each repeated block of the model, and around the whole.

    A replica of g holds 1/g of every unit's flat parameter, of its gradient and of the optimizer state, and beside
    them (P: a block gathered, R: the rest of the model gathered, G: a block's gradients, whole):

    - R from the first forward operation to the end of backward, P in a block's forward. What is freed while a kernel
      still reads it counts as free at once in `torch.cuda.memory_allocated`, so a block is gone before the next is
      gathered.
    - In backward 2 P: the block and the one before, gathered ahead (`backward_prefetch` "pre"). "post" gathers it
      after the block is freed, "none" when it is needed. Where whole blocks are checkpointed by reentrant
      checkpointing, as transformers' Trainer did by default, nothing is gathered ahead: choose "none".
    - When a block's backward ends, its gradients are concatenated into the flat one: 2 G. The flat one is reduced
      right away, in `reduce_dtype`, and its shard is kept in the type of the shards. At the end of backward the same
      happens to the rest of the model.

    With `gradient_sync=False` (`no_sync` but for the last micro-batch) flat gradients of earlier micro-batches stay
    whole. Without `reshard_after_forward` (SHARD_GRAD_OP) blocks stay gathered from forward to their backward.

    Adapters and frozen weights: PEFT's policy (`fsdp_auto_wrap_policy`, which transformers' Trainer applies by itself)
    makes each adapter layer a unit of its own, and the frozen flat parameters have no gradient. Where both lie in one
    flat parameter (`use_orig_params=True` without that policy), every frozen weight of a unit with a trained one gets
    a gradient: so it is for a profile that was traced with `flat_gradients`.

    With `trained_whole` the trained weights are no part of FSDP (`ignored_modules`): every replica holds them, their
    gradients and their optimizer state whole, in the types they were traced in, and reduces gradients in place.

    `param_dtype`, `reduce_dtype`, `sharded_dtype` and `shard_size` are as in FSDP. Not counted: padding to a multiple
    of g, and that the trained elements of a flat parameter may lie in the shards of few replicas.

    Sources: torch/distributed/fsdp/_runtime_utils.py (`_pre_backward_hook`, `_post_backward_hook`, `_prefetch_handle`,
    `_reduce_grad`) and _flat_param.py, PyTorch 2.13; c10/cuda/CUDACachingAllocator.cpp (`free`); traces of real
    FullyShardedDataParallel models agree (see the tests).
    """

    reshard_after_forward: bool = True
    gradient_sync: bool = True
    backward_prefetch: str = "pre"
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    sharded_dtype: str | None = None
    shard_size: int | None = None
    trained_whole: bool = False

    name = "fsdp1"

    def __post_init__(self) -> None:
        check_policy(self)
        if self.backward_prefetch not in PREFETCH:
            raise BadInput(
                "backward_prefetch",
                "must be one of {allowed}; you typed {typed}",
                allowed=", ".join(PREFETCH),
                typed=repr(self.backward_prefetch),
            )

    def apply(self, profile: MemoryProfile, replicas: int) -> MemoryProfile:
        """The profile of one of `replicas`."""
        return _Replica(self, profile, shards_of(self, replicas)).profile()


#: Gathered units that may be freed before their readers have ended (`_FreeEventQueue`).
_IN_FLIGHT = 2


class _Replica(BlockReplica):
    """One replica's lines under FSDP1, in the order in which the CPU issues allocations."""

    policy: FSDP1

    @property
    def _is_flat(self) -> bool:
        return bool(self.base.settings.get(FLAT))

    def _sizes(self, unit: Unit) -> Sizes:
        if not self.policy.trained_whole:
            return super()._sizes(unit)
        frozen = replace(
            unit,
            parameters=unit.parameters - unit.trainable_parameters,
            trainable_parameters=0,
            weights_bytes=unit.weights_bytes - unit.trainable_weights_bytes,
            trainable_weights_bytes=0,
        )
        sizes, whole = super()._sizes(frozen), unit.trainable_weights_bytes
        shard = sizes.weights_shard + whole
        return replace(
            sizes, gradients=whole, reduction=whole, weights_shard=shard, gradients_shard=whole, traced=whole
        )

    def _optimizer_factor(self) -> float:
        return 1.0 if self.policy.trained_whole else super()._optimizer_factor()

    def _with_gradients(self, unit: Unit) -> tuple[int, int]:
        if unit.trainable_parameters and self._is_flat:
            return unit.parameters, unit.weights_bytes
        return unit.trainable_parameters, unit.trainable_weights_bytes

    def _later(self) -> Pass:
        """Gradients are computed anew in every micro-batch, and then added to those that are there."""
        sync = self.policy.gradient_sync
        kept = self.gradients if sync else self._all("gradients")
        return Pass(self._first().lines, accumulated=kept, own=True, reduces=sync)

    # -- streams

    def _line(self, line: Line, *, gathered: float = 0, elsewhere: float = 0, **made: Any) -> Line:
        """All that is gathered is allocated by a stream of its own."""
        return super()._line(line, gathered=gathered, elsewhere=elsewhere + gathered, **made)

    def _other_streams(self) -> float:
        """The stream that gathers, where memory is free again only when kernels have read it: the root, a block, and so
        many freed before as `limit_all_gathers` lets be in flight. And the stream of reductions, which allocates the
        casts of a unit's gradients and the shards of all (`_unshard` and `_reduce_grad` in _runtime_utils.py)."""
        sizes = self.sizes.values()
        block = max((self.sizes[unit.name].gathered for unit in self.blocks), default=0.0)
        casts = max(s.reduction if s.reduction != s.gradients else 0.0 for s in sizes)
        return self.root.gathered + (1 + _IN_FLIGHT) * block + casts + self.gradients

    # -- forward

    def _forward(self, run: Pass) -> Iterator[Line]:
        gradients, stay = constant(run.accumulated), 0.0
        for unit in self.blocks:
            size = self.sizes[unit.name].gathered
            before = stay
            if not self.policy.reshard_after_forward:
                stay += unit.count * size
            for line in self._within(run, "forward", unit):
                gathered = self.root.gathered + max(stay, before + size)
                yield self._line(line, gradients=gradients, gathered=gathered)
        for line in self._within(run, "forward", None):
            yield self._line(line, gradients=gradients, gathered=self.root.gathered + stay)

    # -- backward

    def _backward(self, run: Pass) -> Iterator[Line]:
        for line in self._within(run, "backward", None):
            yield self._backward_in_root(line, run)
        for unit in self.blocks:
            points = self._points(unit, run)
            for point in points:
                yield self._backward_in_block(point, unit, run)
            for finished in sorted({0, 1, unit.count - 2, unit.count - 1}):
                if points and not self.policy.trained_whole and 0 <= finished < unit.count:
                    yield self._end_of_block(points, finished, unit, run)
        if run.lines and not self.policy.trained_whole:
            yield self._end_of_backward(run)

    def _backward_in_root(self, line: Line, run: Pass) -> Line:
        """Before the blocks' backward, the last block may be gathered already; after it, only the root is."""
        gradients = part(line, "gradients")
        root = self._traced([u for u in self._units() if u.name == ROOT])
        if self.blocks and self._fixed(gradients) > root:
            finished = 0 if run.accumulated else self.gradients - self.root.gradients_shard
            own = self._whole(raised(gradients, -self._traced(self.blocks)))
            return self._line(
                line,
                gradients=raised(own, run.accumulated + finished),
                gathered=self.root.gathered,
            )
        if not self.policy.reshard_after_forward:
            gathered = sum(u.count * self.sizes[u.name].gathered for u in self.blocks)
        else:
            gathered = self.last.gathered if self.policy.backward_prefetch == "pre" else 0
        return self._line(
            line,
            gradients=raised(self._whole(gradients), run.accumulated),
            gathered=self.root.gathered + gathered,
        )

    def _backward_in_block(self, point: Point, unit: Unit, run: Pass) -> Line:
        done = point.finished * self.sizes[unit.name].traced + self._traced(self._after(unit))
        own = self._whole(raised(part(point.line, "gradients"), -done))
        return self._line(
            point.line,
            gradients=raised(own, self._kept(point.finished, unit, run)),
            gathered=self._gathered(point.finished, unit, ahead=not self._has_units_inside(unit)),
        )

    def _end_of_block(self, points: list[Point], finished: int, unit: Unit, run: Pass) -> Line:
        """A block's gradients and the flat one they are concatenated into, or, once the block is freed, the flat one
        and what is reduced; what the blocks before keep for backward is still there."""
        sizes = self.sizes[unit.name]
        first = min(points, key=lambda point: point.finished).line
        of_root = min(
            (self._fixed(part(point.line, "gradients")) for point in points if not point.finished),
            default=0.0,
        )
        of_root = min(of_root, self._traced([u for u in self._units() if u.name == ROOT]))
        gathered = self._gathered(finished, unit, ahead=True)
        casts = sizes.reduction if sizes.reduction != sizes.gradients else 0.0
        own = max(2 * sizes.gradients, sizes.gradients + casts * (1 + 1 / self.g) - sizes.gathered)
        return self._line(
            first,
            gradients=constant(own + of_root * self.gradients_factor + self._kept(finished, unit, run)),
            gathered=gathered,
            activations=self._saved_by_unfinished(finished, unit),
            where=f"backward: gradients of {unit.name} in one",
        )

    def _end_of_backward(self, run: Pass) -> Line:
        """The root's gradients, the flat one, and what is reduced."""
        root = self.root
        casts = root.reduction if root.reduction != root.gradients else 0.0
        own = max(2 * root.gradients, root.gradients + casts * (1 + 1 / self.g) - root.gathered)
        kept = run.accumulated or self.gradients - root.gradients_shard
        return self._line(
            run.lines[0],
            gradients=constant(own + kept),
            gathered=root.gathered,
            activations=Activations(),
            where=f"backward: gradients of {ROOT} in one",
        )

    # -- small helpers

    def _has_units_inside(self, unit: Unit) -> bool:
        """Whether a block's adapters are units of their own: the block before is gathered ahead when the last of them
        begins, so at the end of the block."""
        return not self._is_flat and 0 < unit.trainable_parameters < unit.parameters

    def _saved_by_unfinished(self, finished: int, unit: Unit) -> Activations:
        """What the blocks that backward has not come to keep for it; nothing where blocks leave more than they keep."""
        saved = self.saved[unit.name].times(unit.count - 1 - finished)
        for earlier in self.blocks[: self.blocks.index(unit)]:
            saved = saved.plus(self.saved[earlier.name], earlier.count)
        holds = self._fixed(saved.amount) >= 0 <= evaluate(saved.amount[1], self.seq_len)
        return saved if holds else Activations()

    def _gathered(self, finished: int, unit: Unit, *, ahead: bool) -> float:
        """What is gathered in backward with so many of the unit's blocks finished."""
        size, earlier = self.sizes[unit.name].gathered, self.blocks[: self.blocks.index(unit)]
        if not self.policy.reshard_after_forward:
            stay = sum(u.count * self.sizes[u.name].gathered for u in earlier)
            return self.root.gathered + (unit.count - finished) * size + stay
        if not ahead or self.policy.backward_prefetch != "pre":
            return self.root.gathered + size
        if finished < unit.count - 1:
            return self.root.gathered + 2 * size
        return self.root.gathered + size + (self.sizes[earlier[-1].name].gathered if earlier else 0)

    def _kept(self, finished: int, unit: Unit, run: Pass) -> float:
        """Gradients of earlier micro-batches, or the shards of the blocks finished in this one."""
        if run.accumulated:
            return run.accumulated
        done = sum(u.count * self.sizes[u.name].gradients_shard for u in self._after(unit))
        return done + finished * self.sizes[unit.name].gradients_shard

    def _after(self, unit: Unit) -> list[Unit]:
        """The units that backward has been through before it comes to this one."""
        return self.blocks[self.blocks.index(unit) + 1 :]
