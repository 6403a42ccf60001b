"""The scoreboard: how far off predictions are, by family and by what is compared."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bench.accuracy import peers, summary
from bench.accuracy.picture import measured_ones, picture
from bench.accuracy.scoring import Score

HERE = Path(__file__).parent
#: A file for each family of rows, so that one can be traced again without the others.
RESULTS = HERE / "results"
DOCS = HERE.parents[1] / "docs"
README = DOCS.parent / "README.md"
#: The line of README that tells of the results.
_README_LINE = re.compile(r"^Against .*\(docs/accuracy\.md\)\.$", re.MULTILINE)
#: Runs whose order of samples is not published have no one figure, and a wide range.
_ANY_ORDER = "reserved_in_some_order"
PAGE, PICTURES = DOCS / "accuracy.md", DOCS / "accuracy"

_KEPT = [field.name for field in fields(Score) if field.name != "reason"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table. Errors are absolute, relative to what was measured; `inside` and `right` are shares."""

    family: str
    group: str
    measure: str
    versions: str
    n: int
    median: float | None
    ninetieth: float | None
    inside: float | None
    right: float | None
    worst: str
    worst_error: float | None


def table(scores: Iterable[Score]) -> list[Line]:
    """A line for each family, group, measure and libraries' versions, in the order in which they come."""
    sets: dict[tuple[str, str, str, str], list[Score]] = defaultdict(list)
    for score in scores:
        if not score.reason:
            sets[score.family, score.group, score.measure, score.versions].append(score)
    return [_line(key, found) for key, found in sorted(sets.items())]


