"""Pipeline schedules run on a clock: what the formulas for the bubble and for micro-batches in flight are held against.

A schedule is, for each stage, the order of its operations. An operation starts when its stage is free and what it
needs is there; sending takes no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Op:
    """Forward "F", backward "B" (where "W" is apart, for the inputs) of a micro-batch in a chunk of a stage."""

    kind: str
    micro_batch: int
    chunk: int = 0


Orders = list[list[Op]]


def gpipe(stages: int, m: int) -> Orders:
    """All forwards, then all backwards."""
    order = [Op("F", i) for i in range(m)] + [Op("B", i) for i in reversed(range(m))]
    return [order] * stages


def one_f_one_b(stages: int, m: int) -> Orders:
    """Forwards for as many micro-batches as there are later stages, then one of each in turn."""
    return [
        _in_turn([Op("F", i) for i in range(m)], [Op("B", i) for i in range(m)], min(m, stages - 1 - stage))
        for stage in range(stages)
    ]


def interleaved(stages: int, m: int, chunks: int) -> Orders:
    """1F1B over `chunks` pieces of the model on each stage, `stages` micro-batches of a piece at a time."""

    def op(kind: str, k: int) -> Op:
        chunk = k // stages % chunks
        micro_batch = k // (stages * chunks) * stages + k % stages
        return Op(kind, micro_batch, chunk if kind == "F" else chunks - 1 - chunk)

    total = m * chunks
    forwards, backwards = ([op(kind, k) for k in range(total)] for kind in "FB")
    return [
        _in_turn(forwards, backwards, min(total, 2 * (stages - 1 - stage) + (chunks - 1) * stages))
        for stage in range(stages)
    ]


def zero_bubble(stages: int, m: int, ahead: int) -> Orders:
    """ZB-H1 (`ahead` is 1) and ZB-H2 (2): so many forwards early for each later stage, and weight gradients that lag
    by as many micro-batches for each earlier one."""
    orders = []
    for stage in range(stages):
        order = [Op("F", i) for i in range(min(m, ahead * (stages - 1 - stage) + 1))]
        forwards, weights = len(order), 0
        for i in range(m):
            order.append(Op("B", i))
            if i - weights >= ahead * stage:
                order.append(Op("W", weights))
                weights += 1
            if forwards < m:
                order.append(Op("F", forwards))
                forwards += 1
        order += [Op("W", i) for i in range(weights, m)]
        orders.append(order)
    return orders


def _in_turn(forwards: list[Op], backwards: list[Op], ahead: int) -> list[Op]:
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[len(forwards) - ahead :]


def makespan(orders: Orders, times: dict[str, Fraction]) -> Fraction:
    """When the last stage is done. `times` are those of an operation on a whole stage, by kind."""
    return max(end for _, end in spans(orders, times))


def spans(orders: Orders, times: dict[str, Fraction]) -> list[tuple[Fraction, Fraction]]:
    """When each stage begins its first operation and ends its last."""
    stages = len(orders)
    chunks = 1 + max(op.chunk for op in orders[0])
    done: dict[tuple[int, Op], Fraction] = {}
    starts: list[list[Fraction]] = [[] for _ in orders]
    clocks = [Fraction(0)] * stages
    while any(len(begun) < len(order) for begun, order in zip(starts, orders, strict=True)):
        before = len(done)
        for stage, order in enumerate(orders):
            for op in order[len(starts[stage]) :]:
                needed = _needs(op, stage, stages, chunks)
                if needed is not None and needed not in done:
                    break
                start = max(clocks[stage], done[needed] if needed else Fraction(0))
                starts[stage].append(start)
                clocks[stage] = done[stage, op] = start + times[op.kind] / chunks
        assert len(done) > before, "a schedule that waits for itself"
    return [(begun[0], end) for begun, end in zip(starts, clocks, strict=True)]


def _needs(op: Op, stage: int, stages: int, chunks: int) -> tuple[int, Op] | None:
    """The operation whose result an operation needs first."""
    if op.kind == "W":
        return stage, Op("B", op.micro_batch, op.chunk)
    place = op.chunk * stages + stage
    if op.kind == "F":
        return None if place == 0 else ((place - 1) % stages, Op("F", op.micro_batch, (place - 1) // stages))
    if place == stages * chunks - 1:
        return stage, Op("F", op.micro_batch, op.chunk)
    return (place + 1) % stages, Op("B", op.micro_batch, (place + 1) // stages)


def most_in_flight(order: list[Op]) -> Fraction:
    """The most micro-batches whose activations a stage holds while it goes through its order."""
    chunks = 1 + max(op.chunk for op in order)
    last = "W" if any(op.kind == "W" for op in order) else "B"
    held = most = 0
    for op in order:
        held += (op.kind == "F") - (op.kind == last)
        most = max(most, held)
    return Fraction(most, chunks)
