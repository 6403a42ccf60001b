"""What each data-parallel replica holds: DDP, ZeRO and FSDP, as arithmetic on a profile. Imports no torch."""

from __future__ import annotations

from dataclasses import replace

from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile
from batchfit.records import to_json
from batchfit.sharding.ddp import DDP
from batchfit.sharding.edit import check_parts
from batchfit.sharding.fsdp import FSDP
from batchfit.sharding.fsdp1 import FLAT, FSDP1
from batchfit.sharding.zero import ZeRO

__all__ = ["DDP", "FSDP", "FSDP1", "NAMES", "Sharding", "ZeRO", "named", "shard"]

#: None: every GPU does the whole of it alone.
Sharding = DDP | ZeRO | FSDP | FSDP1 | None

_DEFAULTS: dict[str, Sharding] = {
    "none": None,
    "ddp": DDP(),
    "zero1": ZeRO(1),
    "zero2": ZeRO(2),
    "zero3": ZeRO(3),
    "fsdp": FSDP(),
    "fsdp1": FSDP1(),
}

#: The names people choose by.
NAMES = tuple(_DEFAULTS)


def named(name: str) -> Sharding:
    """The way of sharding by its name, with the framework's default settings. Raises BadInput."""
    try:
        return _DEFAULTS[name]
    except KeyError:
        raise BadInput(
            "sharding",
            "must be one of {allowed}; you typed {typed}",
            allowed=", ".join(NAMES),
            typed=repr(name),
        ) from None


def shard(profile: MemoryProfile, sharding: Sharding, replicas: int) -> MemoryProfile:
    """The profile of one of `replicas` data-parallel replicas, from that of a single GPU.

    With one replica, or no sharding, it is the same profile. What is computed (`compute`) stays that of one GPU
    alone: how a step's time falls with the replicas is the planner's to say. Raises BadInput where the profile
    does not say what its peaks are made of, or is sharded already.
    """
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
        raise BadInput(
            "replicas", "must be a whole number of 1 or more; you gave {given}", given=repr(replicas)
        )
    if sharding is None or replicas == 1:
        return profile
    if "sharding" in profile.settings and profile.settings["sharding"] not in (None, "none"):
        raise BadInput(
            "sharding", "is {given} in this profile already", given=repr(profile.settings["sharding"])
        )
    if profile.settings.get(FLAT) and not isinstance(sharding, FSDP1):
        raise BadInput(
            "sharding",
            "must be fsdp1 for a profile traced with {flat}; you gave {given}",
            flat=FLAT,
            given=sharding.name,
        )
    check_parts(profile)
    result = sharding.apply(profile, replicas)
    told = {"sharding": sharding.name, "sharding_settings": to_json(sharding), "replicas": replicas}
    return replace(
        result,
        settings={**profile.settings, **told},
        assumptions=(
            *result.assumptions,
            "Memory that the communication library takes for itself (NCCL: some hundred MiB) is not counted.",
            _RESERVED_BY_STREAM if isinstance(sharding, (FSDP, FSDP1)) else _RESERVED,
        ),
    )


_RESERVED = "What is reserved beyond what is allocated is taken to be the share it is on one GPU."
_RESERVED_BY_STREAM = (
    "What is reserved beyond what is allocated is taken to be the share it is on one GPU, and the streams in which "
    "FSDP gathers and reduces have pools of their own."
)