def _line(key: tuple[str, str, str, str], scores: Sequence[Score]) -> Line:
    verdicts = [score.right for score in scores if score.right is not None]
    if verdicts:
        wrong = next((score.id for score in scores if not score.right), "")
        return Line(*key, len(scores), None, None, None, sum(verdicts) / len(verdicts), wrong, None)
    errors = sorted(abs(score.error or 0) for score in scores)
    worst = max(scores, key=lambda score: abs(score.error or 0))
    interval = any(score.low != score.high for score in scores)
    inside = sum(not score.error for score in scores) / len(scores) if interval else None
    return Line(
        *key,
        len(scores),
        statistics.median(errors),
        percentile(errors, 0.9),
        inside,
        None,
        worst.id,
        worst.error,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of the ordered values do not exceed (nearest rank)."""
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


# ---- text ---------------------------------------------------------------------------------------------------


def text(lines: Sequence[Line]) -> str:
    """The table as Markdown, which reads well in a terminal, too."""
    head = ("family", "rows", "measure", "libraries", "n", "median", "90th", "inside", "right", "worst")
    body = [
        (
            line.family,
            line.group,
            line.measure.replace("_", " "),
            line.versions,
            f"{line.n}",
            _percent(line.median),
            _percent(line.ninetieth),
            _percent(line.inside, 0),
            _percent(line.right, 1),
            f"{line.worst} {_signed(line.worst_error)}".strip(),
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in [head, *body]) for column in range(len(head))]
    marks = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [head, marks, *body]
    )


def _percent(share: float | None, places: int = 2) -> str:
    return "" if share is None else f"{100 * share:.{places}f} %"


def _signed(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f} %"


# ---- the results that are kept ------------------------------------------------------------------------------


def save(scores: Sequence[Score], versions: dict[str, str]) -> None:
    """Writes the results of the families that these scores are of, and the page and pictures of all. A row that was
    not traced this time keeps the score it had."""
    families: dict[str, list[Score]] = defaultdict(list)
    for score in with_earlier(scores, scores_in(load())):
        families[score.family].append(score)
    RESULTS.mkdir(exist_ok=True)
    for family, found in families.items():
        (RESULTS / f"{_slug(family)}.json").write_text(_family(family, found, versions), encoding="utf-8")
    write(load())


def with_earlier(scores: Iterable[Score], earlier: Iterable[Score]) -> list[Score]:
    """The scores; in place of those of rows that were not traced, earlier ones of the same question."""
    had = {_identity(score): score for score in earlier}
    return [had.get(_identity(score), score) if score.untraced else score for score in scores]


def _identity(score: Score) -> tuple[str, ...]:
    return score.id, score.family, score.group, score.measure, score.versions


def _family(family: str, scores: Sequence[Score], versions: dict[str, str]) -> str:
    """A family's results, a row a line, and of rows without a prediction the reasons and how many have each."""
    kept = [
        [value for name, value in asdict(score).items() if name in _KEPT]
        for score in scores
        if not score.reason
    ]
    without = Counter(score.reason for score in scores if score.reason)
    parts = [
        f'"family": {json.dumps(family)}',
        f'"versions": {json.dumps(versions)}',
        f'"columns": {json.dumps(_KEPT)}',
        '"scores": [\n' + ",\n".join(json.dumps(row) for row in kept) + "\n]",
        '"without": [\n' + ",\n".join(json.dumps(pair) for pair in sorted(without.items())) + "\n]",
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(results: dict[str, Any]) -> None:
    """The page and its pictures, from the results that are kept."""
    PAGE.write_text(page(results), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    drawn = pictures(results)
    for file in PICTURES.glob("*.svg"):
        if file.name not in drawn:
            file.unlink()
    for name, svg in drawn.items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
    summary.save(results)
    README.write_text(readme(README.read_text(encoding="utf-8"), results), encoding="utf-8")


def readme(text: str, results: dict[str, Any]) -> str:
    """README with the headline of these results."""
    return _README_LINE.sub(
        lambda _: f"{headline(results)}: [how far off it is](docs/accuracy.md).", text, count=1
    )


def load() -> dict[str, Any]:
    """The results that are kept, of all families: `versions` of libraries (several where families were traced with
    several), `columns` and rows of `scores`, and `without`: family, reason and count of rows without a prediction."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    numbers: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for name, number in file["versions"].items():
            numbers[name].add(number)
    return {
        "versions": {name: " or ".join(sorted(found)) for name, found in numbers.items()},
        "columns": _KEPT,
        "scores": [row for file in files for row in file["scores"]],
        "without": [[file["family"], *pair] for file in files for pair in file["without"]],
    }


def scores_in(results: dict[str, Any]) -> list[Score]:
    """The scores that are kept."""
    return [Score(**dict(zip(results["columns"], row, strict=True))) for row in results["scores"]]


def pictures(results: dict[str, Any]) -> dict[str, str]:
    """Each family's picture, by file name."""
    families: dict[str, list[Score]] = defaultdict(list)
    for score in measured_ones(scores_in(results)):
        families[score.family].append(score)
    return {f"{_slug(family)}.svg": picture(family, scores) for family, scores in sorted(families.items())}


def _slug(family: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", family.lower()).strip("-")


def headline(results: dict[str, Any]) -> str:
    """What README says, in one sentence: of figures that are predicted as one number, and of those with a range."""
    scores = [score for score in measured_ones(scores_in(results)) if score.measure != _ANY_ORDER]
    errors = [abs(score.error or 0) for score in scores if score.low == score.high]
    ranges = [score for score in scores if score.low != score.high]
    return (
        f"Against {len(errors)} published figures from {len({score.family for score in scores})} sets of GPU runs, the "
        f"median error is {100 * statistics.median(errors):.2f} % and {_share(e <= 0.05 for e in errors)} are within "
        f"5 %; of {len(ranges)} more that it gives a range for, {_share(not s.error for s in ranges)} are inside and "
        f"{_share(abs(s.error or 0) <= 0.05 for s in ranges)} within 5 %"
    )


def _share(of: Iterable[bool]) -> str:
    kept = list(of)
    return f"{sum(kept) / max(1, len(kept)):.0%}"


def page(results: dict[str, Any]) -> str:
    """docs/accuracy.md, from the results that are kept."""
    scores = scores_in(results)
    versions = ", ".join(f"{name} {number}" for name, number in sorted(results["versions"].items()))
    without = results["without"]
    return _PAGE.format(
        scored=len(scores),
        unscored=sum(count for *_, count in without),
        versions=versions,
        headline=headline(results),
        table=text(table(scores)),
        peers=peers.text(peers.load()),
        peers_by_family=peers.by_family(peers.load()),
        pictures="\n".join(f"![Predicted against measured](accuracy/{name})" for name in pictures(results)),
        without="\n".join(f"| {family} | {reason} | {count} |" for family, reason, count in without),
    )


_PAGE = """\
<!-- Written by scripts/accuracy from bench/accuracy/results; edit neither by hand. -->

# How far off batchfit is

{headline}, with the libraries of a run's time where they are known.

Runs that others published, with the memory they measured on real GPUs, against what batchfit says without one. Nothing
in batchfit is fitted to these figures: a wrong prediction stays in the table until its cause is found.

{scored} figures are scored here; {unscored} more of the same tables are not, for the reasons at the end. The libraries
installed were {versions}; a line whose libraries are not "today" was traced with the versions of the run's time,
PyTorch excepted, of which only what it kept for backward is that of the time where a version is named.

- *allocated*: the highest `torch.cuda.memory_allocated` of a step, against the profile's peak.
- *steady*: what stays allocated between steps.
- *after forward*, *after backward*: what is allocated at that moment.
- *reserved*: the highest `torch.cuda.memory_reserved`. batchfit gives an interval, from what is allocated to what the
  replayed allocator reserves; the error is 0 inside it, else the distance to its nearest end. *inside* is the share of
  rows with no distance.
- *reserved in some order*: the same over samples of several lengths, against the lowest and the highest of orders drawn
  by chance, as what is reserved depends on the order and a run's own is not published.
- *device*: a whole device's memory, against the same interval and what the process holds beside it: as the source says,
  or between the least and the most that contexts and NCCL are published to take on such a card.
- *fits*, *oom*: runs published to run, or to run out of memory; *right* is the share so judged (a run fits if its
  allocated peak does; one that failed is called fitting only if what is reserved fits, too).
- *bracket*: the largest batch that ran and the next one, which failed; right if the first is judged to fit and the
  second is not, by a replay of the allocator on the card.

Errors are relative to the published figure; *median* and *90th* percentile are of absolute errors, and the worst row's
sign says whether batchfit was too low.

{table}

## Predicted against measured

Both axes are logarithmic; the band is 5 % to either side, and rows outside of it are open circles.

{pictures}

## Beside other tools

The same published runs, those with a peak of what is allocated, each tool asked as its documentation says
(`bench/accuracy/peers`). A run that a tool has no words for is not counted for it; the last column has runs, too, of
which what is reserved was published. Tools that need a GPU or a server are not run here.

{peers}

In each family, the tool that is off by least on the rows that it has words for. Tools tell of tensors; where only what
is reserved was published, they are compared with that.

{peers_by_family}

## Rows without a prediction

| family | reason | rows |
| --- | --- | --- |
{without}

`scripts/accuracy --row ID` explains a row; `scripts/accuracy --data FOLDER` scores rows of your own, in CSV files with
the columns of `bench/accuracy/data`.
"""
