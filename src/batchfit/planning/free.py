"""What binds, and what is therefore free: sentences computed from a plan's profile and its time."""

from __future__ import annotations

from collections.abc import Iterator

from batchfit.planning.options import Option
from batchfit.planning.result import PHASE_NAMES, Plan
from batchfit.planning.throughput import model_error
from batchfit.profile import NO_LIMIT, LedgerEntry
from batchfit.units import format_bytes

#: A part of the peak below this share is not worth a sentence.
_WORTH_A_SENTENCE = 0.1

#: What modules that compute logits are called in public models, and the operations of a loss on them.
_HEADS = ("lm_head", "output_projection", "embed_out", "score", "cross_entropy", "loss")


def notes(plan: Plan, option: Option) -> tuple[str, ...]:
    """What binds memory and time in this plan, and what costs nothing."""
    return (*_memory(plan, option), *_logits(plan, option), *_time(plan), _range(plan, option))


def _range(plan: Plan, option: Option) -> str:
    """What the number and its range come from: never a bare yes."""
    tensors = f"{format_bytes(plan.peak_allocated_bytes)} is what tensors hold at the peak"
    if plan.peak_reserved_bytes is None:
        beyond = "what PyTorch's allocator takes beyond it is not known, so the headroom stands for that"
    else:
        reserved = format_bytes(plan.peak_reserved_bytes)
        beyond = f"{reserved} what PyTorch's allocator reserves for them, as replayed"
    kept = format_bytes(option.capacity.headroom_bytes)
    tight = (
        "" if plan.verdict == "fits" else f"; that leaves less than the {kept} to be kept free: it may fail"
    )
    return f"{tensors}, {beyond}{tight}."


def _memory(plan: Plan, option: Option) -> Iterator[str]:
    accumulates = plan.accumulation_steps > 1
    free = option.envelope.largest(plan.peak_allocated_bytes, accumulates)
    phase = PHASE_NAMES[plan.binding_phase]
    binds = f"The {phase} binds" if phase == "optimizer step" else f"Memory is highest in the {phase}"
    place = "" if plan.binding_where == phase else f" ({plan.binding_where})"
    if free > 1 and plan.peak_allocated_bytes == _peak(option, 1, plan):
        upto = "any micro-batch takes" if free == NO_LIMIT else f"micro-batches up to {free:,} take"
        yield f"{binds}{place}: {upto} no more memory than 1."
    elif free > plan.micro_batch:
        yield f"{binds}{place}: micro-batch {free:,} takes no more memory than {plan.micro_batch:,}."
    else:
        more = format_bytes(_peak(option, plan.micro_batch + 1, plan) - plan.peak_allocated_bytes)
        yield f"{binds}{place}: one more sample per micro-batch takes {more}."
    if accumulates:
        alone = option.profile.peak(plan.micro_batch, 1, option.seq_len).allocated_bytes
        if plan.peak_allocated_bytes > alone:
            kept = format_bytes(plan.peak_allocated_bytes - alone)
            yield f"Accumulating takes {kept}, once, however many steps: gradients outlive their micro-batch."


def _peak(option: Option, micro_batch: int, plan: Plan) -> int:
    return option.profile.peak(micro_batch, plan.accumulation_steps, option.seq_len).allocated_bytes


def _logits(plan: Plan, option: Option) -> Iterator[str]:
    """What logits and the loss on them hold, and what a fused cross-entropy, which never makes them, would let fit."""
    held = [entry for entry in option.profile.ledger if _of_head(entry)]
    per_sample = sum(entry.bytes_per_sample for entry in held)
    share = per_sample * plan.micro_batch / plan.peak_allocated_bytes
    if plan.binding_phase == "optimizer_step" or share < _WORTH_A_SENTENCE:
        return
    slope = option.profile.activation_per_sample - per_sample
    room = option.capacity.capacity_bytes - option.capacity.headroom_bytes
    constant = plan.peak_allocated_bytes - option.profile.activation_per_sample * plan.micro_batch
    text = f"Logits are {share:.0%} of the peak"
    if slope > 0 and (room - constant) // slope > plan.micro_batch:
        text += f": a fused cross-entropy would let micro-batch {int((room - constant) // slope):,} fit"
    yield text + "."


def _of_head(entry: LedgerEntry) -> bool:
    place = f"{entry.module} {entry.code} {entry.kind}".lower()
    return any(name in place for name in _HEADS)


def _time(plan: Plan) -> Iterator[str]:
    time = plan.time
    if time is None:
        yield "No speed is told: the profile has no FLOPs, or the card no known peak. Fewer micro-batches come first."
        return
    what = {
        "compute": "computing",
        "memory": "moving data in the GPU's memory",
        "launches": "launching kernels, not the GPU: a larger micro-batch, or compiling, is nearly free",
        "communication": "communication: a larger micro-batch hides more of it",
    }[time.bound]
    yield f"At best {time.seconds:.3g} s per step; what limits a micro-batch is {what}."
    for name, seconds in (
        ("Communication", time.communication_seconds),
        ("The optimizer step", time.optimizer_seconds),
    ):
        share = seconds / time.seconds
        if share > max(_WORTH_A_SENTENCE, model_error()):
            yield f"{name} takes {share:.0%} of the time: more accumulation makes it rarer per sample."
