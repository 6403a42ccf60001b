"""`batchfit plan`: from the batch a person wants to the settings that fit and are fastest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from batchfit.cli._profiles import profiles_of
from batchfit.errors import BadInput
from batchfit.languages import SOURCE, languages
from batchfit.planning import (
    TOP,
    Comparison,
    Elastic,
    Plans,
    answer,
    compare,
)
from batchfit.planning.asked import as_data, first_that_fits, situation_of
from batchfit.planning.rank import SHARDINGS
from batchfit.planning.traits import CHECKPOINTING, kind_of
from batchfit.profile import MemoryProfile
from batchfit.ready import as_data as ready_as_data
from batchfit.ready import asked_by, emitted
from batchfit.sentences import Sentence, in_language

#: Options that a file of `--from` gives, as pins of the present settings; those typed win.
_PRESENT = ("micro_batch", "accumulation_steps", "replicas", "sharding", "checkpointing")

NOTHING_FITS = 3


class PlanCommand(click.Command):
    """Keeps the words it was called with, to build the commands it suggests."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, args)


@click.command(
    cls=PlanCommand,
    epilog="\b\nExamples:\n"
    "  batchfit plan llama-3.1-8b --batch 256 --seq-len 4096 --gpu h100-80gb --gpus 8\n"
    "  batchfit plan llama-3.1-8b --batch 4M-tokens --seq-len 8192 --gpu h100-80gb --gpus 1,2,4,8,16\n"
    "  batchfit plan P.json --batch 250 --tolerance 5% --gpu a100-80gb --gpus 8 --emit deepspeed > ds_config.json\n"
    "  batchfit plan llama-3.1-8b --from ds_config.json --gpu a100-80gb --gpus 8\n\n"
    "Exit status: 0 with a plan, 3 where nothing fits, 2 where an option cannot be used.",
)
@click.argument("model", nargs=-1)
@click.option("--batch", metavar="N", help="Samples per optimizer step, or tokens: 256, 4M-tokens.")
@click.option("--gpu", metavar="NAME", help="The card, as `batchfit gpus` lists it.")
@click.option(
    "--gpus", default="1", show_default=True, metavar="N[,N...]", help="How many; several make a table."
)
@click.option("--seq-len", type=int, metavar="N", help="Tokens per sample.")
@click.option(
    "--tolerance", default="0", show_default=True, metavar="N|P%", help="By how much the batch may be missed."
)
@click.option("--micro-batch", type=int, metavar="N", help="Pin the micro-batch size.")
@click.option("--accumulation-steps", type=int, metavar="N", help="Pin the accumulation steps.")
@click.option("--max-accumulation", type=int, metavar="N", help="Accumulate at most this many steps.")
@click.option("--replicas", type=int, metavar="N", help="Pin the data-parallel replicas.")
@click.option("--sharding", type=click.Choice(SHARDINGS), help="Pin the sharding.")
@click.option("--checkpointing", type=click.Choice(CHECKPOINTING), help="Pin activation checkpointing.")
@click.option("--precision", metavar="NAME", help="fp32, bf16, fp16, bf16-mixed or fp16-mixed.")
@click.option("--optimizer", metavar="NAME", help="adamw, adamw-8bit and so on.")
@click.option("--lora", type=int, metavar="RANK", help="Train LoRA adapters of this rank.")
@click.option("--quantize", metavar="NAME", help="Weights quantised under the adapters: nf4 or int8.")
@click.option("--attention", metavar="NAME", help="flash, sdpa or eager.")
@click.option("--trainer", metavar="NAME", help="Whose loop runs the step: none, hf or trl.")
@click.option(
    "--input", "image", metavar="CxHxW", help="Size of a sample of images, for a model that is traced."
)
@click.option("--headroom", metavar="SIZE|P%", help="Memory to keep free on each card.  [default: 5%]")
@click.option(
    "--interconnect", metavar="RATE", help="Between nodes, for each GPU: 200Gb/s.  [default: 200Gb/s]"
)
@click.option(
    "--from", "present", metavar="FILE", help="A framework's present settings: predict and compare."
)
@click.option(
    "--emit", metavar="FRAMEWORK", help="Print the best plan as a ready file: deepspeed, trainer, ..."
)
@click.option("--top", type=click.IntRange(1, 1000), default=TOP, show_default=True, help="Plans to show.")
@click.option("--curve", is_flag=True, help="Also draw memory against the micro-batch.")
@click.option("--svg", metavar="FOLDER", type=click.Path(file_okay=False), help="Write the pictures there.")
@click.option("--cache/--no-cache", default=True, help="Keep traces, and use those kept.  [default: --cache]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--lang",
    type=click.Choice(languages(), case_sensitive=False),
    metavar="TAG",
    default=SOURCE,
    show_default=True,
    help="Language of the answer, and of a ready file's comments.",
)
@click.pass_context
def command(ctx: click.Context, /, model: tuple[str, ...], gpus: str, top: int, **asked: Any) -> None:
    """Find the micro-batch size, accumulation steps, replicas, sharding and checkpointing that reach a batch, fit, and
    are fastest.

    MODEL is a model of the catalogue, a profile that was saved, or any model that can be traced: a config.json or its
    folder, hf:owner/name, timm:name, FILE.py:FUNCTION or package.module:FUNCTION. Several profiles of one model, such
    as with and without checkpointing, are planned together.
    """
    try:
        _run(ctx, model, _counts(gpus), top, asked)
    except BadInput as wrong:
        raise click.UsageError(_worded(wrong, ctx), ctx) from None


