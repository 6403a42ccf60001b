"""A traced step in the terminal: one sentence, the memory bar, the phases, the ledger, what was assumed, what to do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchfit.charts import stretches
from batchfit.cli._plan_text import MARKS, colour_of, console
from batchfit.cli._trace_view import View
from batchfit.levers import lever
from batchfit.palette import COLOURS
from batchfit.planning.result import PHASE_NAMES
from batchfit.profile import LedgerEntry
from batchfit.units import format_bytes

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from batchfit.cli._sample_lengths import SampleLengths

#: Cells of the bar that shows a line's share.
_BAR = 10

#: Narrower terminals show where a line is above its code, not beside it.
_WIDE = 100


def show(
    view: View, *, lines: int, saved: str | None, words: Sequence[str], lengths: SampleLengths | None = None
) -> None:
    """The answer. `saved` is the file that the profile is in, `words` what was typed."""
    screen = console()
    screen.print(f"[bold]{sentence(view)}[/]\n", markup=True)
    screen.print(memory_bar(view, screen.width))
    screen.print(phases(view))
    screen.print(states(view))
    if lengths is not None:
        screen.print(f"\n{lengths.sentence()}", markup=False)
    if lines and view.profile.ledger:
        screen.print()
        screen.print(ledger_title(view), style="bold")
        screen.print(ledger(view, lines, screen.width))
    for assumption in view.profile.assumptions:
        screen.print(f"· {assumption}", style="dim", markup=False)
    screen.print()
    for line in next_steps(view, saved, words):
        # A command must stay on one line to be copied.
        screen.print(line, soft_wrap=line.startswith(" "), markup=False)


def sentence(view: View) -> str:
    """What it takes, where, and what binds: "67.46 GiB at micro-batch 4: the optimizer step binds." """
    peak = view.peak
    at = f"micro-batch {view.micro_batch:,}"
    if view.accumulation_steps > 1:
        at += f" with {view.accumulation_steps:,} accumulation steps"
    if view.seq_len is not None:
        at += f" of {view.seq_len:,} tokens"
    reserved = f" PyTorch reserves {format_bytes(peak.reserved_bytes)} for it." if peak.reserved_bytes else ""
    binds = {
        "first_micro": "the first micro-batch binds",
        "later_micro": "the later micro-batches bind",
        "optimizer_step": "the optimizer step binds",
    }[peak.binding_phase]
    return f"{format_bytes(peak.allocated_bytes)} at {at}: {binds}.{reserved}"


def memory_bar(view: View, width: int) -> Text:
    """What the peak is made of, to scale and as wide as the terminal, and what each stretch is."""
    from rich.text import Text

    shown = stretches(view.peak.parts, view.peak.activations)
    total = max(1, sum(segment.nbytes for segment in shown))
    bar, legend = Text(), Text()
    begun = 0
    for segment in shown:
        # Rounding each end, not each length, keeps the whole to scale.
        cells = round((begun + segment.nbytes) / total * width) - round(begun / total * width)
        bar.append(MARKS[segment.style] * cells, style=colour_of(segment))
        begun += segment.nbytes
        legend.append(f"{MARKS[segment.style]} ", style=colour_of(segment))
        legend.append(f"{segment.label} {format_bytes(segment.nbytes)}   ")
    return bar.append("\n").append_text(legend).append("\n")


def phases(view: View) -> Table:
    """The most that each phase holds, how that grows, and what runs there."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column("phase")
    for heading in ("peak", "per further sample"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("highest in", overflow="fold")
    for phase, line, nbytes in view.phases():
        binds = phase == view.peak.binding_phase
        slope = line.at(view.micro_batch + 1, view.seq_len) - nbytes
        made.add_row(
            ("▶ " if binds else "  ") + PHASE_NAMES[phase],
            format_bytes(nbytes),
            format_bytes(slope) if slope else "–",
            line.where,
            style="bold" if binds else "",
        )
    return made


def states(view: View) -> str:
    """Parameters, and what is always there."""
    model, held = view.profile.model, view.profile.states
    trained = (
        "all of them trained"
        if model.trainable_parameters == model.parameters
        else f"{model.trainable_parameters:,} of them trained"
    )
    return (
        f"{model.parameters:,} parameters, {trained}. Always there: weights {format_bytes(held.weights_bytes)}, "
        f"optimizer state {format_bytes(held.optimizer_bytes)}; gradients {format_bytes(held.gradients_bytes)} from "
        f"the first backward to the end of the step."
    )


# ---- The ledger ----------------------------------------------------------------------------------------------


def ledger_title(view: View) -> str:
    """What the ledger is of, and what it sums up to."""
    profile = view.profile
    length = profile.seq_len.maximum if profile.seq_len else None
    at = f" of {length:,} tokens" if length else ""
    return f"Activation memory: {format_bytes(profile.activation_per_sample)} per sample{at}, line by line"


def ledger(view: View, lines: int, width: int) -> Table:
    """The lines that hold most, grouped by the kind of module they are in, groups and lines by size."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    total = max(1, view.profile.activation_per_sample)
    entries = [entry for entry in view.profile.ledger if entry.bytes_per_sample > 0]
    shown = entries[:lines]
    made = Table(box=box.SIMPLE, show_header=False, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    wide = width >= _WIDE
    if wide:
        made.add_column(no_wrap=True, style="dim")
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    said: set[str] = set()
    for kind, group in _groups(entries):
        ours = [entry for entry in group if entry in shown]
        if not ours:
            continue
        held = sum(entry.bytes_per_sample for entry in group)
        made.add_row(f"{held / total:.0%}", "", format_bytes(held), "", Text(kind), style="bold")
        for entry in ours:
            place = _short(entry.where)
            made.add_row(
                "",
                Text(_share(entry.bytes_per_sample / total), style=COLOURS["activations"]),
                format_bytes(entry.bytes_per_sample),
                f"× {entry.count}" if entry.count > 1 else "",
                *([place] if wide else []),
                _line(entry, "" if wide else place, _first_said(lever(entry, view.profile.settings), said)),
            )
    rest = entries[lines:]
    if rest:
        held = sum(entry.bytes_per_sample for entry in rest)
        made.add_row(
            "",
            Text(_share(held / total)),
            format_bytes(held),
            "",
            *([""] if wide else []),
            f"{len(rest)} further lines",
            style="dim",
        )
    made.add_row("100%", "", format_bytes(total), "", "per sample", style="bold")
    return made


def _groups(entries: Iterable[LedgerEntry]) -> list[tuple[str, list[LedgerEntry]]]:
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.kind, []).append(entry)
    return sorted(groups.items(), key=lambda group: -sum(entry.bytes_per_sample for entry in group[1]))


def _share(share: float) -> str:
    """A bar of a share, to an eighth of a cell."""
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8].strip())


def _first_said(advice: str | None, said: set[str]) -> str | None:
    """The advice, if it was not given before."""
    if advice is None or advice in said:
        return None
    said.add(advice)
    return advice


def _line(entry: LedgerEntry, place: str, advice: str | None) -> Text:
    """Where it is, if there is no column for that, the code, and what would make it go away."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    if place:
        text.append(f"{place}\n", style="dim")
    text.append(entry.code or ("the batch" if entry.kind == "inputs" else "made outside of the model"))
    if advice:
        text.append(f"\n↳ {advice}", style="cyan")
    return text


def _short(where: str) -> str:
    """A file below the folder one is in as it is from there, any other by its name."""
    file, _, line = where.rpartition(":")
    if not file:
        return ""
    path = Path(file)
    here = Path(os.getcwd())
    # An environment made inside the project holds libraries, not the person's own code.
    own = path.is_relative_to(here) and not {"site-packages", "dist-packages"} & {*path.parts}
    shown = path.relative_to(here) if own else path.name
    return f"{shown}:{line}"


# ---- What to do next -----------------------------------------------------------------------------------------


def next_steps(view: View, saved: str | None, words: Sequence[str]) -> list[str]:
    """Commands to copy."""
    name = saved or f"{view.profile.model.name.rpartition('/')[2].lower()}.json"
    plan = f"  batchfit plan {shlex.quote(name)} --batch 256 --gpu h100-80gb --gpus 8"
    if saved:
        return ["What reaches a batch on the GPUs you have:", plan]
    return [
        "To keep this and plan a batch with it:",
        "  " + shlex.join(["batchfit", "trace", *words, "--save", name]),
        plan,
    ]
