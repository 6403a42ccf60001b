"""ZeRO as DeepSpeed does it: optimizer state (1), gradients (2) and parameters (3) in partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchfit.profile import Line, MemoryProfile, States
from batchfit.sharding.edit import Amount, constant, edited, part, raised, times
from batchfit.sharding.precision import Elements


@dataclass(frozen=True, slots=True)
class ZeRO:
    """DeepSpeed's ZeRO optimizer of a stage; the settings are those of `zero_optimization`, with its defaults.

    Of n trainable parameters on g replicas, in the 16-bit type that is trained in (or fp32):

    - An fp32 copy of the replica's n/g parameters, which the optimizer updates, and its state in fp32:
      for Adam 4 + 8 bytes for each.
    - Parameters: whole in stages 1 and 2. In stage 3 n/g, and what is gathered: up to
      `stage3_max_live_parameters`, since a parameter that is used again within
      `stage3_max_reuse_distance` is not let go.
    - Gradients: whole in stage 1. In stage 2 the partition's n/g, and, while a later micro-batch is reduced,
      those accumulated before it. In stage 3 a buffer of n/g that is always there.
    - A bucket of `reduce_bucket_size` elements that gradients are copied into (`contiguous_gradients`), two
      with `overlap_comm`, during backward; in stage 3 always. While a bucket is reduced, it is flattened into
      a second tensor.
    - In the optimizer step, n/g gradients in fp32 beside those of the partition; in stage 3 of one
      `sub_group_size` at a time.

    Sources: deepspeed/runtime/zero/stage_1_and_2.py (`__init__`, `reduce_independent_p_g_buckets_and_remove_grads`,
    `independent_gradient_partition_epilogue`, `step`), stage3.py (`_setup_for_real_optimizer`),
    config.py for the defaults; Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
    Parameter Models" (2020), for the idea.
    """

    stage: int
    reduce_bucket_size: int = 500_000_000
    overlap_comm: bool = False
    contiguous_gradients: bool = True
    stage3_max_live_parameters: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000

    @property
    def name(self) -> str:
        """What people choose it by: "zero2"."""
        return f"zero{self.stage}"

    def apply(self, profile: MemoryProfile, replicas: int) -> MemoryProfile:
        """The profile of one of `replicas`."""
        return _Replica(self, profile, replicas).profile()


class _Replica:
    def __init__(self, zero: ZeRO, profile: MemoryProfile, replicas: int) -> None:
        self.zero, self.base, self.replicas = zero, profile, replicas
        elements = self.elements = Elements.of(profile)
        self.partition = elements.trainable / replicas
        item = elements.compute_bytes
        self.optimizer_states: dict[Amount, Amount] = {}
        self.weights = elements.computed_weights
        if zero.stage == 3:
            live = min(elements.total, zero.stage3_max_live_parameters)
            self.weights = elements.computed_weights * (1 / replicas + live / elements.total)
        self.partition_gradients = constant(item * self.partition)
        self.bucket = 0.0
        if zero.contiguous_gradients:
            buffers = 2 if zero.overlap_comm else 1
            flattened = min(zero.reduce_bucket_size, elements.trainable)
            self.bucket = item * (buffers * zero.reduce_bucket_size + flattened)

    def profile(self) -> MemoryProfile:
        base, elements = self.base, self.elements
        # A gradient is alive on its own only until it is in its bucket. That is what a later micro-batch does
        # too, where a new gradient is added to one that is there, so both take the lines of the latter.
        later = base.phases.get("later_micro") or base.phases.get("first_micro", ())
        micro = [(line, self.micro(line)) for line in later]
        first, further = (self.gradients(each) for each in (True, False))
        lines = {
            gradients: tuple(edited(line, {**held, "gradients": gradients}) for line, held in micro)
            for gradients in {first, further}
        }
        phases = {
            "first_micro": lines[first],
            "later_micro": lines[further],
            "optimizer_step": tuple(self.step(line) for line in base.phases.get("optimizer_step", ())),
        }
        held = further[0][0]
        states = States(
            weights_bytes=round(elements.computed_weights / (self.replicas if self.zero.stage == 3 else 1)),
            gradients_bytes=round(held if self.zero.stage != 2 else held / 2),
            optimizer_bytes=round(
                base.states.optimizer_bytes * elements.to_fp32 / self.replicas + 4 * self.partition
            ),
            buffers_bytes=base.states.buffers_bytes,
        )
        return replace(base, phases=phases, states=states)

    def gradients(self, first: bool) -> Amount:
        """Gradients alive in a micro-batch."""
        if self.zero.stage == 1:
            return constant(self.elements.compute_bytes * self.elements.trainable)
        return times(self.partition_gradients, 1 if first or self.zero.stage == 3 else 2)

    def micro(self, line: Line) -> dict[str, Amount]:
        """What is held at a line of a micro-batch, but for gradients."""
        buffers = self.elements.without_cast_copies(line)
        if self.zero.stage == 3 or line.where.startswith("backward"):
            buffers = raised(buffers, self.bucket)
        return {
            "weights": constant(self.weights),
            "optimizer": self.optimizer(line),
            "buffers": buffers,
        }

    def optimizer(self, line: Line) -> Amount:
        """The partition's share of the state, and of the temporaries of a step, in fp32; and the fp32 copy."""
        traced = part(line, "optimizer")
        if traced not in self.optimizer_states:
            share = times(traced, self.elements.to_fp32 / self.replicas)
            self.optimizer_states[traced] = raised(share, 4 * self.partition)
        return self.optimizer_states[traced]

    def step(self, line: Line) -> Line:
        zero = self.zero
        upcast = self.partition if zero.stage < 3 else min(self.partition, zero.sub_group_size)
        weights = self.elements.computed_weights / (self.replicas if zero.stage == 3 else 1)
        buffers = self.elements.without_cast_copies(line)
        if zero.stage == 3:
            buffers = raised(buffers, self.bucket)
        return edited(
            line,
            {
                "weights": constant(weights),
                "gradients": raised(self.partition_gradients, 4 * upcast),
                "optimizer": self.optimizer(line),
                "buffers": buffers,
            },
        )
