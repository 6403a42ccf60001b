"""The planner: from the batch a person wants to the settings that fit and are fastest.

    plan(profiles, batch=256, gpu="h100-80gb", gpus=8)     the plans, best first
    elastic(profiles, [1, 2, 4, 8], batch=256, gpu=...)    one batch held across GPU counts

It reads memory profiles and never imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from batchfit.gpus import Gpu, find_gpu
from batchfit.planning.advice import Situation, advise, quicker
from batchfit.planning.eight_bit import with_eight_bit
from batchfit.planning.fit import capacity
from batchfit.planning.free import notes
from batchfit.planning.gpu_counts import Elastic
from batchfit.planning.nearest import beside, in_memory
from batchfit.planning.options import Option
from batchfit.planning.pareto import front
from batchfit.planning.present import Comparison, predict
from batchfit.planning.rank import Scores
from batchfit.planning.rates import computes_in
from batchfit.planning.request import Request
from batchfit.planning.result import Advice, Nearest, Plan, Plans
from batchfit.planning.search import best_first, plans_at, search
from batchfit.planning.sensitivity import Curve, sensitivity
from batchfit.planning.target import parse_target
from batchfit.planning.traits import Kind, choose, holding, seq_len_for
from batchfit.profile import MemoryProfile
from batchfit.samples import samples_of
from batchfit.sentences import Rounded, Sentence, Share

__all__ = [
    "Advice",
    "Comparison",
    "Elastic",
    "Kind",
    "Nearest",
    "Plan",
    "Plans",
    "Situation",
    "answer",
    "compare",
    "elastic",
    "plan",
    "situate",
]

#: Plans answered with by default.
TOP = 10


def plan(
    profile: MemoryProfile | Sequence[MemoryProfile],
    *,
    batch: int | str,
    gpu: str | Gpu,
    gpus: int = 1,
    seq_len: int | None = None,
    tolerance: int | str = 0,
    top: int = TOP,
    precision: str | None = None,
    optimizer: str | None = None,
    lora_rank: int | None = None,
    quantize: str | None = None,
    attention: str | None = None,
    trainer: str | None = None,
    micro_batch: int | None = None,
    accumulation_steps: int | None = None,
    max_accumulation: int | None = None,
    replicas: int | None = None,
    sharding: str | None = None,
    checkpointing: str | None = None,
    headroom: str | int | None = None,
    interconnect: float | None = None,
) -> Plans:
    """The plans that reach `batch` on `gpus` cards of the kind `gpu`, best first.

    `profile` is one profile, or the several that a model has for kinds of training and checkpointing. `batch` is in
    samples (256) or tokens ("4M-tokens", for samples of `seq_len` tokens), met exactly or within `tolerance` ("5%", or
    samples). What is None is chosen. `headroom` is a share ("5%"), a size ("2GiB") or bytes; `interconnect` bytes per
    second and GPU between nodes.

    Raises BadInput naming the field that cannot be used. That nothing fits is an answer, not an error.
    """
    kind = Kind(precision, optimizer, lora_rank, quantize, attention, trainer)
    pins = {
        "micro_batch": micro_batch,
        "accumulation_steps": accumulation_steps,
        "most_accumulation": max_accumulation,
        "replicas": replicas,
        "sharding": sharding,
        "checkpointing": checkpointing,
    }
    situation = situate(
        profile,
        kind,
        batch=batch,
        tolerance=tolerance,
        gpu=gpu,
        gpus=gpus,
        seq_len=seq_len,
        headroom=headroom,
        interconnect=interconnect,
        **pins,
    )
    return answer(situation, top)


def situate(
    profile: MemoryProfile | Sequence[MemoryProfile],
    kind: Kind,
    *,
    batch: int | str,
    tolerance: int | str = 0,
    gpu: str | Gpu,
    **asked: Any,
) -> Situation:
    """What is asked, checked, with the profiles that it is asked of. `asked` are fields of `Request`."""
    profiles = holding((profile,) if isinstance(profile, MemoryProfile) else profile, asked.get("seq_len"))
    if kind.optimizer == "adamw-8bit":
        profiles = with_eight_bit(profiles)
    card = gpu if isinstance(gpu, Gpu) else find_gpu(gpu)
    chosen = choose(profiles, kind, asked.get("checkpointing"), bf16=card.supports_bf16)
    request = Request(
        target=parse_target(
            batch, seq_len_for(chosen[0], asked.get("seq_len")), tolerance, samples_of(chosen[0])
        ),
        gpu=card,
        kind=kind,
        **asked,
    )
    return Situation(profiles, chosen, request)


def compare(situation: Situation, plans: Plans) -> Comparison:
    """The pinned settings of a situation beside the best of `plans`."""
    return Comparison(predict(situation.chosen, situation.request), plans.best)


def elastic(profile: MemoryProfile | Sequence[MemoryProfile], gpus: Sequence[int], **asked: Any) -> Elastic:
    """One batch held across these numbers of GPUs: `plan` for each, with the same other arguments."""
    return Elastic(tuple(plan(profile, gpus=count, **asked) for count in gpus))


def answer(situation: Situation, top: int = TOP) -> Plans:
    """Searches, ranks, and says what is nearest and what to change where the target is not met."""
    request = situation.request
    found = situation.options
    scores = search(found, request)
    ranked = best_first(scores, found)
    # Tight plans are told only where nothing fits for sure: they come last anyway.
    sure = [index for index in ranked if not scores.tight[index]] or ranked
    plans = plans_at(sure[:top], scores, found, request)
    nearest = _nearest(plans, found, request)
    return Plans(
        model=situation.chosen[0].model.name,
        target=request.target,
        gpu=request.gpu.id,
        gpus=request.gpus,
        seq_len=seq_len_for(situation.chosen[0], request.seq_len),
        plans=plans,
        front=plans_at(_front(scores), scores, found, request),
        nearest=nearest,
        advice=_advice(situation, plans),
        notes=(
            *_no_bf16(situation),
            *_fewer(plans, sure, scores, found, request),
            *(notes(plans[0], found[int(scores.option[sure[0]])]) if plans else ()),
        ),
        curve=_curve(plans, nearest, found),
        capacity=capacity(request.gpu, request.replicas or request.gpus, request.headroom),
        assumptions=_assumptions(situation, found),
        time_sources=_sources(found),
        considered=len(scores),
    )


def _no_bf16(situation: Situation) -> tuple[str, ...]:
    """A card that cannot compute in the profiles' precision is told before anything else."""
    precision, gpu = computes_in(situation.chosen[0]), situation.request.gpu
    if gpu.supports_bf16 or not precision.startswith("bf16"):
        return ()
    other = precision.replace("bf16", "fp16")
    return (
        Sentence(
            "{gpu} does not compute in bf16: train in {other}, which takes as much memory.",
            gpu=gpu.name,
            other=other,
        ),
    )


