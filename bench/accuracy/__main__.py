"""The scoreboard's command line; see `scripts/accuracy --help`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from batchfit.cache import versions
from bench.accuracy import report
from bench.accuracy.eras import eras, install, is_installed
from bench.accuracy.explain import explanation
from bench.accuracy.families import figures, left_out, question
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import DATA, Row, read
from bench.accuracy.scoring import UNTRACED, Score, score
from bench.accuracy.tracing import answers, wanted

#: Seconds between lines of progress where these are not written in place.
_EVERY = 30

#: The exit status of a command that Ctrl-C ended.
_INTERRUPTED = 130

#: A row with its question, or the reason why it has none.
Asked = tuple[Row, Question | str]


@click.command(
    epilog="\b\nExamples:\n"
    "  scripts/accuracy --sample 200          a look in a few minutes\n"
    "  scripts/accuracy --family torchtitan\n"
    "  scripts/accuracy --row FMS0003         explains one row\n"
    "  scripts/accuracy --data ~/our-runs     rows of your own\n"
    "  scripts/accuracy --versions era        with the libraries of the runs' time\n"
    "  scripts/accuracy --versions both       everything; writes docs/accuracy.md\n"
    "  scripts/accuracy --versions both --family torchtitan   one family anew",
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help="Score N rows, spread over the table's lines."
)
@click.option("--family", metavar="F", help="Score rows whose source family contains F.")
@click.option("--row", "row_id", metavar="ID", help="Explain one row.")
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), default=DATA,
              help="A folder of CSV files in the same columns.")  # fmt: skip
@click.option("--versions", "which", type=click.Choice(("today", "era", "both")), default="today",
              show_default=True, help="The libraries to trace with, where a run's own are known.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1), default=os.cpu_count() or 1, metavar="N",
              show_default="as many as there are cores", help="Traces at a time.")  # fmt: skip
@click.option(
    "--cached", is_flag=True, help="Trace nothing; rows that were not traced yet are counted as such."
)
def main(
    sample: int | None,
    family: str | None,
    row_id: str | None,
    data: Path,
    which: str,
    processes: int,
    cached: bool,
) -> None:
    """Score batchfit against published runs: n, median and 90th percentile of the error, and the worst row.

    Traces are kept in the cache: stop with Ctrl-C when you like, look at what has been scored, and call again to go
    on. A run over the repository's own rows with both sets of libraries keeps the results of its families and writes
    docs/accuracy.md.
    """
    rows = [row for row in figures(read(data)) if not family or family.lower() in row.family.lower()]
    if row_id:
        rows = [row for row in rows if row.id == row_id or row.id.startswith(f"{row_id}/")]
    if not rows:
        raise click.UsageError(f"no row of {data} is asked for")
    # Rows of the repository are chosen from; whoever asks for a row, or has rows of their own, gets all.
    chosen = data == DATA and not row_id
    asked = _with_versions([(row, (left_out(row) if chosen else None) or _ask(row)) for row in rows], which)
    if sample:
        asked = _sampled(asked, sample)
    scores = _scored(asked, 0 if cached else processes, explain=bool(row_id))
    if row_id:
        return
    click.echo(report.text(report.table(scores)))
    _echo_reasons(scores)
    if data == DATA and which == "both" and not (sample or cached):
        report.save(scores, versions())
        click.echo(f"wrote {report.PAGE}")
    if not cached and (left := sum(each.untraced for each in scores)):
        click.echo(f"stopped: {left} rows were not traced; the same call goes on from here", err=True)
        raise click.exceptions.Exit(_INTERRUPTED)


def _ask(row: Row) -> Question | str:
    try:
        return question(row)
    except CannotExpress as reason:
        return str(reason)


def _with_versions(asked: Iterable[Asked], which: str) -> list[Asked]:
    """Each question with the libraries to trace it with; installs those of an era where they are needed."""
    made: list[Asked] = []
    for row, ask in asked:
        if isinstance(ask, str):
            made.append((row, ask))
            continue
        if ask.era is None or not (which == "era" or ask.needs_era):
            made.append((row, replace(ask, era=None)))
        if ask.era is not None and (which != "today" or ask.needs_era):
            made.append((row, ask))
    for era in eras():
        if any(isinstance(ask, Question) and ask.era == era for _, ask in made) and not is_installed(era):
            click.echo(f"installing {era}", err=True)
            try:
                install(era)
            except subprocess.CalledProcessError as error:
                raise click.ClickException(
                    f"{era} cannot be installed (pip ended with {error.returncode})"
                ) from None
    return made


def _sampled(asked: Sequence[Asked], count: int) -> list[Asked]:
    """So many questions, taken in turn from each line of the table; always the same ones. Rows without one stay."""
    lines: dict[tuple[str, ...], list[Asked]] = defaultdict(list)
    for row, ask in asked:
        if isinstance(ask, Question):
            lines[row.family, ask.group, ask.measure, ask.era or ""].append((row, ask))
    chance = random.Random(0)
    for line in lines.values():
        chance.shuffle(line)
    taken: list[Asked] = []
    while len(taken) < count and any(lines.values()):
        taken += [line.pop() for line in lines.values() if line][: count - len(taken)]
    return taken + [(row, ask) for row, ask in asked if isinstance(ask, str)]


def _scored(asked: Sequence[Asked], processes: int, *, explain: bool) -> list[Score]:
    found = answers(wanted(ask for _, ask in asked if isinstance(ask, Question)), processes, _progress())
    scores = []
    for row, ask in asked:
        if isinstance(ask, str):
            scores.append(Score(row.id, row.family, "", "", "", reason=ask))
            if explain:
                click.echo(f"{row.id} has no prediction: {ask}")
            continue
        answer = found.get((ask.key, ask.era), UNTRACED)
        scores.append(score(row, ask, answer))
        if explain:
            click.echo(explanation(row, ask, answer, scores[-1]))
    return scores


def _progress() -> Callable[[int, int], None]:
    """Tells how many traces are done: on a terminal in place, elsewhere on a line now and then."""
    in_place = sys.stderr.isatty()
    told = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told
        last = done == total
        if not (in_place or last or time.monotonic() - told > _EVERY):
            return
        told = time.monotonic()
        start, end = ("\r", "\n" if last else "") if in_place else ("", "\n")
        print(f"{start}traced {done} of {total}", end=end, file=sys.stderr, flush=True)

    return tell


def _echo_reasons(scores: Sequence[Score]) -> None:
    without: dict[tuple[str, str], int] = defaultdict(int)
    for found in scores:
        if found.reason:
            without[found.family, found.reason] += 1
    if without:
        click.echo(f"\n{sum(without.values())} rows without a prediction:")
    for (family, reason), count in sorted(without.items()):
        click.echo(f"  {count:5}  {family}: {reason}")


if __name__ == "__main__":
    main(prog_name="scripts/accuracy")
