"""What a profile was made with, and which of a model's profiles a plan is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile

#: Where several would do, the first is taken, as in a trace: all in 16 bits, which is how models are loaded now.
PRECISIONS = ("bf16", "bf16-mixed", "fp16-mixed", "fp16", "fp32")
OPTIMIZERS = ("adamw", "adamw-fused", "adamw-single")
#: From the simplest: each step down costs more recomputation, or more thought.
CHECKPOINTING = ("none", "selective", "full")

#: The sequence length planned for where none is asked for: what published fine-tuning runs use most.
USUAL_SEQ_LEN = 4096


@dataclass(frozen=True, slots=True)
class Kind:
    """What is trained and how, apart from what a plan chooses. None as a wish: whatever there is."""

    precision: str | None = None
    optimizer: str | None = None
    lora_rank: int | None = None
    quantize: str | None = None
    attention: str | None = None
    trainer: str | None = None
    loss: str | None = None


def kind_of(profile: MemoryProfile) -> Kind:
    """The kind that a profile's settings describe."""
    settings = profile.settings
    return Kind(
        precision=_text(settings.get("precision")),
        optimizer=_text(settings.get("optimizer")),
        lora_rank=lora_rank(settings.get("lora")),
        quantize=_text(settings.get("quantize")),
        attention=_text(settings.get("attention")),
        trainer=_text(settings.get("trainer")),
        loss=_text(settings.get("loss")),
    )


def checkpointing_of(profile: MemoryProfile) -> str:
    """ "none", "selective" or "full". Raises BadInput where the profile has another word for it."""
    said = _text(profile.settings.get("checkpointing")) or "none"
    if said not in CHECKPOINTING:
        template = "is {given} in this profile; known are {known}"
        raise BadInput("checkpointing", template, given=repr(said), known=", ".join(CHECKPOINTING))
    return said


def lora_rank(setting: object) -> int | None:
    """The rank in a profile's `lora` setting, which is a number or an object with it; None where all is trained."""
    if isinstance(setting, dict):
        setting = setting.get("rank", setting.get("r"))
    return setting if isinstance(setting, int) and not isinstance(setting, bool) and setting > 0 else None


def _text(setting: object) -> str | None:
    return setting if isinstance(setting, str) and setting != "none" else None


def choose(
    profiles: Sequence[MemoryProfile], wish: Kind, checkpointing: str | None = None, *, bf16: bool = True
) -> tuple[MemoryProfile, ...]:
    """The profiles of the one kind that a plan is for: as wished, and where the wish is open, as preferred.

    They differ in checkpointing alone; `checkpointing` pins it. LoRA and quantisation are never chosen unasked,
    unless there is nothing else; nor is bf16 on a card without `bf16`. Raises BadInput naming the wish that no profile
    meets.
    """
    if not profiles:
        raise BadInput("profile", "is needed: there is none to plan with")
    for profile in profiles:
        _check_whole(profile)
    left = list(profiles)
    for field in fields(Kind):
        wanted = getattr(wish, field.name)
        if wanted is not None:
            left = _those(left, field.name, wanted, partial(_trait, field.name))
    chosen = min((kind_of(profile) for profile in left), key=partial(_preference, bf16))
    left = [profile for profile in left if kind_of(profile) == chosen]
    if checkpointing is not None:
        left = _those(left, "checkpointing", checkpointing, checkpointing_of)
    return tuple(sorted(left, key=lambda p: CHECKPOINTING.index(checkpointing_of(p))))


def _check_whole(profile: MemoryProfile) -> None:
    """The planner shards by itself, so what it starts from is a replica that holds everything."""
    sharding = profile.settings.get("sharding")
    if sharding not in (None, "none"):
        template = (
            "is of a replica in {sharding} already; save it without sharding, which the planner chooses"
        )
        raise BadInput("profile", template, sharding=str(sharding))


def _trait(name: str, profile: MemoryProfile) -> object:
    return getattr(kind_of(profile), name)


def _those(
    profiles: Sequence[MemoryProfile], name: str, wanted: object, of: Callable[[MemoryProfile], object]
) -> list[MemoryProfile]:
    """The profiles that have the wanted value; BadInput naming what there is where none has."""
    found = [profile for profile in profiles if of(profile) == wanted]
    if not found:
        there = sorted({str(of(profile)) for profile in profiles})
        raise BadInput(
            name,
            "{wanted} is not among this model's profiles; there are {there}",
            wanted=str(wanted),
            there=", ".join(there),
        )
    return found


def _preference(bf16: bool, kind: Kind) -> tuple[object, ...]:
    return (
        kind.lora_rank or 0,
        kind.quantize or "",
        not bf16 and (kind.precision or "").startswith("bf16"),
        _place(kind.precision, PRECISIONS),
        _place(kind.optimizer, OPTIMIZERS),
        kind.trainer or "",
        kind.loss not in (None, "full"),
        kind.attention or "",
    )


def _place(value: str | None, order: tuple[str, ...]) -> int:
    return order.index(value) if value in order else len(order)


def holding(profiles: Sequence[MemoryProfile], asked: int | None) -> tuple[MemoryProfile, ...]:
    """The profiles whose range of lengths holds the one asked for, or the usual one; where none does, the nearest.

    Where attention looks back over a window, a model has one profile for lengths within it and one for those beyond.
    """
    wanted = asked or USUAL_SEQ_LEN

    def away(profile: MemoryProfile) -> int:
        span = profile.seq_len
        return 0 if span is None else max(span.minimum - wanted, wanted - span.maximum, 0)

    nearest = min(map(away, profiles), default=0)
    return tuple(profile for profile in profiles if away(profile) == nearest)


def seq_len_for(profile: MemoryProfile, asked: int | None) -> int | None:
    """The sequence length to plan for: the one asked for, the only one there is, or the usual one within the range.

    Raises BadInput where the profile is of another length.
    """
    span = profile.seq_len
    if span is not None:
        if asked is None:
            return min(max(USUAL_SEQ_LEN, span.minimum), span.maximum)
        if not span.minimum <= asked <= span.maximum:
            template = (
                "must be between {minimum} and {maximum} tokens, which is what was traced; you gave {given}"
            )
            raise BadInput("seq_len", template, minimum=span.minimum, maximum=span.maximum, given=asked)
        return asked
    traced = profile.settings.get("seq_len")
    if asked is not None and isinstance(traced, int) and asked != traced:
        raise BadInput(
            "seq_len", "must be {traced}, the length traced; you gave {given}", traced=traced, given=asked
        )
    # A profile of one length, or without any, such as of a vision model, needs none to be evaluated.
    return asked if asked is not None else (traced if isinstance(traced, int) else None)
