"""What binds, and what is therefore free: sentences computed from a plan's profile and its time."""

from __future__ import annotations

from collections.abc import Iterator

from batchfit.planning.options import Option
from batchfit.planning.result import PHASE_NAMES, Plan
from batchfit.planning.throughput import model_error
from batchfit.profile import NO_LIMIT, LedgerEntry, evaluate
from batchfit.samples import samples_of
from batchfit.sentences import Rounded, Sentence, Share, Size

#: A part of the peak below this share is not worth a sentence.
_WORTH_A_SENTENCE = 0.1

#: What modules that compute logits are called in public models, and the operations of a loss on them.
_HEADS = ("lm_head", "output_projection", "embed_out", "score", "cross_entropy", "loss")


def notes(plan: Plan, option: Option) -> tuple[Sentence, ...]:
    """What binds memory and time in this plan, and what costs nothing."""
    each = samples_of(option.profile).each
    return (*_memory(plan, option), *_logits(plan, option), *_time(plan, each), _range(plan, option))


def _range(plan: Plan, option: Option) -> Sentence:
    """What the number and its range come from: never a bare yes."""
    tight: str = ""
    if plan.verdict != "fits":
        tight = Sentence(
            "; that leaves less than the {kept} to be kept free: it may fail",
            kept=Size(option.capacity.headroom_bytes),
        )
    if plan.peak_reserved_bytes is None:
        return Sentence(
            "{allocated} is what tensors hold at the peak, what PyTorch's allocator takes beyond it is not known, so "
            "the headroom stands for that{tight}.",
            allocated=Size(plan.peak_allocated_bytes),
            tight=tight,
        )
    return Sentence(
        "{allocated} is what tensors hold at the peak, {reserved} what PyTorch's allocator reserves for them, as "
        "replayed{tight}.",
        allocated=Size(plan.peak_allocated_bytes),
        reserved=Size(plan.peak_reserved_bytes),
        tight=tight,
    )


#: The passes that places in a step begin with: "backward: model.layers.*.mlp".
_PASSES = {"forward": Sentence("forward"), "backward": Sentence("backward")}


def _place(where: str) -> str:
    """A place in the step, its pass in the reader's language; what runs there is code."""
    passed, _, module = where.partition(": ")
    if passed not in _PASSES:
        return where
    return Sentence("{name}: {text}", name=_PASSES[passed], text=module) if module else _PASSES[passed]


def binds(plan: Plan) -> Sentence:
    """Where in the step memory is highest."""
    place: str = ""
    if plan.binding_where != PHASE_NAMES[plan.binding_phase]:
        place = Sentence(" ({place})", place=_place(plan.binding_where))
    if plan.binding_phase == "optimizer_step":
        return Sentence("The optimizer step binds{place}", place=place)
    if plan.binding_phase == "later_micro":
        return Sentence("Memory is highest in the later micro-batches{place}", place=place)
    return Sentence("Memory is highest in the first micro-batch{place}", place=place)


def _memory(plan: Plan, option: Option) -> Iterator[Sentence]:
    accumulates = plan.accumulation_steps > 1
    free = option.envelope.largest(plan.peak_allocated_bytes, accumulates)
    where = binds(plan)
    if free > 1 and plan.peak_allocated_bytes == _peak(option, 1, plan):
        if free == NO_LIMIT:
            yield Sentence("{where}: any micro-batch takes no more memory than 1.", where=where)
        else:
            yield Sentence(
                "{where}: micro-batches up to {free} take no more memory than 1.", where=where, free=free
            )
    elif free > plan.micro_batch:
        yield Sentence(
            "{where}: micro-batch {free} takes no more memory than {micro_batch}.",
            where=where,
            free=free,
            micro_batch=plan.micro_batch,
        )
    else:
        more = _peak(option, plan.micro_batch + 1, plan) - plan.peak_allocated_bytes
        yield Sentence(
            "{where}: {one_more} per micro-batch takes {more}.",
            where=where,
            one_more=samples_of(option.profile).one_more,
            more=Size(more),
        )
    if accumulates:
        alone = option.profile.peak(plan.micro_batch, 1, option.seq_len).allocated_bytes
        if plan.peak_allocated_bytes > alone:
            yield Sentence(
                "Accumulating takes {kept}, once, however many steps: gradients outlive their micro-batch.",
                kept=Size(plan.peak_allocated_bytes - alone),
            )


def _peak(option: Option, micro_batch: int, plan: Plan) -> int:
    return option.profile.peak(micro_batch, plan.accumulation_steps, option.seq_len).allocated_bytes


def _logits(plan: Plan, option: Option) -> Iterator[Sentence]:
    """What logits and the loss on them hold, and what a fused cross-entropy, which never makes them, would let fit."""
    profile, tokens = option.profile, option.seq_len
    per_sample = float(sum(entry.bytes_per_sample for entry in profile.ledger if _of_head(entry)))
    if profile.seq_len and tokens:
        # The ledger of a range is of its longest samples, and logits are as many as tokens.
        per_sample *= tokens / profile.seq_len.maximum
    share = per_sample * plan.micro_batch / plan.peak_allocated_bytes
    if plan.binding_phase == "optimizer_step" or share < _WORTH_A_SENTENCE:
        return
    peak = profile.peak(plan.micro_batch, plan.accumulation_steps, tokens)
    more = evaluate(peak.line.per_sample, tokens)
    slope = more - per_sample
    room = option.capacity.capacity_bytes - option.capacity.headroom_bytes
    constant = plan.peak_allocated_bytes - more * plan.micro_batch
    if slope > 0 and (room - constant) // slope > plan.micro_batch:
        yield Sentence(
            "Logits are {share} of the peak: a fused cross-entropy would let micro-batch {fitting} fit.",
            share=Share(share),
            fitting=int((room - constant) // slope),
        )
    else:
        yield Sentence("Logits are {share} of the peak.", share=Share(share))


def _of_head(entry: LedgerEntry) -> bool:
    place = f"{entry.module} {entry.code} {entry.kind}".lower()
    return any(name in place for name in _HEADS)


def _time(plan: Plan, each: Sentence) -> Iterator[Sentence]:
    time = plan.time
    if time is None:
        yield Sentence(
            "No speed is told: the profile has no FLOPs, or the card no known peak. Fewer micro-batches come first."
        )
        return
    yield Sentence(
        "At best {seconds} s per step; what limits a micro-batch is {limit}.",
        seconds=Rounded(time.seconds, significant=3),
        limit=LIMITS[time.bound],
    )
    worth = max(_WORTH_A_SENTENCE, model_error())
    if (share := time.communication_seconds / time.seconds) > worth:
        yield Sentence(
            "Communication takes {share} of the time: more accumulation makes it rarer {each}.",
            share=Share(share),
            each=each,
        )
    if (share := time.optimizer_seconds / time.seconds) > worth:
        yield Sentence(
            "The optimizer step takes {share} of the time: more accumulation makes it rarer {each}.",
            share=Share(share),
            each=each,
        )


#: What limits a micro-batch, by `StepTime.bound`.
LIMITS = {
    "compute": Sentence("computing"),
    "memory": Sentence("moving data in the GPU's memory"),
    "launches": Sentence(
        "launching kernels, not the GPU: a larger micro-batch, or compiling, is nearly free"
    ),
    "communication": Sentence("communication: a larger micro-batch hides more of it"),
}
