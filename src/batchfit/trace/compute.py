"""What the whole model's step computes, from what was counted in the traces of a study."""

from __future__ import annotations

from batchfit.profile import Compute
from batchfit.trace.study import CHECKED_AT, TRACED, Study
from batchfit.trace.surface import Pair


def compute_of(study: Study, gradient_elements: int) -> Compute:
    """Each count is a line over the micro-batch at each length, and what each block adds is too."""
    forward = _counted(study, "forward_flops")[1]
    backward = _counted(study, "backward_flops")[1]
    curve = study.lengths.curve
    products, others = _counted(study, "products_bytes"), _counted(study, "other_bytes")
    return Compute(
        forward_flops=curve(forward),
        step_flops=curve([f + b for f, b in zip(forward, backward, strict=True)]),
        attention_flops=curve(_counted(study, "attention_flops")[1]),
        matmul_bytes=(curve(products[0]), curve(products[1])),
        other_bytes=(curve(others[0]), curve(others[1])),
        optimizer_bytes=_number(study, "optimizer_bytes"),
        kernels_per_micro_batch=_number(study, "kernels"),
        kernels_per_optimizer_step=_number(study, "optimizer_kernels"),
        gradient_elements=gradient_elements,
    )


def _counted(study: Study, name: str) -> tuple[list[int], list[int]]:
    """A count of the whole model at each length: constants, and what each sample adds."""
    lines = []
    for number, pair in enumerate(study.pairs):
        base = _line(pair, name, *TRACED)
        whole = list(base)
        for deeper in study.deeper:
            deep = _line(deeper.pairs[number], name, TRACED[0], CHECKED_AT)
            whole = [w + deeper.extra * (d - b) for w, d, b in zip(whole, deep, base, strict=True)]
        lines.append(whole)
    return [constant for constant, _ in lines], [slope for _, slope in lines]


def _line(pair: Pair, name: str, small: int, large: int) -> tuple[int, int]:
    at_small, at_large = getattr(pair.small.work, name), getattr(pair.large.work, name)
    slope = (at_large - at_small) // (large - small)
    return at_small - slope * small, slope


def _number(study: Study, name: str) -> int:
    """A count that is the same at every micro-batch and length."""
    base: int = getattr(study.pairs[0].small.work, name)
    deeper: list[tuple[int, int]] = [(d.extra, getattr(d.pairs[0].small.work, name)) for d in study.deeper]
    return base + sum(extra * (count - base) for extra, count in deeper)