def _fewer(
    plans: Sequence[Plan], ranked: Sequence[int], scores: Scores, found: Sequence[Option], request: Request
) -> tuple[str, ...]:
    """Why the best plan leaves GPUs idle: those on all of them are slower, or there are none."""
    if not plans or request.replicas is not None or plans[0].replicas == request.gpus:
        return ()
    best = float(scores.seconds[ranked[0]])
    for index in ranked:
        if found[int(scores.option[index])].replicas == request.gpus:
            slower = float(scores.seconds[index]) / best
            return (
                Sentence(
                    "All {gpus} GPUs would take {slower} times as long: communication outweighs them.",
                    gpus=request.gpus,
                    slower=Rounded(slower, 2),
                ),
            )
    return (
        Sentence(
            "No plan reaches the batch exactly on all {gpus} GPUs; the nearest ones use them all.",
            gpus=request.gpus,
        ),
    )


def _front(scores: Scores) -> list[int]:
    return front(scores) if len(scores) else []


def _nearest(plans: Sequence[Plan], found: Sequence[Option], request: Request) -> tuple[Nearest, ...]:
    """Beside the target where all the GPUs do not reach it exactly; by memory where nothing fits at all."""
    if any(each.replicas == (request.replicas or request.gpus) and each.drift == 0 for each in plans):
        return ()
    nearest = beside(found, request) or (() if plans else in_memory(found, request))
    return tuple(replace(near, plan=_timed(near.plan, plans)) for near in nearest)


def _timed(plan: Plan, plans: Sequence[Plan]) -> Plan:
    """A plan beside the target with its time per sample over that of the fastest plan."""
    times = [each.seconds_per_sample for each in plans if each.seconds_per_sample is not None]
    if not times or plan.seconds_per_sample is None:
        return plan
    return replace(plan, relative_step_time=plan.seconds_per_sample / min(times))


def _curve(plans: Sequence[Plan], nearest: Sequence[Nearest], found: Sequence[Option]) -> Curve | None:
    """Of the first plan there is."""
    for each in [*plans, *(near.plan for near in nearest)][:1]:
        for option in found:
            if (option.sharding, option.checkpointing, option.replicas) == each.option:
                return sensitivity(option, each)
    return None


def _advice(situation: Situation, plans: Sequence[Plan]) -> tuple[Advice, ...]:
    return quicker(situation, plans[0]) if plans else advise(situation)


def _assumptions(situation: Situation, found: Sequence[Option]) -> tuple[str, ...]:
    """What the profile assumes, and what the card's figures do."""
    profile = situation.chosen[0]
    said = list(profile.assumptions)
    if not profile.affinity.affine:
        off: str = ""
        if profile.affinity.deviation:
            off = Sentence(" (off by {deviation})", deviation=Share(profile.affinity.deviation, 1))
        said.append(
            Sentence(
                "This model's memory is no straight line in the micro-batch{off}: the headroom has to "
                "cover that.",
                off=off,
            )
        )
    said += [text for option in found[:1] for text in option.capacity.assumptions]
    return tuple(dict.fromkeys(said))


def _sources(found: Sequence[Option]) -> tuple[str, ...]:
    """Where the rates that times are computed from come from."""
    return next((option.rates.sources for option in found if option.rates and option.timed), ())
