"""`batchfit models`: the catalogue of models as a table, or the profiles there are of one."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from itertools import groupby

import click

from batchfit.cli._panel import Panel
from batchfit.models import ModelEntry, Variant, find_model, load_models, load_profiles, nearby, variants
from batchfit.planning.traits import checkpointing_of, holding, seq_len_for
from batchfit.profile import MemoryProfile
from batchfit.units import format_bytes


@click.command(
    epilog="\b\nExamples:\n  batchfit models\n  batchfit models llama-3.1-8b\n  batchfit models --json"
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List the models that can be planned without tracing them, or show what there is of one (NAME)."""
    if name is None:
        entries = load_models()
    elif entry := find_model(name):
        entries = (entry,)
    else:
        near = nearby(name)
        hint = f"; did you mean {' or '.join(near)}?" if near else ", which `batchfit models` lists"
        raise click.UsageError(f"NAME must be a model of the catalogue{hint}; you typed {name!r}")
    if as_json:
        listed = [_data(entry) for entry in entries]
        click.echo(json.dumps(listed if name is None else listed[0], indent=2))
    elif name is not None:
        click.echo(describe(entries[0]))
    else:
        print_list(entries)


def _data(entry: ModelEntry) -> dict[str, object]:
    return {**asdict(entry), "profiles": [asdict(variant) for variant in variants(entry.name)]}


def describe(entry: ModelEntry) -> str:
    """One model: a sentence, and what it takes in each way of training that there is a profile of."""
    panel = Panel(f"{entry.title}: {entry.parameters:,} parameters.")
    panel.row("family", entry.family, entry.kind)
    if entry.context:
        panel.row("context", f"{entry.context:,}", "tokens at most")
    by_kind: dict[str, list[MemoryProfile]] = {}
    for profile in holding(load_profiles(entry.name), None) if variants(entry.name) else ():
        variant = Variant.of(profile)
        by_kind.setdefault(f"{variant.precision}, {variant.trained}", []).append(profile)
    for kind, profiles in by_kind.items():
        added = ", ".join(f"{format_bytes(_per_sample(p))} ({checkpointing_of(p)})" for p in profiles)
        panel.row(kind, format_bytes(profiles[0].states.total_bytes), f"and for each sample {added}")
    for length in {seq_len_for(profile, None) for profiles in by_kind.values() for profile in profiles}:
        sample = entry.sample or f"{length:,} tokens"
        panel.note(
            f"Weights, gradients and AdamW's state; and activations of a sample: {sample} "
            "(in brackets: activation checkpointing)."
        )
    panel.note(f"Configuration: {entry.source}. Also called {', '.join(entry.aliases)}.")
    panel.note(f"Plan with it: batchfit plan {entry.name} --batch 256 --gpu h100-80gb --gpus 8")
    return panel.text()


def _per_sample(profile: MemoryProfile) -> int:
    """Bytes that each further sample of a large micro-batch adds to the peak, at the usual length."""
    length = seq_len_for(profile, None)
    few, many = (profile.peak(micro_batch, 1, length).allocated_bytes for micro_batch in (64, 128))
    return (many - few) // 64


def print_list(entries: tuple[ModelEntry, ...]) -> None:
    """The table, by family."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    click.secho(f"{len(entries)} models that can be planned without tracing them.\n", bold=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("states, bf16", justify="right", no_wrap=True)
    table.add_column("model")
    for family, members in groupby(entries, key=lambda entry: entry.family):
        table.add_section()
        table.add_row(f"[bold]{family}[/]")
        for entry in sorted(members, key=lambda entry: entry.parameters):
            tokens = f"{entry.context:,}" if entry.context else ""
            table.add_row(f"  {entry.name}", f"{entry.parameters:,}", tokens, _states(entry), entry.title)
    console = Console(width=max(shutil.get_terminal_size().columns, 80), highlight=False)
    console.print(table)
    click.echo(
        "States: weights, gradients and AdamW's state, all of them in bf16. Tokens: the longest sequence.\n"
        "Any other model: batchfit trace MODEL --save P.json, then plan P.json."
    )


def _states(entry: ModelEntry) -> str:
    wanted = {"precision": "bf16", "trained": "full", "checkpointing": "none"}
    if not any(v.precision == "bf16" and v.trained == "full" for v in variants(entry.name)):
        return ""
    return format_bytes(load_profiles(entry.name, **wanted)[0].states.total_bytes)
