"""How many elements a profile's weights have, and in which types they are kept and computed with when sharded."""

from __future__ import annotations

from dataclasses import dataclass

from batchfit.profile import Line, MemoryProfile
from batchfit.sharding.edit import ITEM_BYTES, Amount, constant, part


@dataclass(frozen=True, slots=True)
class Elements:
    """The weights of a profile, for ways of sharding that keep them in one type and compute in another.

    A profile of mixed precision was traced with fp32 weights and autocast's 16-bit copies of them. DeepSpeed
    and FSDP compute with 16-bit weights instead, so the copies are no more.
    """

    total: int
    trainable: int
    #: Bytes of all weights as they are computed with.
    computed_weights: float
    #: Bytes of one gradient element as computed.
    compute_bytes: float
    #: What the traced optimizer state is multiplied by if kept in fp32.
    to_fp32: float
    #: The buffers of the model itself; None where a line's buffers are taken as they are.
    own_buffers: int | None

    @classmethod
    def of(cls, profile: MemoryProfile) -> Elements:
        """Reads them from the profile's units and its setting `precision`."""
        units = profile.model.units
        total = sum(u.count * u.parameters for u in units)
        trainable = sum(u.count * u.trainable_parameters for u in units)
        weights = sum(u.count * u.weights_bytes for u in units)
        trained = sum(u.count * u.trainable_weights_bytes for u in units)
        item = trained / trainable if trainable else 4.0
        compute, mixed = mixed_type(profile)
        if mixed:
            return cls(total, trainable, compute * total, compute, 4 / item, profile.states.buffers_bytes)
        return cls(total, trainable, weights, item, 4 / item, None)

    def without_cast_copies(self, line: Line) -> Amount:
        """The line's buffers without autocast's copies of the weights."""
        buffers = part(line, "buffers")
        return buffers if self.own_buffers is None else constant(min(buffers[0][0], self.own_buffers))


def mixed_type(profile: MemoryProfile) -> tuple[int, bool]:
    """The bytes of the type a mixed-precision profile computes in, and whether it is one."""
    name, _, mixed = str(profile.settings.get("precision", "")).partition("-")
    return (ITEM_BYTES.get(name, 4), True) if mixed == "mixed" else (0, False)
