"""`batchfit gpus`: the catalogue of GPUs as a table, or one of them with the source of every figure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from batchfit.cli._panel import Panel
from batchfit.errors import BadInput
from batchfit.gpus import Gpu, find_gpu, load_gpus
from batchfit.units import format_bytes

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "–"

#: What the figures are called on the screen.
LABELS = {
    "marketed_gb": "sold as",
    "memory_bytes": "usable",
    "bandwidth": "memory bandwidth",
    "peak_16bit": "16-bit peak",
    "peak_fp32": "fp32 peak",
    "context_bytes": "context",
}


@click.command(
    epilog="\b\nExamples:\n  batchfit gpus\n  batchfit gpus rtx-4090\n  batchfit gpus h100 --json",
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List the GPUs that batchfit knows, with the memory that PyTorch can really use, or show one of them (NAME)
    with the source of each figure."""
    if name is not None:
        try:
            gpu = find_gpu(name)
        except BadInput as wrong:
            raise click.UsageError(f"NAME {wrong.reason}") from None
        click.echo(json.dumps(gpu.as_json(), indent=2) if as_json else describe(gpu))
    elif as_json:
        click.echo(json.dumps([gpu.as_json() for gpu in load_gpus()], indent=2))
    else:
        print_list(load_gpus())


def print_list(gpus: tuple[Gpu, ...]) -> None:
    """The table, by vendor and memory."""
    from rich.console import Console

    console = Console(width=max(shutil.get_terminal_size().columns, 80), highlight=False)
    click.secho(f"{len(gpus)} GPUs, with the memory that PyTorch can really use of each.\n", bold=True)
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        click.secho(vendor, bold=True)
        console.print(vendor_table(gpu for gpu in gpus if gpu.vendor == vendor))
    click.echo(
        "~ derived from cards of the same generation; the rest is published, and the smallest figure stands.\n"
        "16-bit: dense matrix products. link: to another GPU of the node, both directions together.\n"
        "Everything about one card, with sources: batchfit gpus rtx-4090"
    )


def vendor_table(gpus: Iterable[Gpu]) -> Table:
    """GPUs of one vendor, memory ascending."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("\nid", style="cyan", no_wrap=True)
    for heading in ("sold as\nGB", "usable\nGiB", "memory\nGB/s", "16-bit\nTFLOP/s", "link\nGB/s", "\nyear"):
        table.add_column(heading, justify="right", no_wrap=True)
    for gpu in sorted(gpus, key=lambda gpu: (gpu.marketed_gb, gpu.memory_bytes, gpu.id)):
        mark = "~" if gpu.memory_basis == "derived" else ""
        table.add_row(
            gpu.id,
            str(gpu.marketed_gb),
            f"{mark}{gpu.memory_bytes / 2**30:.2f}",
            _in(gpu.bandwidth, 1e9),
            _in(gpu.peak_16bit, 1e12),
            _in(gpu.link_bandwidth, 1e9),
            str(gpu.year),
        )
    return table


def describe(gpu: Gpu) -> str:
    """One GPU: a sentence, every figure, and where the figures come from."""
    panel = Panel(f"{gpu.name}: PyTorch can use {_gib(gpu.memory_bytes)} of its {gpu.marketed_gb} GB.")
    panel.row("usable", _gib(gpu.memory_bytes), f"{gpu.memory_basis}: {gpu.memory_rule}")
    if gpu.reported_bytes:
        low, high = (_gib(count) for count in gpu.reported_bytes)
        panel.row(
            "PyTorch reports", low if low == high else f"{low} to {high}", "published totals, under Linux"
        )
    if gpu.driver_bytes:
        panel.row(
            "driver reports", f"{gpu.driver_bytes // 2**20:,} MiB", "with what the driver keeps under Linux"
        )
    if gpu.context_bytes:
        panel.row(
            "context", format_bytes(gpu.context_bytes), "at least, per process, beside PyTorch's allocator"
        )
    panel.row("memory bandwidth", f"{_in(gpu.bandwidth, 1e9)} GB/s", "")
    if gpu.peak_16bit:
        panel.row("16-bit peak", f"{_in(gpu.peak_16bit, 1e12)} TFLOP/s", "dense matrix products")
    if gpu.peak_fp32:
        panel.row("fp32 peak", f"{_in(gpu.peak_fp32, 1e12)} TFLOP/s", "outside tensor cores")
    if gpu.link_bandwidth:
        panel.row("link", f"{_in(gpu.link_bandwidth, 1e9)} GB/s", f"{gpu.link}, both directions together")
    panel.row("in one node", str(gpu.per_node), "usually")
    capability = f"compute capability {gpu.compute_capability}, " if gpu.compute_capability else ""
    panel.row("generation", gpu.architecture, f"{capability}{gpu.year}")
    panel.row(
        "bf16", "yes" if gpu.supports_bf16 else "no", "" if gpu.supports_bf16 else "train in fp16 or fp32"
    )
    if gpu.note:
        panel.note(f"Note: {gpu.note}.")
    panel.note("Sources")
    for document, figures in _by_document(gpu).items():
        panel.note(f"{', '.join(figures)}: {document}.")
    return panel.text()


def _by_document(gpu: Gpu) -> dict[str, list[str]]:
    """Document -> the figures that it gives."""
    found: dict[str, list[str]] = {}
    for figure, document in gpu.sources.items():
        found.setdefault(document, []).append(LABELS.get(figure, figure))
    return found


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _in(rate: int | None, unit: float) -> str:
    """A rate in units of 10^9 or 10^12 a second, to four digits: "1,008", "63.01"."""
    if rate is None:
        return UNKNOWN
    return f"{rate / unit:,.4g}"