def _run(
    ctx: click.Context, model: tuple[str, ...], gpus: list[int], top: int, asked: dict[str, Any]
) -> None:
    now: dict[str, Any] = {}
    if asked["present"]:
        now, model = _read_present(asked["present"], model, gpus[-1])
    wanted = {**now, **{name: value for name, value in asked.items() if value is not None}}
    profiles = profiles_of(_given(model, "MODEL"), asked, keep=asked["cache"])
    said = _adapted(wanted, asked, profiles)
    if asked["present"]:
        # The best plan is free to change what the file sets, unless it is typed too.
        wanted |= {name: asked[name] for name in _PRESENT}
    wanted["batch"], wanted["gpu"] = (
        _given(wanted.get("batch"), "--batch"),
        _given(wanted.get("gpu"), "--gpu"),
    )
    answers = [answer(situation_of(profiles, wanted, count), top) for count in gpus]
    answers = [replace(each, assumptions=(*said, *each.assumptions)) for each in answers]
    comparison = _compared(profiles, wanted, now, gpus[-1], answers[-1]) if asked["present"] else None
    _show(ctx, answers, comparison, model[0], asked)
    if not any(each.plans for each in answers):
        ctx.exit(NOTHING_FITS)


def _show(
    ctx: click.Context, answers: list[Plans], comparison: Comparison | None, model: str, asked: dict[str, Any]
) -> None:
    first = first_that_fits(answers)
    framework, lang = asked["emit"], asked["lang"]
    # JSON is for programs: its texts are English.
    ready = emitted(framework, first, model, SOURCE if asked["as_json"] else lang) if framework else None
    if asked["svg"]:
        _write_pictures(first, Path(asked["svg"]), lang)
    several = Elastic(tuple(answers)) if len(answers) > 1 else None
    if asked["as_json"]:
        data = as_data(answers, ready_as_data(framework, ready) if ready else None)
        if comparison is not None:
            data["present"] = comparison.to_dict()
        click.echo(json.dumps(data, indent=2))
    elif ready is not None:
        click.echo(in_language(first.sentence, lang), err=True)
        for note in ready.notes:
            click.echo(f"{note.field}: {in_language(note.text, lang)}", err=True)
        click.echo(ready.text, nl=False)
    else:
        from batchfit.cli import _plan_text

        if several is not None:
            _plan_text.show_elastic(several, lang)
        else:
            words = ctx.meta["words"]
            _plan_text.show(first, words, comparison=comparison, curve=asked["curve"], lang=lang)


