"""Formulas that between them use all that can be translated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from batchfit.formulas import batching

BLOCK = 512
RATIO = 0.25
EXACTLY = True


class Memory(NamedTuple):
    states: int
    fits: bool
    share: float


@dataclass(frozen=True)
class Range:
    low: float
    high: float


def arithmetic(x: int, y: int) -> int:
    """Keeps the order of operations: (x + y)*x - (x - (y - 2)*-3)."""
    return (x + y) * x - (x - (y - 2) * -3) - -y


def division(x: float, y: float) -> float:
    return x / y / 2 + x / (y / 3)


def whole_division(x: int, y: int) -> int:
    return x // y * 3 + x % y


def float_division(x: float, y: float) -> float:
    return x // y - x % y


def division_up(x: int, y: int) -> int:
    return -(-x // y)


def powers(x: int, n: int) -> float:
    return float(x**n - -(x**2))


def real_powers(x: float, y: float) -> float:
    return float(x**y) + math.pow(2, y) * math.pow(3, -y)


def comparisons(x: int, y: int) -> bool:
    return 0 < x <= y != 7 or not (x == y or (x >= 10 and y > 3))


def choices(x: int, y: int, exact: bool) -> int:
    rounded = BLOCK if exact and EXACTLY else 2 if x < y else -1
    return rounded * (x if exact else y)


def branches(x: int, y: int) -> int:
    total = 0
    if x > y:
        total += x
        larger = x
    elif x == y:
        return 2 * x
    else:
        larger = y
        total -= 1
    if larger % 2 == 0:
        total *= 3
    return total + larger


def rounding(x: float) -> int:
    return math.ceil(x) * 3 + math.floor(x) * 5 + round(x) * 7 + int(x) * 11 + math.trunc(-x)


def digits(x: float) -> float:
    return round(x, 2) + round(x, 0) + round(x * 8, 1) / 8


def extremes(x: float, y: float, z: int) -> float:
    return max(x, y, z) - min(x, y) * abs(min(z, -z))


def roots(x: float) -> float:
    return math.sqrt(x) * math.log2(x) + math.log(x) + math.log10(x) + math.log(x, 3)


def exponential(x: float) -> float:
    return math.exp(x) - math.exp(-x)


def half_cosine(x: float) -> float:
    return (1 + math.cos(math.pi * x)) / 2


def sums(n: int, x: int) -> int:
    even = sum(i * x for i in range(1, n + 1) if i % 2 == 0)
    down = sum(j**2 for j in range(n, 0, -3))
    return even + down + sum(1 for k in range(n))


def total(n: int, x: int) -> int:
    return sum(i * x for i in range(1, n + 1) if i % 2 == 0) + sum(j + 1 for j in range(n))


def stepwise(x: int, y: int) -> int:
    result = x + y
    result *= x
    return result


def clipped(x: float, y: float) -> float:
    return min(x, 0.5) if x > 0 and y > 1000.5 else 0


def share(x: float, y: float) -> float:
    return float((x / math.sqrt(y)) ** 2)


def constants(x: float) -> float:
    return x * BLOCK * RATIO + math.pi


def pair(x: int, y: int) -> tuple[int, float]:
    return x // y, x / 2


def uses_pair(x: int, y: int) -> float:
    quotient, half = pair(x, y)
    first = pair(y, x)[0]
    return quotient + half * first


def record(x: int, y: int) -> Memory:
    states = x * 16
    return Memory(states, fits=states <= y, share=states / y)


def uses_record(x: int, y: int) -> float:
    found = record(x, y)
    states, fits, share = record(y, x)
    return found.share if found.fits or fits else states + share


def interval(x: float, y: float) -> Range:
    return Range(high=max(x, y), low=min(x, y))


def width(x: float, y: float) -> float:
    return interval(x, y).high - interval(x, y).low


def calls(x: int, y: int) -> float:
    return batching.drift(target_batch=y, effective_batch_size=ceil(x / 4)) + with_default(x)


def with_default(x: int, new: int = 3, *, class_: float = 2) -> float:
    function = x * new
    return function + class_


def defaults_left_out(x: int) -> float:
    return with_default(x, class_=RATIO) + with_default(x, x)


def alias(x: int, y: int) -> int:
    x = x + y
    y = x - y
    x -= y
    return x * 10 + y
