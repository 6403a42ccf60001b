"""What a step computes: kernels and floating-point operations, counted as they run."""

from __future__ import annotations

from typing import Any

from torch.utils.flop_counter import flop_registry

from batchfit.trace.timeline import Mark, Work

#: Operators that only look at memory another way, so that no kernel runs.
_VIEWS = ("view", "_unsafe_view", "_reshape_alias", "detach", "alias", "lift_fresh", "empty", "empty_like")


class WorkCounter:
    """Counts the last optimizer step it sees. FLOPs are PyTorch's own count (`torch.utils.flop_counter`): matrix
    products, convolutions and attention, two for a multiplication and an addition."""

    def __init__(self) -> None:
        self.work = Work()
        self._flops: dict[Any, Any] = {}
        self._phase = ""

    def enter(self, mark: Mark) -> None:
        """The step enters another phase."""
        if mark.phase == "begin":
            self.work = Work()
        elif mark.phase == "forward":
            # Every micro-batch is like every other: the last one stands for them.
            self.work.forward_flops = self.work.backward_flops = self.work.kernels_per_micro_batch = 0
        self._phase = mark.phase

    def count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """One operation ran."""
        found = self._flops.get(func)
        if found is None:
            found = self._flops[func] = _counted(func)
        if found is _NOTHING:
            return
        if self._phase == "optimizer":
            self.work.kernels_per_optimizer_step += 1
            return
        self.work.kernels_per_micro_batch += 1
        if found is not _KERNEL:
            flops = int(found(*args, **kwargs, out_val=out))
            if self._phase == "forward":
                self.work.forward_flops += flops
            else:
                self.work.backward_flops += flops


_NOTHING, _KERNEL = object(), object()


def _counted(func: Any) -> Any:
    """How an operator is counted: not at all, as a kernel, or as a kernel with so many FLOPs."""
    schema = func._schema
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    if is_view or schema.name.removeprefix("aten::") in _VIEWS:
        return _NOTHING
    return flop_registry.get(func._overloadpacket, _KERNEL)
