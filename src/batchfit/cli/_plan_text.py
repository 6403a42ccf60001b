"""Plans in the terminal: one sentence, the memory bar, the ranked table, what is free, what to do next."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from batchfit.charts import Segment, segments
from batchfit.palette import FILLS
from batchfit.planning import Elastic, Plan, Plans
from batchfit.planning.present import Comparison
from batchfit.planning.result import PHASE_NAMES
from batchfit.planning.sensitivity import Curve
from batchfit.planning.throughput import error_sentence
from batchfit.units import UNITS, format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Each part's mark, so that a bar reads without colour.
MARKS = {
    "weights": "█",
    "gradients": "▓",
    "optimizer": "▒",
    "activations": "▞",
    "buffers": "░",
    "overhead": "▪",
    "free": "·",
    # Kinds of layers among activations.
    "attention": "▚",
    "mlp": "▞",
    "convolution": "▙",
    "norm": "▖",
    "embedding": "▘",
    "residual-stream": "▝",
    "logits-and-loss": "▟",
    "other": "▗",
}

#: A plan's columns in the terminal: heading, whether it is a number, and the narrowest terminal that has room for it.
_COLUMNS: tuple[tuple[str, bool, int], ...] = (
    ("micro-batch ×\nsteps × GPUs", True, 0),
    ("\nbatch", True, 80),
    ("\ndrift", True, 0),
    ("\nsharding", False, 0),
    ("check-\npointing", False, 0),
    ("allocated\nGiB", True, 0),
    ("reserved\nGiB", True, 90),
    ("free\nGiB", True, 0),
    ("\nverdict", False, 0),
    ("relative\ntime", True, 80),
    ("\nbinds", False, 112),
)
_GIB = UNITS["GiB"]


def console() -> Console:
    """The terminal, or as wide as a page where there is none."""
    from rich.console import Console

    return Console(width=max(shutil.get_terminal_size().columns, 72), highlight=False, soft_wrap=False)


def show(answer: Plans, arguments: Sequence[str], *, comparison: Comparison | None, curve: bool) -> None:
    """An answer."""
    screen = console()
    if comparison is not None:
        screen.print(f"[bold]{comparison.sentence}[/]\n")
    else:
        screen.print(f"[bold]{answer.sentence}[/]\n")
    shown = answer.plans or tuple(near.plan for near in answer.nearest)
    if shown:
        screen.print(memory_bar(shown[0], screen.width))
    if answer.plans:
        screen.print(table(answer.plans, screen.width))
    if answer.nearest:
        screen.print("Nearest to the target:" if answer.plans or shown[0].drift else "What comes closest:")
        screen.print(table(tuple(near.plan for near in answer.nearest), screen.width))
        for near in answer.nearest:
            screen.print(f"  {near.plan.batch}: {near.why}")
        screen.print()
    if curve and answer.curve:
        screen.print(memory_curve(answer.curve, screen.width))
    if curve and answer.front:
        screen.print("Memory against time: no other plan beats these in both.")
        screen.print(table(answer.front, screen.width))
    for note in answer.notes:
        screen.print(note)
    screen.print(f"[dim]{answer.gpu}: {answer.capacity}.[/]")
    for assumption in answer.assumptions:
        screen.print(f"Assumed: {assumption}", style="dim", markup=False)
    if answer.plans and answer.plans[0].relative_step_time is not None:
        screen.print(f"[dim]{error_sentence()}. `--json` names its sources.[/]")
    screen.print()
    for line in next_steps(answer, arguments):
        # A command must stay on one line to be copied.
        screen.print(line, soft_wrap=line.startswith(" "), markup=False)


def show_elastic(answer: Elastic) -> None:
    """The table over GPU counts."""
    screen = console()
    screen.print(f"[bold]{answer.sentence}[/]\n")
    rows = answer.rows
    screen.print(table(tuple(row.plan for row in rows if row.plan), screen.width))
    for row in rows:
        if row.why:
            screen.print(f"  on {row.gpus:,}: {row.why}")


def memory_bar(plan: Plan, width: int) -> Text:
    """The peak on one GPU as a bar as wide as the terminal, and what each stretch is."""
    from rich.text import Text

    shown = segments(plan)
    total = max(plan.capacity_bytes, sum(segment.nbytes for segment in shown))
    bar, legend = Text(), Text()
    begun = 0
    for segment in shown:
        # Rounding each end, not each length, keeps the whole to scale.
        end = round((begun + segment.nbytes) / total * width)
        mark = MARKS[segment.style] * (end - round(begun / total * width))
        bar.append(mark, style=colour_of(segment))
        begun += segment.nbytes
        legend.append(f"{MARKS[segment.style]} ", style=colour_of(segment))
        legend.append(f"{segment.label} {format_bytes(segment.nbytes)}   ")
    text = Text().append_text(bar).append("\n")
    if plan.capacity_bytes < total:
        column = round(plan.capacity_bytes / total * width)
        text.append(" " * max(0, column - 1) + "▲\n", style="bold red")
    return text.append_text(legend).append(
        f"on the card {format_bytes(plan.capacity_bytes)}\n",
        style="bold red" if plan.headroom_bytes < 0 else "",
    )


def colour_of(segment: Segment) -> str:
    """A stretch's colour in the terminal."""
    return "bright_black" if segment.part == "free" else FILLS[segment.style]


