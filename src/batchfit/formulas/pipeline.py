"""Pipeline parallelism: the share of a step that stages stand idle, and the micro-batches whose activations they hold.

Each of p stages works on m micro-batches. Forward and backward of one micro-batch take every stage the same time,
and sending activations between stages takes none. Sources:

    GPipe           Huang et al. 2019, arXiv:1811.06965, section 2.3
    1F1B            Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1 (PipeDream-Flush)
    interleaved     the same, section 2.2.2; in flight: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3
    ZB-H1, ZB-H2    Qi et al. 2024, arXiv:2401.10241, section 2 and table 2, with forward, backward for the inputs and
                    backward for the weights taking the same time

Narayanan et al. give the bubble relative to the ideal time, (p - 1)/m; here it is a share of the whole step.
"""

from __future__ import annotations

import math

#: The schedules, as the formulas are given them.
GPIPE = 1
ONE_F_ONE_B = 2
INTERLEAVED = 3
ZB_H1 = 4
ZB_H2 = 5


def is_a_stage(stage: int, stages: int) -> bool:
    """Whether there is a stage of that number, counted from 1."""
    return 1 <= stage <= stages


def chunks_per_stage(schedule: int, chunks: int) -> int:
    """Pieces of the model on each stage: v where they are interleaved, otherwise one."""
    return chunks if schedule == INTERLEAVED else 1


def bubble_weight(schedule: int) -> float:
    """Idle time for each stage but one, in units of a micro-batch's forward and backward on a stage.

    Splitting backward in two leaves ZB-H1 one of three equal parts, and ZB-H2 nothing.
    """
    if schedule == ZB_H1:
        return 1 / 3
    return 0 if schedule == ZB_H2 else 1


def bubble_share(stages: int, micro_batches: int, chunks_in_use: int, idle_weight: float) -> float:
    """The part of a step that a stage stands idle, from 0 to 1: w·(p - 1) / (v·m + w·(p - 1))."""
    idle = idle_weight * (stages - 1)
    return idle / (chunks_in_use * micro_batches + idle)


def step_slowdown(stages: int, micro_batches: int, chunks_in_use: int, idle_weight: float) -> float:
    """How many times the ideal a step takes, the ideal being stages that never wait: 1 + w·(p - 1) / (v·m)."""
    return 1 + idle_weight * (stages - 1) / (chunks_in_use * micro_batches)


def in_flight(schedule: int, stages: int, micro_batches: int, chunks_in_use: int, stage: int) -> float:
    """Micro-batches whose activations stage number `stage` (1 is the first) holds at its peak, for all its layers.

    A fraction where chunks of the stage hold different numbers.
    """
    if schedule == GPIPE:
        most: float = micro_batches
    elif schedule == ONE_F_ONE_B:
        most = stages - stage + 1
    elif schedule == INTERLEAVED:
        most = ((chunks_in_use - 1) * stages + 2 * (stages - stage) + 1) / chunks_in_use
    elif schedule == ZB_H1:
        most = stages
    else:
        most = 2 * stages - 1
    return min(micro_batches, most)


def micro_batch_multiple(schedule: int, stages: int) -> int:
    """The number that micro-batches come in multiples of: interleaved stages take as many of a chunk as there are."""
    return stages if schedule == INTERLEAVED else 1


def micro_batches_needed(
    stages: int, chunks_in_use: int, idle_weight: float, multiple: int, bubble_limit: float
) -> int:
    """The fewest micro-batches, and so accumulation steps, that keep the bubble within a share of the step.

    `bubble_limit` is above 0 and below 1. Nine decimals are enough to tell a whole number from one that rounding
    has lifted a little.
    """
    units = idle_weight * (stages - 1) * (1 - bubble_limit) / (bubble_limit * chunks_in_use * multiple)
    return multiple * max(1, math.ceil(round(units, 9)))


def activation_memory_bytes(micro_batches_in_flight: float, stage_activation: int) -> int:
    """Bytes of activations that a stage holds at its peak; `stage_activation` is a micro-batch's on that stage."""
    return math.ceil(micro_batches_in_flight * stage_activation)
