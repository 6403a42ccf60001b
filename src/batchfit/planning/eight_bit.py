"""What an 8-bit optimizer makes of a profile made with an Adam of 16 or 32 bits: the same lines, smaller states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from batchfit.formulas.optimizer_state import BLOCK, SCALE_BYTES
from batchfit.kept import kept
from batchfit.profile import Line, MemoryProfile, Polynomial

#: Two states of one byte for each trained parameter, and for every block of 256 of each a scale of four bytes:
#: Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022), and bitsandbytes' block size since 0.44.
BYTES_PER_PARAMETER = 2 * (1 + SCALE_BYTES / BLOCK)

#: Optimizers with Adam's two states, which is what the 8-bit one replaces.
REPLACES = ("adamw", "adamw-fused", "adamw-single", "adam")

#: Profiles that are kept, so that what is made of them is, too: those of some twenty models.
_KEPT = 128


@kept(_KEPT)
def with_eight_bit_optimizer(profile: MemoryProfile) -> MemoryProfile | None:
    """The profile with AdamW's states in 8 bits; None where that would save nothing or the optimizer is another.

    Temporaries of the optimizer step are left as they were, so the step's own peak is, if anything, too high.
    """
    if profile.settings.get("optimizer", "adamw") not in REPLACES:
        return None
    states = round(profile.model.trainable_parameters * BYTES_PER_PARAMETER)
    saved = profile.states.optimizer_bytes - states
    if saved <= 0:
        return None
    return replace(
        profile,
        settings={**profile.settings, "optimizer": "adamw-8bit"},
        states=replace(profile.states, optimizer_bytes=states),
        assumptions=(
            *profile.assumptions,
            "The 8-bit AdamW's memory is computed from its bytes per parameter.",
        ),
        phases={
            phase: tuple(_less(line, saved) for line in lines) for phase, lines in profile.phases.items()
        },
    )


def with_eight_bit(profiles: Sequence[MemoryProfile]) -> tuple[MemoryProfile, ...]:
    """The profiles, and where none is of an 8-bit AdamW, those made from them."""
    if any(profile.settings.get("optimizer") == "adamw-8bit" for profile in profiles):
        return tuple(profiles)
    made = (with_eight_bit_optimizer(profile) for profile in profiles)
    return (*profiles, *(profile for profile in made if profile is not None))


def _less(line: Line, saved: int) -> Line:
    constant, slope = line.parts.get("optimizer", ((0.0,), (0.0,)))
    parts = {**line.parts, "optimizer": (_lower(constant, saved), slope)}
    return replace(line, constant=_lower(line.constant, saved), parts=parts)


def _lower(polynomial: Polynomial, by: int) -> Polynomial:
    return (polynomial[0] - by, *polynomial[1:])