def table(plans: Sequence[Plan], width: int) -> Table:
    """The ranked table. A column that says nothing, such as a drift of none, is left out."""
    from rich import box
    from rich.table import Table

    rows = [_row(plan) for plan in plans]
    silent = {"\ndrift": "0", "\nverdict": "fits", "relative\ntime": "–", "reserved\nGiB": "–"}
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    on_target = all(plan.drift == 0 for plan in plans)
    kept = []
    for index, (heading, number, least_width) in enumerate(_COLUMNS):
        if heading == "\nbatch" and on_target:
            continue
        if width >= least_width and any(row[index] != silent.get(heading) for row in rows):
            made.add_column(heading, justify="right" if number else "left", no_wrap=True)
            kept.append(index)
    for place, row in enumerate(rows):
        verdict = plans[place].verdict
        style = (
            "bold"
            if place == 0 and verdict == "fits"
            else {"tight": "yellow", "does not fit": "red"}.get(verdict)
        )
        made.add_row(*(row[index] for index in kept), style=style)
    return made


def _row(plan: Plan) -> tuple[str, ...]:
    reserved = plan.peak_reserved_bytes
    return (
        plan.batch,
        f"{plan.effective_batch:,}",
        f"{plan.drift:+,}" if plan.drift else "0",
        plan.sharding,
        plan.checkpointing,
        f"{plan.peak_allocated_bytes / _GIB:.2f}",
        "–" if reserved is None else f"{reserved / _GIB:.2f}",
        f"{plan.headroom_bytes / _GIB:.2f}",
        plan.verdict,
        "–" if plan.relative_step_time is None else f"{plan.relative_step_time:.2f}×",
        PHASE_NAMES[plan.binding_phase],
    )


def memory_curve(curve: Curve, width: int) -> Text:
    """Peak memory against micro-batch as bars, with the card's line."""
    from rich.text import Text

    chosen = {1, curve.chosen, curve.micro_batches[-1], *(2**power for power in range(31))}
    points = [(b, a) for b, a in zip(curve.micro_batches, curve.allocated_bytes, strict=True) if b in chosen]
    room = width - 30
    highest = max(curve.capacity_bytes, *(size for _, size in points))
    line = round(curve.capacity_bytes / highest * room)
    text = Text("Peak memory by micro-batch; │ is the card\n")
    for micro_batch, size in points:
        filled = round(size / highest * room)
        bar = "".join("│" if at == line else "█" if at < filled else " " for at in range(room + 1))
        style = "bold" if micro_batch == curve.chosen else "red" if size > curve.capacity_bytes else ""
        text.append(f"{micro_batch:>8,}  {bar} {format_bytes(size)}\n", style=style)
    return text


def next_steps(answer: Plans, arguments: Sequence[str]) -> Iterator[str]:
    """What to do next, with the commands to type."""
    asked = [argument for argument in arguments if argument != "--curve"]
    for advice in answer.advice:
        yield advice.text
        if advice.options and advice.change.startswith("unpin"):
            continue
        if advice.options:
            yield f"    {command(asked, advice.options)}"
    if answer.plans and not any(argument.startswith("--emit") for argument in asked):
        yield "To get ready settings for a framework:"
        yield f"    {command(asked, ('--emit trainer',))}"


def command(arguments: Sequence[str], options: Sequence[str]) -> str:
    """The command as typed, with other or further options."""
    replaced = list(arguments)
    for option in options:
        name, _, value = option.partition(" ")
        if name in replaced:
            replaced[replaced.index(name) + 1] = value
        else:
            replaced += [name, value]
    return f"batchfit plan {shlex.join(replaced)}"
