"""What `batchfit trace` answers: a profile, seen at one micro-batch, number of accumulation steps and length."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchfit.profile import PHASES, Line, MemoryProfile, Peak


@dataclass(frozen=True)
class View:
    """A profile at these settings. Raises BadInput where it does not hold for them."""

    profile: MemoryProfile
    micro_batch: int
    accumulation_steps: int
    #: Tokens; None where samples have no length.
    seq_len: int | None
    peak: Peak = field(init=False)

    def __post_init__(self) -> None:
        found = self.profile.peak(self.micro_batch, self.accumulation_steps, self.seq_len)
        object.__setattr__(self, "peak", found)

    def highest(self, phase: str) -> Line | None:
        """The phase's highest line here; None where the phase does not occur."""
        if phase == "later_micro" and self.accumulation_steps == 1:
            return None
        lines = self.profile.phases.get(phase, ())
        return max(lines, key=lambda line: line.at(self.micro_batch, self.seq_len), default=None)

    def phases(self) -> list[tuple[str, Line, int]]:
        """The phases that occur, each with its highest line and that line's bytes."""
        found = ((phase, self.highest(phase)) for phase in PHASES)
        return [
            (phase, line, line.at(self.micro_batch, self.seq_len))
            for phase, line in found
            if line is not None
        ]
