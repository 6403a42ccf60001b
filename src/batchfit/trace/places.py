"""Which points of a timeline a profile keeps so that it can be sharded: the highest of each place, not only of all.

On one GPU the envelope over everything is enough. A replica that holds a share of the weights and gradients has
its peak elsewhere: where all gradients are alive stops mattering, and what comes next may have been hidden
below it. Blocks that are alike differ by a constant from one to the next, so the first and the last that run stand
for all.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from batchfit.trace.timeline import MARK, Timeline


class Places:
    """Where in the model each point of a step is, if the step's events are those of `timeline` in this `order`, in
    which stretches may follow one another several times, once for each block of the whole model."""

    def __init__(self, timeline: Timeline, order: torch.Tensor) -> None:
        groups: dict[tuple[str, str], int] = {}
        blocks: list[tuple[int, int]] = []
        phase = ""
        for event in timeline.events:
            if event.kind == MARK:
                phase = timeline.marks[event.stack].phase
            stem, number = _block(timeline.modules.get(event.storage, ""))
            blocks.append((groups.setdefault((phase, stem), len(groups)), number))
        places = torch.tensor(blocks, dtype=torch.long).reshape(-1, 2)[order]
        self._group = places[:, 0]
        # A block is told by its number, and by how many stretches have followed themselves since the last mark.
        again = torch.cat((torch.zeros(1, dtype=torch.long), (order[1:] <= order[:-1]).long().cumsum(0)))
        is_mark = torch.tensor([event.kind == MARK for event in timeline.events], dtype=torch.bool)[order]
        since = torch.where(is_mark, again, 0).cummax(0).values
        outside = torch.tensor([not stem for _, stem in groups], dtype=torch.bool)[self._group]
        self._block = torch.where(outside, 0, (again - since) * len(timeline.events) + places[:, 1])

    def ends(self, points: torch.Tensor) -> Iterator[torch.Tensor]:
        """Of the points in each phase of a micro-batch, in each list of blocks and outside of any: those in the first
        of the blocks to run, and those in the last."""
        group, block = self._group[points], self._block[points]
        for number in group.unique():
            inside = points[group == number]
            own = block[group == number]
            for end in {int(own[0]), int(own[-1])}:
                yield inside[own == end]


def _block(module: str) -> tuple[str, int]:
    """The block a module is in: "model.layers.11.mlp" gives ("model.layers", 11); outside any, ("", 0)."""
    stem: list[str] = []
    for piece in module.split("."):
        if piece.isdigit():
            return ".".join(stem), int(piece)
        stem.append(piece)
    return "", 0
