"""`batchfit calibrate`: a profile from measured peaks, for models that cannot be traced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from batchfit.calibrate import Calibration, Point, calibrate, correct
from batchfit.cli._panel import Panel
from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile
from batchfit.records import to_json
from batchfit.units import format_bytes, parse_bytes


class PointType(click.ParamType[Point]):
    """ "8:61.2GiB": a micro-batch and the peak allocated memory there."""

    name = "B:BYTES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Point:
        if isinstance(value, Point):
            return value
        batch, separator, size = str(value).partition(":")
        if not separator or not batch.strip().isdecimal():
            self.fail(f"must be a micro-batch and a size such as 8:61.2GiB; you typed {value!r}", param, ctx)
        try:
            return Point(int(batch), parse_bytes(size, default="B"))
        except BadInput as wrong:
            self.fail(f"{value!r}: {wrong.reason}", param, ctx)


@click.command(
    epilog="\b\nExamples:\n"
    "  batchfit calibrate --point 2:21.4GiB --point 8:58.1GiB --save P.json\n"
    "  batchfit plan P.json --batch 256 --gpu a100-80gb --gpus 8\n"
    "  batchfit calibrate --profile traced.json --point 4:33.9GiB --save P.json\n\n"
    "Measure torch.cuda.max_memory_allocated() after two optimizer steps, with the accumulation you train with.",
)
@click.option(
    "--point",
    "points",
    type=PointType(),
    multiple=True,
    required=True,
    help="A measured peak; a bare number is bytes.",
)
@click.option(
    "--profile", metavar="P.json", help="Correct this profile's overhead instead of making a new one."
)
@click.option(
    "--seq-len", type=int, metavar="N", help="The points' tokens per sample, for a profile of a range."
)
@click.option("--name", default="measured", show_default=True, help="What to call the model.")
@click.option("--save", metavar="P.json", help="Write the profile there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    points: tuple[Point, ...],
    profile: str | None,
    seq_len: int | None,
    name: str,
    save: str | None,
    as_json: bool,
) -> None:
    """Make a profile from peaks measured at two micro-batches or more, by least squares; or correct the overhead of a
    traced one."""
    try:
        made = correct(MemoryProfile.load(profile), points, seq_len) if profile else calibrate(points, name)
    except BadInput as wrong:
        raise click.UsageError(
            f"--{wrong.field} {wrong.reason}" if wrong.field == "point" else str(wrong)
        ) from None
    if save:
        try:
            made.profile.save(Path(save))
        except OSError as problem:
            raise click.UsageError(f"--save cannot write {save}: {problem.strerror}") from None
    if as_json:
        click.echo(json.dumps(_data(made, points), indent=2))
    else:
        click.echo(_text(made, points, save, corrected=profile is not None))


def _data(made: Calibration, points: tuple[Point, ...]) -> dict[str, Any]:
    return {
        "profile": json.loads(made.profile.to_json()),
        "constant_bytes": made.constant_bytes,
        "activation_per_sample_bytes": made.per_sample_bytes,
        "points": [
            {"micro_batch": point.micro_batch, "measured_bytes": point.nbytes, "residual_bytes": residual}
            for point, residual in zip(points, made.residuals, strict=True)
        ],
        "assumptions": to_json(made.profile.assumptions),
    }


def _text(made: Calibration, points: tuple[Point, ...], save: str | None, *, corrected: bool) -> str:
    constant, slope = format_bytes(made.constant_bytes), format_bytes(made.per_sample_bytes)
    if corrected:
        panel = Panel(f"The overhead is corrected by {constant}; everything else is as traced.")
    else:
        panel = Panel(f"{constant} whatever the micro-batch, and {slope} for each sample.")
    for point, residual in zip(points, made.residuals, strict=True):
        off = f"{residual / point.nbytes:+.2%}" if residual else "exact"
        panel.row(
            f"micro-batch {point.micro_batch}",
            format_bytes(point.nbytes),
            f"measured; the line is off by {off}",
        )
    for assumption in made.profile.assumptions:
        panel.note(assumption)
    if save:
        panel.note(f"Plan with it: batchfit plan {save} --batch 256 --gpu a100-80gb --gpus 8")
    return panel.text()
