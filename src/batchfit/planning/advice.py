"""What to change: every single change is planned again, and only those that help are told, with what they bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from batchfit.gpus import load_gpus
from batchfit.planning.eight_bit import with_eight_bit_optimizer
from batchfit.planning.options import Option, on_card, options
from batchfit.planning.request import MOST_GPUS, Request
from batchfit.planning.result import Advice, Plan
from batchfit.planning.search import best_first, plans_at, search
from batchfit.planning.throughput import model_error
from batchfit.planning.traits import Kind, choose, kind_of, seq_len_for
from batchfit.profile import MemoryProfile
from batchfit.sentences import Rounded, Sentence, Size

#: More GPUs are tried in doublings, up to this many times what there is.
_DOUBLINGS = 7

#: Shorter sequences are tried in multiples of this many tokens.
_SEQ_STEP = 128


@dataclass(frozen=True)
class Situation:
    """All of a model's profiles, those of the kind that is planned, and what was asked."""

    profiles: tuple[MemoryProfile, ...]
    chosen: tuple[MemoryProfile, ...]
    request: Request

    @cached_property
    def options(self) -> list[Option]:
        """What there is to choose among."""
        return options(self.chosen, self.request)

    def best(
        self, *, profiles: Sequence[MemoryProfile] | None = None, request: Request | None = None
    ) -> Plan | None:
        """The best plan with other profiles, or another request; None where nothing fits."""
        asked = request or self.request
        return best_of(options(self.chosen if profiles is None else profiles, asked), asked)


def best_of(found: Sequence[Option], request: Request) -> Plan | None:
    """The best plan of these options, None where nothing fits."""
    scores = search(found, request)
    if not len(scores):
        return None
    (plan,) = plans_at(best_first(scores, found)[:1], scores, found, request)
    return plan


Change = Callable[[Situation], Iterator[Advice]]


def advise(situation: Situation) -> tuple[Advice, ...]:
    """The changes that make it fit, cheapest first: what costs nothing, then time, then quality, then money."""
    told = [advice for change in CHANGES for advice in change(situation)]
    return tuple(told) or (_nothing_helps(situation),)


def quicker(situation: Situation, best: Plan) -> tuple[Advice, ...]:
    """Where plans fit: what a pin costs, if leaving it out is faster by more than the model's error."""
    told = []
    for advice in _unpinned(situation):
        plan = advice.plan
        if plan and plan.time and best.time:
            before = best.time.seconds / best.effective_batch
            gain = before / (plan.time.seconds / plan.effective_batch)
            if gain > 1 + model_error():
                text = Sentence(
                    "Without {option} it would be {gain} times as fast: {plan}.",
                    option=advice.options[0],
                    gain=Rounded(gain, 2),
                    plan=plan.summary,
                )
                told.append(replace(advice, text=text))
    return tuple(told)


# ---- The changes, cheapest first ----------------------------------------------------------------------------


def _unpinned(situation: Situation) -> Iterator[Advice]:
    """Leaving out one pin: it costs nothing but the wish."""
    request = situation.request
    pins = {
        "micro_batch": "--micro-batch",
        "accumulation_steps": "--accumulation-steps",
        "most_accumulation": "--max-accumulation",
        "replicas": "--replicas",
        "sharding": "--sharding",
        "checkpointing": "--checkpointing",
    }
    for field, option in pins.items():
        pinned = getattr(request, field)
        if pinned is None:
            continue
        freed: Request = replace(request, **{field: None})  # type: ignore[arg-type]
        chosen = situation.chosen
        if field == "checkpointing":
            chosen = choose(situation.profiles, kind_of(situation.chosen[0]))
        if plan := situation.best(profiles=chosen, request=freed):
            yield Advice(
                f"unpin {field}",
                _helps(plan, Sentence("Without {option}", option=f"{option} {pinned}")),
                (f"{option} {pinned}",),
                plan,
            )


def _eight_bit(situation: Situation) -> Iterator[Advice]:
    """States of one byte: no slower, and published to train as well."""
    made = [with_eight_bit_optimizer(profile) for profile in situation.chosen]
    profiles = [profile for profile in made if profile is not None]
    if profiles and (plan := situation.best(profiles=profiles)):
        saved = situation.chosen[0].states.optimizer_bytes - profiles[0].states.optimizer_bytes
        change = Sentence(
            "With an 8-bit AdamW, whose states are {saved} smaller before sharding,", saved=Size(saved)
        )
        text = _helps(plan, change)
        yield Advice("optimizer", text, ("--optimizer adamw-8bit",), plan)


