"""`batchfit oom`: an out-of-memory message, explained, and what to change."""

from __future__ import annotations

import json
import shutil
import sys
from textwrap import wrap

import click

from batchfit.cli._panel import Panel
from batchfit.errors import BadInput
from batchfit.oom import OutOfMemory, advise, read_log
from batchfit.oom.meaning import Part, notes, parts, sentence
from batchfit.units import format_bytes

#: A sign and a colour for each part of the bar, so that they are told apart without colour too.
SIGNS = {
    "allocated": ("█", "cyan"),
    "unallocated": ("▒", "yellow"),
    "context": ("▓", "blue"),
    "outside": ("▓", "blue"),
    "elsewhere": ("░", "magenta"),
    "free": ("·", "white"),
}

LABELS = {
    "allocated": "allocated",
    "unallocated": "reserved, unused",
    "context": "context",
    "outside": "outside PyTorch",
    "elsewhere": "other processes",
    "free": "free",
}


@click.command(
    epilog="\b\nExamples:\n  batchfit oom train.log\n  python train.py 2>&1 | batchfit oom\n"
    "  batchfit oom train.log --json\n  batchfit oom train.log --model llama-3.1-8b --batch 64",
)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-", metavar="[FILE|-]"
)
@click.option("--model", metavar="MODEL", help="Also plan: a model of the catalogue, or a saved profile.")
@click.option(
    "--batch", metavar="N", help="With --model: samples per optimizer step, or tokens: 256, 4M-tokens."
)
@click.option("--gpu", metavar="NAME", help="With --model: the card, where the message does not tell it.")
@click.option(
    "--gpus", type=int, metavar="N", help="With --model: how many.  [default: the ranks in the log]"
)
@click.option("--seq-len", type=int, metavar="N", help="With --model: tokens per sample.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: str,
    model: str | None,
    batch: str | None,
    gpu: str | None,
    gpus: int | None,
    seq_len: int | None,
    as_json: bool,
) -> None:
    """Read an out-of-memory message, or a whole log with one in it, from FILE or from standard input: say what its
    numbers mean and what to change, cheapest first. PyTorch on CUDA, ROCm, Intel and Apple; what CUDA's libraries,
    JAX and TensorFlow say is recognised too."""
    if file == "-" and sys.stdin.isatty():
        click.echo("Paste the message, then press Ctrl-D:", err=True)
    with click.open_file(file, "rb") as log:
        text = log.read().decode("utf-8", errors="replace")
    try:
        messages = read_log(text)
    except BadInput as wrong:
        place = "standard input" if file == "-" else file
        raise click.ClickException(f"{place} {wrong.reason}") from None
    data, text = (as_data(messages), "") if as_json else ({}, as_text(messages))
    if model is not None:
        from batchfit.cli import _oom_plan

        if batch is None:
            raise click.UsageError("--batch is needed with --model: how many samples an optimizer step has")
        wanted = _oom_plan.Wanted(model, batch, gpu, gpus, seq_len)
        ranks = len({message.rank for message in messages if message.rank is not None})
        answer = _oom_plan.plan_after(messages[0], ranks, wanted)
        data["plan"] = answer.to_dict()
        text += "\n\n" + _oom_plan.as_text(answer, messages[0])
    click.echo(json.dumps(data, indent=2) if as_json else text)


def as_data(messages: tuple[OutOfMemory, ...]) -> dict[str, object]:
    """Every message with its meaning and advice. The first one is the one that the text explains."""
    return {"messages": [explained(message) for message in messages]}


def explained(message: OutOfMemory) -> dict[str, object]:
    """One message as data."""
    return {
        "sentence": sentence(message),
        **message.as_json(),
        "gpus": [gpu.id for gpu in message.gpus()],
        "parts": [part.as_json() for part in parts(message)],
        "notes": list(notes(message)),
        "advice": [advice.as_json() for advice in advise(message)],
    }


def as_text(messages: tuple[OutOfMemory, ...]) -> str:
    """One sentence, the bar, what the numbers mean, what to change."""
    message = messages[0]
    panel = Panel(sentence(message))
    if len(messages) > 1:
        panel.note(other_messages(messages))
    shown = parts(message)
    drawing = bar(message, shown)
    for part in shown:
        label = f"{SIGNS[part.name][0]} {LABELS[part.name]}" if drawing else LABELS[part.name]
        panel.row(label, format_bytes(part.size), part.explanation)
    if message.requested is not None and shown:
        panel.row("▶ asked for" if drawing else "asked for", format_bytes(message.requested), _asked(message))
    for note in notes(message):
        panel.note(note)
    head, _, rest = panel.text().partition("\n\n")
    return "\n\n".join(part for part in (head, drawing, rest, changes(message)) if part)


def other_messages(messages: tuple[OutOfMemory, ...]) -> str:
    """What there is beside the message that is explained."""
    ranks = [str(message.rank) for message in messages if message.rank is not None]
    if len(ranks) == len(messages):
        return f"{len(messages)} ranks ran out of memory ({', '.join(ranks)}); this is rank {ranks[0]}."
    return f"The log has {len(messages)} different messages; this is the first."


def bar(message: OutOfMemory, shown: tuple[Part, ...]) -> str:
    """The GPU's memory to scale, and the request beyond it; empty where the message does not account for nearly
    all of it, since a gap would look like something."""
    whole = message.limit if message.limited else message.capacity
    held = sum(part.size for part in shown)
    if not whole or message.requested is None or not 0.9 * whole <= held <= 1.05 * whole:
        return ""
    width = min(shutil.get_terminal_size().columns, 100) - 4
    request = min(message.requested, whole // 2)
    scale = (width - 2) / (max(held, whole) + request)
    drawn = "".join(
        click.style(SIGNS[part.name][0] * max(1, round(part.size * scale)), fg=SIGNS[part.name][1])
        for part in shown
        if part.size
    )
    more = "▶" * max(1, round(request * scale))
    return f"  {drawn}│{click.style(more, fg='red')}{'…' if request < message.requested else ''}"


def _asked(message: OutOfMemory) -> str:
    making = {
        "logits": "for the logits or their loss",
        "attention": "in attention",
        "optimizer state": "for the optimizer's state, made in its first step",
        "optimizer temporaries": "for the optimizer's temporaries",
        "recomputed activations": "for activations that checkpointing computes again",
    }
    said = [making[message.tensor]] if message.tensor else []
    said += [f"at {message.where}"] if message.where else []
    return ", ".join(said) or "the allocation that failed"


def changes(message: OutOfMemory) -> str:
    """What to do next: numbered, with the lines to type or to set."""
    lines = [click.style("What to change, cheapest first", bold=True)]
    width = max(shutil.get_terminal_size().columns, 60)
    for number, advice in enumerate(advise(message), 1):
        lines += ["", *wrap(f"{number}. {advice.action}", width, subsequent_indent="   ")]
        lines += wrap(advice.why, width, initial_indent="   ", subsequent_indent="   ")
        lines += [click.style(f"     $ {line}", fg="cyan") for line in advice.commands]
        lines += [click.style(f"     {line}", fg="cyan") for line in advice.settings]
    return "\n".join(lines)
