"""Distributed data parallel: a whole replica on each GPU, and buckets in which gradients are reduced."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchfit.profile import Line, MemoryProfile
from batchfit.sharding.edit import Amount, constant, edited, part, plus


@dataclass(frozen=True, slots=True)
class DDP:
    """`torch.nn.parallel.DistributedDataParallel`.

    The reducer flattens gradients into buckets (a first one of 1 MiB, then up to `bucket_cap_mb`, 25 by
    default), which it allocates when the model is wrapped and keeps: together they are as large as the
    gradients, whatever the cap. With `gradient_as_bucket_view` the gradients themselves are views into the
    buckets. They then take no memory of their own, but what they take is there all the time, also where
    `zero_grad` has set gradients to None. Skipping the reduction (`no_sync`) changes neither.

    Source: torch/csrc/distributed/c10d/reducer.cpp (`initialize_buckets`, `mark_variable_ready_dense`,
    `finalize_bucket_dense`) and the documentation of `DistributedDataParallel`, PyTorch 2.13.
    """

    gradient_as_bucket_view: bool = False

    name = "ddp"

    def apply(self, profile: MemoryProfile, replicas: int) -> MemoryProfile:
        """The profile of one of `replicas`."""
        buckets = constant(sum(u.count * u.trainable_weights_bytes for u in profile.model.units))
        if self.gradient_as_bucket_view:
            return self._views(profile, buckets)
        phases = {
            phase: tuple(edited(line, {"buffers": plus(part(line, "buffers"), buckets)}) for line in lines)
            for phase, lines in profile.phases.items()
        }
        states = replace(profile.states, buffers_bytes=profile.states.buffers_bytes + round(buckets[0][0]))
        return replace(profile, phases=phases, states=states)

    def _views(self, profile: MemoryProfile, buckets: Amount) -> MemoryProfile:
        """With gradients that are always there, the first micro-batch is like every later one."""

        def held(line: Line) -> Line:
            return edited(line, {"gradients": buckets})

        later = profile.phases.get("later_micro") or profile.phases.get("first_micro", ())
        phases = {phase: tuple(held(line) for line in lines) for phase, lines in profile.phases.items()}
        phases["first_micro"] = phases["later_micro"] = tuple(held(line) for line in later)
        return replace(profile, phases=phases)
