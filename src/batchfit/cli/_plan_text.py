"""Plans in the terminal: one sentence, the memory bar, the ranked table, what is free, what to do next."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

from batchfit.assumptions import understood
from batchfit.charts import Segment, segments
from batchfit.cli._panel import columns
from batchfit.languages import translate
from batchfit.numbers import format_number
from batchfit.palette import FILLS
from batchfit.planning import Elastic, Plan, Plans
from batchfit.planning.present import Comparison
from batchfit.planning.result import PHASE_NAMES, VERDICT_NAMES
from batchfit.planning.sensitivity import Curve
from batchfit.planning.throughput import error_sentence
from batchfit.sentences import Sentence, Size, in_language, size
from batchfit.units import UNITS

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


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its heading and unit, whether it is a number, how wide a line of its heading may be."""

    name: str
    heading: Sentence
    number: bool
    unit: str = ""
    heading_width: int = 9


_COLUMNS = (
    Column("factors", Sentence("micro-batch × steps × GPUs"), True, heading_width=13),
    Column("batch", Sentence("batch"), True),
    Column("drift", Sentence("drift"), True),
    Column("sharding", Sentence("sharding"), False),
    Column("checkpointing", Sentence("checkpointing"), False),
    Column("allocated", Sentence("allocated"), True, "GiB"),
    Column("reserved", Sentence("reserved"), True, "GiB"),
    Column("free", Sentence("free"), True, "GiB"),
    Column("verdict", Sentence("verdict"), False),
    Column("time", Sentence("relative time"), True),
    Column("binds", Sentence("binds"), False),
)
#: What is left out where the terminal is too narrow for it, first what is missed least.
_SPARED = ("binds", "reserved", "time", "batch", "verdict", "drift", "checkpointing")
_GIB = UNITS["GiB"]


def console() -> Console:
    """The terminal, or as wide as a page where there is none."""
    from rich.console import Console

    return Console(width=max(shutil.get_terminal_size().columns, 72), highlight=False, soft_wrap=False)


def show(
    answer: Plans, arguments: Sequence[str], *, comparison: Comparison | None, curve: bool, lang: str
) -> None:
    """An answer in a language."""
    screen, say = console(), partial(in_language, lang=lang)
    screen.print(f"[bold]{say(answer.sentence if comparison is None else comparison.sentence)}[/]\n")
    shown = answer.plans or tuple(near.plan for near in answer.nearest)
    if shown:
        screen.print(memory_bar(shown[0], screen.width, lang))
    if answer.plans:
        screen.print(table(answer.plans, screen.width, lang))
    if answer.nearest:
        beside = answer.plans or shown[0].drift
        screen.print(say(Sentence("Nearest to the target:") if beside else Sentence("What comes closest:")))
        screen.print(table(tuple(near.plan for near in answer.nearest), screen.width, lang))
        for near in answer.nearest:
            named = Sentence("{name}: {text}", name=near.plan.batch, text=near.why)
            screen.print(f"  {say(named)}")
        screen.print()
    if curve and answer.curve:
        screen.print(memory_curve(answer.curve, screen.width, lang))
    if curve and answer.front:
        screen.print(say(Sentence("Memory against time: no other plan beats these in both.")))
        screen.print(table(answer.front, screen.width, lang))
    for note in answer.notes:
        screen.print(say(note))
    room = Sentence("{name}: {text}", name=answer.gpu, text=answer.capacity.said)
    screen.print(f"[dim]{say(room)}[/]")
    for assumption in answer.assumptions:
        said = say(Sentence("Assumed: {assumption}", assumption=understood(assumption)))
        screen.print(said, style="dim", markup=False)
    if answer.plans and answer.plans[0].relative_step_time is not None:
        said = say(Sentence("{error}. `--json` names its sources.", error=error_sentence()))
        screen.print(f"[dim]{said}[/]")
    screen.print()
    for line in next_steps(answer, arguments, lang):
        # A command must stay on one line to be copied.
        screen.print(line, soft_wrap=line.startswith(" "), markup=False)


def show_elastic(answer: Elastic, lang: str) -> None:
    """The table over GPU counts, in a language."""
    screen, say = console(), partial(in_language, lang=lang)
    screen.print(f"[bold]{say(answer.sentence)}[/]\n")
    rows = answer.rows
    screen.print(table(tuple(row.plan for row in rows if row.plan), screen.width, lang))
    for row in rows:
        if row.why:
            screen.print(f"  {say(Sentence('on {gpus}: {why}', gpus=row.gpus, why=row.why))}")


def memory_bar(plan: Plan, width: int, lang: str) -> Text:
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
        legend.append(f"{in_language(segment.label, lang)} {size(segment.nbytes, lang)}   ")
    text = Text().append_text(bar).append("\n")
    if plan.capacity_bytes < total:
        column = round(plan.capacity_bytes / total * width)
        text.append(" " * max(0, column - 1) + "▲\n", style="bold red")
    on_card = Sentence("{capacity} on the card", capacity=Size(plan.capacity_bytes))
    return text.append_text(legend).append(
        f"{in_language(on_card, lang)}\n",
        style="bold red" if plan.headroom_bytes < 0 else "",
    )