# ---- Present settings, and ready ones -----------------------------------------------------------------------


def _read_present(path: str, model: tuple[str, ...], gpus: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a framework's file asks, and the model it names where none is typed. Where it leaves the replicas to the
    launcher, they are all the GPUs."""
    from batchfit.frameworks import read_settings

    _, settings = read_settings(Path(path))
    settings = replace(settings, replicas=settings.replicas or gpus).solved()
    return asked_by(settings), model or ((settings.model,) if settings.model else ())


def _adapted(
    wanted: dict[str, Any], asked: dict[str, Any], profiles: tuple[MemoryProfile, ...]
) -> list[Sentence]:
    """Drops from `wanted` a file's optimizer or attention that the model was not traced with, and says so: a
    neighbour of it tells more than nothing. Whatever else differs is an error, since it changes memory by far more."""
    said = []
    for name in ("optimizer", "attention"):
        value, there = wanted.get(name), {getattr(kind_of(profile), name) for profile in profiles}
        if value is not None and asked[name] is None and value not in there:
            del wanted[name]
            others = ", ".join(sorted(str(other) for other in there))
            said.append(
                Sentence(
                    "The file's {name} is {value}; the profiles are of {others}, which is planned with.",
                    name=name,
                    value=value,
                    others=others,
                )
            )
    return said


def _compared(
    profiles: tuple[MemoryProfile, ...], wanted: dict[str, Any], now: dict[str, Any], gpus: int, best: Plans
) -> Comparison:
    """The file's settings beside the best plan. What it leaves open is what frameworks do by default."""
    pins = {name: now.get(name) or wanted.get(name) for name in _PRESENT}
    replicas = pins["replicas"] or gpus
    if replicas == 1:
        pins["sharding"] = None
    elif pins["sharding"] in (None, "none"):
        pins["sharding"] = "ddp"
    pins["checkpointing"] = pins["checkpointing"] or "none"
    pins["accumulation_steps"] = pins["accumulation_steps"] or 1
    situation = situation_of(profiles, wanted, max(gpus, replicas), most_accumulation=None, **pins)
    compared = compare(situation, best)
    target = replace(situation.request.target, samples=best.target.samples)
    return replace(
        compared, present=replace(compared.present, drift=compared.present.effective_batch - target.samples)
    )


def _write_pictures(answered: Plans, folder: Path, lang: str) -> None:
    """The memory bar, memory against micro-batch and the Pareto front, each a complete SVG file."""
    from batchfit import charts

    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in charts.pictures_of(answered, lang).items():
        (folder / f"{name}.svg").write_text(charts.standalone(draw()), encoding="utf-8")


# ---- Words ---------------------------------------------------------------------------------------------------


def _given(value: Any, name: str) -> Any:
    if not value:
        raise click.UsageError(f"{name} is needed")
    return value


def _counts(text: str) -> list[int]:
    """ "8" or "1,2,4,8"; ascending, each once."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise click.UsageError(
            f"--gpus must be a number or numbers such as 1,2,4,8; you typed {text!r}"
        ) from None


def _worded(wrong: BadInput, ctx: click.Context) -> str:
    """A complaint that names the option as it is typed, or the file that is wrong."""
    from batchfit.wording import complaint

    names = {
        "lora_rank": "--lora",
        "image": "--input",
        "model": "MODEL",
        "profile": "MODEL",
        "framework": "--emit",
        "file": "--from",
    }
    options = {param.name for param in ctx.command.params}
    field, reason = wrong.field, complaint(wrong, ctx.params["lang"])
    named = f"--{field.replace('_', '-')}" if field in options else field
    return f"{names.get(field, named)} {reason}"
