"""The options a plan chooses among: a profile (a kind of checkpointing), a sharding and a number of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from batchfit.errors import BadInput
from batchfit.kept import kept
from batchfit.planning.envelope import Envelope
from batchfit.planning.fit import Capacity, capacity
from batchfit.planning.rates import Rates, computes_in, rates
from batchfit.planning.request import Request
from batchfit.planning.throughput import StepClock, clock, tells_time
from batchfit.planning.traits import checkpointing_of, seq_len_for
from batchfit.profile import MemoryProfile

#: Envelopes that are kept: those of a few dozen answers. Fewer sharded profiles, of which only the plans that are told
#: need more than that: those of an answer or two, some ten kilobytes each.
_KEPT = 1024
_KEPT_PROFILES = 256


@dataclass(frozen=True)
class Option:
    """One of the options, with what is needed to judge its plans. `whole` is the profile as it was given, `rates` are
    what the card reaches in its precision. All else is made where it is asked for: most options reach no target, or fit
    nowhere."""

    whole: MemoryProfile
    sharding: str
    checkpointing: str
    replicas: int
    seq_len: int | None
    capacity: Capacity
    rates: Rates | None

    @property
    def profile(self) -> MemoryProfile:
        """The profile of one of the replicas."""
        return sharded(self.whole, self.sharding, self.replicas)

    @property
    def timed(self) -> bool:
        """Whether the time of its plans can be told."""
        return tells_time(self.whole, self.rates)

    @cached_property
    def clock(self) -> StepClock | None:
        """The time of its plans; None where it cannot be told."""
        return clock(self.whole, self.rates, self.sharding, self.replicas, self.seq_len)

    @cached_property
    def envelope(self) -> Envelope:
        """The peaks of one of the replicas."""
        return _envelope(self.whole, self.sharding, self.replicas, self.seq_len)


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
                        speeds[computes_in(profile)],
                    )
                )
    return found


@kept(_KEPT)
def _envelope(profile: MemoryProfile, sharding: str, replicas: int, seq_len: int | None) -> Envelope:
    """The envelope of one of the replicas. One answer asks for the same ones again and again: for advice, for other
    cards, for other numbers of GPUs."""
    return Envelope(sharded(profile, sharding, replicas), seq_len)


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
            rates=speeds[computes_in(option.whole)],
        )
        for option in found
    ]


@kept(_KEPT_PROFILES)
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