def _shorter(situation: Situation) -> Iterator[Advice]:
    """The longest sequence at which the same number of samples fits, where the profiles hold a range."""
    span = situation.chosen[0].seq_len
    if span is None or span.minimum == span.maximum:
        return
    current = seq_len_for(situation.chosen[0], situation.request.seq_len) or span.maximum
    low, high = -(-span.minimum // _SEQ_STEP), (current - 1) // _SEQ_STEP

    def at(multiple: int) -> Plan | None:
        return situation.best(request=replace(situation.request, seq_len=multiple * _SEQ_STEP))

    if low > high:
        return
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if at(middle) else (low, middle - 1)
    length, plan = low * _SEQ_STEP, at(low)
    if plan is None:
        return
    change = Sentence("At {length} tokens instead of {current}", length=length, current=current)
    text = _helps(plan, change)
    yield Advice("seq_len", text, (f"--seq-len {length}",), plan)


def _adapters(situation: Situation) -> Iterator[Advice]:
    """LoRA, and LoRA on quantised weights, where the model has profiles of them."""
    kind = kind_of(situation.chosen[0])
    asked = situation.request.kind
    there = {
        each
        for each in map(kind_of, situation.profiles)
        # What is asked for stays as it is.
        if asked.precision in (None, each.precision) and asked.optimizer in (None, each.optimizer)
    }

    def nearest(other: Kind) -> tuple[object, ...]:
        """Whatever else is as it was comes first."""
        alike = other.precision == kind.precision, other.optimizer == kind.optimizer
        return other.quantize or "", other.lora_rank or 0, *(not each for each in alike), str(other)

    for other in sorted(there, key=nearest):
        if other.lora_rank is None or (other.lora_rank, other.quantize) == (kind.lora_rank, kind.quantize):
            continue
        profiles = choose(situation.profiles, other)
        if plan := situation.best(
            profiles=profiles, request=replace(situation.request, kind=other, checkpointing=None)
        ):
            wanted = [f"--lora {other.lora_rank}"] + (
                [f"--quantize {other.quantize}"] if other.quantize else []
            )
            text = _helps(plan, _lora(other))
            yield Advice("lora" if not other.quantize else "qlora", text, tuple(wanted), plan)
            return


def _more_gpus(situation: Situation) -> Iterator[Advice]:
    """The fewest GPUs, in doublings, that share the model well enough."""
    request = situation.request
    for doubling in range(1, _DOUBLINGS + 1):
        gpus = request.gpus * 2**doubling
        if gpus > MOST_GPUS:
            return
        more = replace(request, gpus=gpus, replicas=gpus, sharding=None)
        if (plan := situation.best(request=more)) and plan.verdict == "fits":
            text = _helps(plan, Sentence("On {gpus} GPUs", gpus=gpus))
            yield Advice("gpus", text, (f"--gpus {gpus}",), plan)
            return


def _bigger_card(situation: Situation) -> Iterator[Advice]:
    """The smallest card of the same maker on which it fits; of cards alike in memory, the newest."""
    import numpy as np

    request = situation.request
    cards = [
        gpu
        for gpu in load_gpus()
        if gpu.vendor == request.gpu.vendor
        and gpu.memory_bytes > request.gpu.memory_bytes
        and (gpu.supports_bf16 or not request.gpu.supports_bf16)
    ]
    one = np.array([request.micro_batch or 1], dtype=np.int64)
    least = [
        (int(option.envelope.allocated(one, accumulates=False)[0]), option)
        for option in situation.options
        if request.reaches(option.replicas)
    ]
    for gpu in sorted(cards, key=lambda gpu: (gpu.memory_bytes, -gpu.year)):
        found = [option for nbytes, option in least if nbytes <= gpu.memory_bytes]
        asked = replace(request, gpu=gpu)
        if found and (plan := best_of(on_card(found, asked), asked)) and plan.verdict == "fits":
            change = Sentence("On {gpus} × {gpu}", gpus=request.gpus, gpu=gpu.name)
            yield Advice("gpu", _helps(plan, change), (f"--gpu {gpu.id}",), plan)
            return


CHANGES: tuple[Change, ...] = (_unpinned, _eight_bit, _shorter, _adapters, _more_gpus, _bigger_card)


def _lora(kind: Kind) -> Sentence:
    if kind.quantize:
        return Sentence(
            "With LoRA of rank {rank} on {quantize} weights", rank=kind.lora_rank, quantize=kind.quantize
        )
    return Sentence("With LoRA of rank {rank}", rank=kind.lora_rank)


def _helps(plan: Plan, change: Sentence) -> Sentence:
    """That it fits with a change, and how."""
    if plan.verdict == "fits":
        return Sentence("{change} it fits: {plan}.", change=change, plan=plan.summary)
    return Sentence("{change} it only just fits: {plan}.", change=change, plan=plan.summary)


def _nothing_helps(situation: Situation) -> Advice:
    states = situation.chosen[0].states
    text = Sentence(
        "No single change makes it fit: weights, gradients and optimizer states alone are {states} before sharding. "
        "Combine several, or take a smaller model.",
        states=Size(states.total_bytes),
    )
    return Advice("none", text, ())
