"""The options a plan chooses among: a profile (a kind of checkpointing), a sharding and a number of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchfit.errors import BadInput
from batchfit.kept import kept
from batchfit.planning.envelope import Envelope
from batchfit.planning.fit import Capacity, capacity
from batchfit.planning.rates import Rates, computes_in, rates
from batchfit.planning.request import Request
from batchfit.planning.throughput import StepClock, clock
from batchfit.planning.traits import checkpointing_of, seq_len_for
from batchfit.profile import MemoryProfile

#: Sharded profiles that are kept: those of a few dozen answers, some ten kilobytes each.
_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Option:
    """One of the options, with what is needed to judge its plans. `whole` is the profile as it was given."""

    whole: MemoryProfile
    sharding: str
    checkpointing: str
    replicas: int
    seq_len: int | None
    capacity: Capacity
    clock: StepClock | None

    @property
    def profile(self) -> MemoryProfile:
        """The profile of one of the replicas. It is made where it is asked for: many options reach no target."""
        return sharded(self.whole, self.sharding, self.replicas)

    @property
    def envelope(self) -> Envelope:
        """The peaks of one of the replicas."""
        return _envelope(self.profile, self.seq_len)


def options(profiles: Sequence[MemoryProfile], request: Request) -> list[Option]:
    """Every option that the request leaves open, most replicas first."""
    found = []
    speeds = _speeds(profiles, request)
    for replicas in request.replica_counts():
        room = capacity(request.gpu, replicas, request.headroom)
        for profile in profiles:
            seq_len = seq_len_for(profile, request.seq_len)
            for sharding in _shardings(profile, request, replicas):
                found.append(
                    Option(
                        profile,
                        sharding,
                        checkpointing_of(profile),
                        replicas,
                        seq_len,
                        room,
                        clock(profile, speeds[computes_in(profile)], sharding, replicas, seq_len),
                    )
                )
    return found


@kept(_KEPT)
def _envelope(profile: MemoryProfile, seq_len: int | None) -> Envelope:
    """A profile's envelope. One answer asks for the same ones again and again: for advice, for other cards, for other
    numbers of GPUs."""
    return Envelope(profile, seq_len)


def _shardings(profile: MemoryProfile, request: Request, replicas: int) -> tuple[str, ...]:
    """The shardings to try. What cannot be told apart, as in a profile from measured points, cannot be shared out."""
    shardings = request.shardings(replicas)
    if profile.provenance.how != "measured":
        return shardings
    whole = tuple(name for name in shardings if name in ("none", "ddp"))
    if shardings and not whole:
        raise BadInput(
            "sharding",
            "must be ddp: a profile from measured points does not tell weights, gradients and states apart; "
            "you gave {given}",
            given=repr(request.sharding),
        )
    return whole


def on_card(found: Sequence[Option], request: Request) -> list[Option]:
    """The same options on the request's card, where only that differs from the request they were made for."""
    speeds = _speeds([option.whole for option in found], request)
    return [
        replace(
            option,
            capacity=capacity(request.gpu, option.replicas, request.headroom),
            clock=clock(
                option.whole,
                speeds[computes_in(option.whole)],
                option.sharding,
                option.replicas,
                option.seq_len,
            ),
        )
        for option in found
    ]


@kept(_KEPT)
def sharded(profile: MemoryProfile, sharding: str, replicas: int) -> MemoryProfile:
    """The profile of one of `replicas` in this sharding."""
    if sharding == "none" or replicas == 1 or profile.provenance.how == "measured":
        return profile
    from batchfit.sharding import named, shard

    return shard(profile, named(sharding), replicas)


def _speeds(profiles: Sequence[MemoryProfile], request: Request) -> dict[str, Rates | None]:
    """What the card reaches in each precision that these profiles compute in."""
    return {
        precision: rates(request.gpu, precision, request.interconnect)
        for precision in {computes_in(profile) for profile in profiles}
    }
