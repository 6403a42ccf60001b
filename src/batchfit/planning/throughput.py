"""How long an optimizer step takes: a model from what the step computes, moves and sends, and what the card reaches.

For one micro-batch of b samples, a roofline over three kinds of kernels that run one after the other:

    products     the longer of FLOPs over the card's rate and bytes over its bandwidth. With few samples the
                 weights' bytes dominate, which is why small micro-batches waste a card
    attention    FLOPs over the lower rate that fused attention reaches
    the rest     bytes over bandwidth: normalisation, activation functions, losses, casts

The GPU cannot be faster than kernels are issued to it, so a micro-batch takes at least `kernels * launch`. Gathers and
reductions of sharded weights overlap with it, but for the first gather, which nothing can hide. Once per window of a
micro-batches come the reduction of gradients, as far as the last backward does not hide it, and the optimizer step,
which streams its states through memory:

    step(b, a) = a * micro(b) + once(b)

Traffic of collectives: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020), section 7, for rings: (g-1)/g of the bytes for a gather or a reduction to shards, twice that for an all-reduce.
What is left out: data loading, contention between collectives and kernels for memory, tensor and pipeline parallelism.
`bench/accuracy/throughput.py` says how far off all this is on published runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from batchfit.kept import kept
from batchfit.planning.costs import Costs
from batchfit.planning.rates import Rates
from batchfit.profile import MemoryProfile, evaluate
from batchfit.sentences import Sentence, Share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Seconds = NDArray[np.float64]

#: Where the measured error stands; `bench/accuracy/throughput.py --write` computes it.
ERROR_FILE = "catalog/throughput_error.json"


@cache
def measured_error() -> dict[str, Any]:
    """This model's error on published runs: of "relative" and of "absolute" times, each with "count", "median", "p90"
    and "signed_median" (above 0: too fast)."""
    found: dict[str, Any] = json.loads(resources.files("batchfit").joinpath(ERROR_FILE).read_text("utf-8"))
    return {kind: found[kind] for kind in ("relative", "absolute")}


def model_error() -> float:
    """The median error of relative step times: plans nearer to each other than that are a tie."""
    return float(measured_error()["relative"]["median"])


def error_sentence() -> Sentence:
    """How good the model is, in a sentence."""
    relative, absolute = measured_error()["relative"], measured_error()["absolute"]
    known = {
        "median": Share(relative["median"]),
        "p90": Share(relative["p90"]),
        "pairs": relative["count"],
        "lean": Share(abs(absolute["signed_median"])),
        "runs": absolute["count"],
    }
    if absolute["signed_median"] > 0:
        return Sentence(
            "Times are a model's: between two settings it is off by {median} (one in ten: {p90} or more) on {pairs} "
            "published pairs; absolutely it is {lean} too fast in the median of {runs} runs",
            **known,
        )
    return Sentence(
        "Times are a model's: between two settings it is off by {median} (one in ten: {p90} or more) on {pairs} "
        "published pairs; absolutely it is {lean} too slow in the median of {runs} runs",
        **known,
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one GPU of a ring sends: with every micro-batch, and once per window in gradients and in weights."""

    per_micro_batch: float
    gradients: float
    weights: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the seconds of one optimizer step go. `bound` is what limits a micro-batch: "compute", "memory",
    "launches" or "communication"."""

    seconds: float
    micro_batch_seconds: float
    communication_seconds: float
    optimizer_seconds: float
    bound: str


#: Clocks that are kept: an answer asks for the same ones again for advice and for other numbers of GPUs.
_KEPT = 1024


class StepClock:
    """The time of steps with one profile on one kind of card, in one sharding over `replicas`.

    `profile` is the unsharded one: its compute is what each replica computes. One optimizer step of a micro-batches of
    b samples takes `a * micro + once`, which `costs.times(b)` gives.
    """

    def __init__(
        self, profile: MemoryProfile, rates: Rates, sharding: str, replicas: int, seq_len: int | None
    ) -> None:
        compute = profile.compute
        attention = evaluate(compute.attention_flops, seq_len)
        forward, step = (evaluate(flops, seq_len) for flops in (compute.forward_flops, compute.step_flops))
        matmul_bytes, other_bytes = (
            [evaluate(each, seq_len) for each in moved]
            for moved in (compute.matmul_bytes, compute.other_bytes)
        )
        bus = rates.bus(replicas)
        sent = traffic(profile, sharding, replicas)
        parts = replicas if sharding not in ("none", "ddp") else 1
        self.costs = Costs(
            flops=step - attention,
            matmul=rates.matmul,
            matmul_bytes=matmul_bytes[0],
            matmul_bytes_per_sample=matmul_bytes[1],
            attention=attention / rates.attention,
            other_bytes=other_bytes[0],
            other_bytes_per_sample=other_bytes[1],
            memory=rates.memory,
            launches=compute.kernels_per_micro_batch * rates.launch,
            sent=sent.per_micro_batch / bus,
            exposed=sent.per_micro_batch / bus / max(1, sum(unit.count for unit in profile.model.units)),
            backward_share=1 - forward / step if step else 0.0,
            reduce=sent.gradients / bus,
            gather=sent.weights / bus,
            optimizer=max(
                compute.optimizer_bytes / parts / rates.memory,
                compute.kernels_per_optimizer_step * rates.launch,
            ),
        )

    def explain(self, micro_batch: int, accumulation_steps: int) -> StepTime:
        """Where the seconds of one step go, and what limits a micro-batch."""
        import numpy as np

        costs, one = self.costs, np.array([micro_batch], dtype=np.int64)
        by_flops, by_bytes, rest = (float(seconds[0]) for seconds in costs.kernels(one))
        kernels = max(by_flops, by_bytes) + rest
        computing = costs.attention * micro_batch + (by_flops if by_flops >= by_bytes else 0.0)
        limits = {
            "compute" if computing >= kernels / 2 else "memory": kernels,
            "launches": costs.launches,
            "communication": costs.sent,
        }
        micro, once = (float(seconds[0]) for seconds in costs.times(one))
        waiting = micro - max(kernels, costs.launches)
        return StepTime(
            seconds=accumulation_steps * micro + once,
            micro_batch_seconds=micro,
            communication_seconds=accumulation_steps * waiting + once - costs.optimizer,
            optimizer_seconds=costs.optimizer,
            bound=max(limits, key=lambda name: limits[name]),
        )


def tells_time(profile: MemoryProfile, rates: Rates | None) -> bool:
    """Whether the card's rates and the profile's FLOPs are known."""
    return rates is not None and any(profile.compute.step_flops)


@kept(_KEPT)
def clock(
    profile: MemoryProfile, rates: Rates | None, sharding: str, replicas: int, seq_len: int | None
) -> StepClock | None:
    """The clock of this setting; None where the card's rates or the profile's FLOPs are not known."""
    if rates is None or not tells_time(profile, rates):
        return None
    return StepClock(profile, rates, sharding, replicas, seq_len)


def traffic(profile: MemoryProfile, sharding: str, replicas: int) -> Traffic:
    """What a GPU sends in this sharding. Sharded weights and gradients travel in the type they are computed in,
    DDP's gradients in the type they are kept in."""
    ring = (replicas - 1) / replicas
    mixed = str(profile.settings.get("precision", "")).endswith("-mixed")
    quantized = bool(profile.settings.get("quantize"))
    states = profile.states
    weights = states.weights_bytes * (0.5 if mixed and not quantized else 1.0) * ring
    gradients = states.gradients_bytes * (0.5 if mixed else 1.0) * ring
    if sharding == "ddp":
        return Traffic(0.0, 2 * states.gradients_bytes * ring, 0.0)
    if sharding == "zero1":
        return Traffic(0.0, gradients, weights)
    if sharding == "zero2":
        return Traffic(gradients, 0.0, weights)
    if sharding in ("zero3", "fsdp"):
        # Weights are gathered for forward and again for backward, then gradients are reduced to shards.
        return Traffic(2 * weights + gradients, 0.0, 0.0)
    return Traffic(0.0, 0.0, 0.0)


def spent(time: StepTime) -> dict[str, Any]:
    """The times as data, in seconds."""
    return {
        "step_seconds": time.seconds,
        "micro_batch_seconds": time.micro_batch_seconds,
        "communication_seconds": time.communication_seconds,
        "optimizer_seconds": time.optimizer_seconds,
        "bound": time.bound,
    }
