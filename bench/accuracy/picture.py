"""Predicted against measured, a picture per family: both axes logarithmic, with a band of 5 % about the diagonal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from batchfit.palette import INTERFACE
from bench.accuracy.scoring import Score

_SIDE, _LEFT, _TOP, _BOTTOM = 360, 56, 34, 44
_WIDTH, _HEIGHT = _LEFT + _SIDE + 16, _TOP + _SIDE + _BOTTOM
_BAND = 0.05
_GIB = 2**30

_STYLE = "".join(
    f"{selector}{{{rule}}}"
    for selector, rule in {
        "text": f"font:12px system-ui,sans-serif;fill:{INTERFACE['ink'][0]}",
        ".paper": f"fill:{INTERFACE['paper'][0]}",
        ".line": f"stroke:{INTERFACE['line'][0]};fill:none",
        ".band": f"fill:{INTERFACE['answer'][0]};opacity:.13",
        ".in": f"fill:{INTERFACE['answer'][0]};fill-opacity:.55",
        ".out": f"fill:none;stroke:{INTERFACE['wrong'][0]};stroke-width:1.3",
    }.items()
)


def measured_ones(scores: Sequence[Score]) -> list[Score]:
    """The rows with a figure to compare; a row that was also traced with the libraries of its time, with these."""
    best: dict[str, Score] = {}
    for score in scores:
        if score.error is not None and (score.id not in best or score.versions != "today"):
            best[score.id] = score
    return list(best.values())


def picture(family: str, scores: Sequence[Score]) -> str:
    """The picture as SVG. Rows within the band are filled, others are open circles. An interval stands at the end that
    is nearest to what was measured."""
    rows = [(score, _said(score)) for score in measured_ones(scores)]
    ends = [value / _GIB for score, said in rows for value in (score.measured or 1, said)]
    axis = _Axis(min(ends, default=1), max(ends, default=10))
    inside = sum(abs(score.error or 0) <= _BAND for score, _ in rows)
    title = f"{family}: predicted against measured, GiB; {inside} of {len(rows)} within 5 %"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title><style>{_STYLE}</style>',
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="18">{escape(family)}: {inside} of {len(rows)} within 5 %</text>',
        *axis.drawn(),
        *(_circle(axis, score, said) for score, said in rows),
        f'<text x="{_LEFT + _SIDE / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">measured, GiB</text>',
        f'<text transform="translate(14 {_TOP + _SIDE / 2:.0f}) rotate(-90)" text-anchor="middle">'
        "predicted, GiB</text>",
    ]
    return "\n".join([*parts, "</svg>\n"])


def _said(score: Score) -> int:
    assert score.measured is not None
    assert score.error is not None
    return round(score.measured * (1 + score.error))


def _circle(axis: _Axis, score: Score, said: int) -> str:
    kind = "in" if abs(score.error or 0) <= _BAND else "out"
    x, y = axis.x((score.measured or 1) / _GIB), axis.y(said / _GIB)
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escape(score.id)}</title></circle>'
    )


class _Axis:
    """The same logarithmic scale on both sides, with a little room at its ends."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = math.log10(low / 1.15), math.log10(high * 1.15)

    def _part(self, gib: float) -> float:
        return min(1.0, max(0.0, (math.log10(gib) - self.low) / (self.high - self.low)))

    def x(self, gib: float) -> float:
        return _LEFT + _SIDE * self._part(gib)

    def y(self, gib: float) -> float:
        return _TOP + _SIDE * (1 - self._part(gib))

    def _ticks(self) -> Iterator[float]:
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for digit in (1, 2, 5):
                if self.low <= math.log10(digit * 10**power) <= self.high:
                    yield digit * 10**power

    def drawn(self) -> Iterator[str]:
        """The band, the diagonal, and lines at round numbers."""
        ends = [10**self.low, 10**self.high]
        above = [f"{self.x(end):.1f},{self.y(end * (1 + _BAND)):.1f}" for end in ends]
        below = [f"{self.x(end):.1f},{self.y(end * (1 - _BAND)):.1f}" for end in reversed(ends)]
        yield f'<polygon class="band" points="{" ".join(above + below)}"/>'
        yield f'<path class="line" d="M{_LEFT} {_TOP + _SIDE}L{_LEFT + _SIDE} {_TOP}"/>'
        for tick in self._ticks():
            x, y = self.x(tick), self.y(tick)
            yield f'<path class="line" d="M{x:.1f} {_TOP}V{_TOP + _SIDE}M{_LEFT} {y:.1f}H{_LEFT + _SIDE}"/>'
            yield f'<text x="{x:.1f}" y="{_TOP + _SIDE + 18}" text-anchor="middle">{tick:g}</text>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