def colour_of(segment: Segment) -> str:
    """A stretch's colour in the terminal."""
    return "bright_black" if segment.part == "free" else FILLS[segment.style]


def table(plans: Sequence[Plan], width: int, lang: str) -> Table:
    """The ranked table. A column that says nothing, such as a drift of none, is left out."""
    from rich import box
    from rich.table import Table

    cells = [_cells(plan, lang) for plan in plans]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    kept = _kept(plans, cells, width, lang)
    for column in kept:
        heading = _heading(column, lang)
        made.add_column(
            heading, justify="right" if column.number else "left", no_wrap=True, vertical="bottom"
        )
    for place, (plan, row) in enumerate(zip(plans, cells, strict=True)):
        style = (
            "bold"
            if place == 0 and plan.verdict == "fits"
            else {"tight": "yellow", "does not fit": "red"}.get(plan.verdict)
        )
        made.add_row(*(row[column.name] for column in kept), style=style)
    return made


def _kept(plans: Sequence[Plan], cells: Sequence[dict[str, str]], width: int, lang: str) -> list[Column]:
    """The columns that tell anything, as many as there is room for; a space stands on both sides of each."""
    room = {
        column.name: 2
        + max(map(columns, [*_heading(column, lang).split("\n"), *(row[column.name] for row in cells)]))
        for column in _COLUMNS
        if _tells(column.name, plans)
    }
    for name in _SPARED:
        if sum(room.values()) > width:
            room.pop(name, None)
    return [column for column in _COLUMNS if column.name in room]


def _tells(name: str, plans: Sequence[Plan]) -> bool:
    """Whether a column has anything to tell of these plans."""
    said = {
        "batch": any(plan.drift for plan in plans),
        "drift": any(plan.drift for plan in plans),
        "reserved": any(plan.peak_reserved_bytes is not None for plan in plans),
        "verdict": any(plan.verdict != "fits" for plan in plans),
        "time": any(plan.relative_step_time is not None for plan in plans),
    }
    return said.get(name, True)


def _heading(column: Column, lang: str) -> str:
    """Folded between words, the unit below."""
    text = in_language(column.heading, lang)
    lines = wrap(text, column.heading_width, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines, *filter(None, [column.unit])])


def _cells(plan: Plan, lang: str) -> dict[str, str]:
    """A plan's texts by column."""
    reserved, time = plan.peak_reserved_bytes, plan.relative_step_time
    decimals = partial(format_number, locale=lang, min_fraction=2, max_fraction=2)
    return {
        "factors": plan.batch,
        "batch": format_number(plan.effective_batch, lang),
        "drift": format_number(plan.drift, lang, plus=True),
        "sharding": plan.sharding,
        "checkpointing": translate(plan.checkpointing, lang),
        "allocated": decimals(plan.peak_allocated_bytes / _GIB),
        "reserved": "–" if reserved is None else decimals(reserved / _GIB),
        "free": decimals(plan.headroom_bytes / _GIB),
        "verdict": in_language(VERDICT_NAMES[plan.verdict], lang),
        "time": "–" if time is None else f"{decimals(time)}×",
        "binds": in_language(PHASE_NAMES[plan.binding_phase], lang),
    }


def memory_curve(curve: Curve, width: int, lang: str) -> Text:
    """Peak memory against micro-batch as bars, with the card's line."""
    from rich.text import Text

    chosen = {1, curve.chosen, curve.micro_batches[-1], *(2**power for power in range(31))}
    points = [(b, a) for b, a in zip(curve.micro_batches, curve.allocated_bytes, strict=True) if b in chosen]
    room = width - 30
    highest = max(curve.capacity_bytes, *(held for _, held in points))
    line = round(curve.capacity_bytes / highest * room)
    text = Text(in_language(Sentence("Peak memory by micro-batch; │ is the card"), lang) + "\n")
    for micro_batch, held in points:
        filled = round(held / highest * room)
        bar = "".join("│" if at == line else "█" if at < filled else " " for at in range(room + 1))
        style = "bold" if micro_batch == curve.chosen else "red" if held > curve.capacity_bytes else ""
        text.append(f"{format_number(micro_batch, lang):>8}  {bar} {size(held, lang)}\n", style=style)
    return text


def next_steps(answer: Plans, arguments: Sequence[str], lang: str) -> Iterator[str]:
    """What to do next, with the commands to type."""
    asked = [argument for argument in arguments if argument != "--curve"]
    for advice in answer.advice:
        yield in_language(advice.text, lang)
        if advice.options and advice.change.startswith("unpin"):
            continue
        if advice.options:
            yield f"    {command(asked, advice.options)}"
    if answer.plans and not any(argument.startswith("--emit") for argument in asked):
        yield in_language(Sentence("To get ready settings for a framework:"), lang)
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
