"""`batchfit trace`: what a training step of a real model costs, found without a GPU and without weights."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchfit.cli._sample_lengths import SampleLengths
from batchfit.cli._trace_view import View
from batchfit.errors import BadInput
from batchfit.extras import need
from batchfit.models import find_model, load_profiles
from batchfit.planning.result import kinds_as_data
from batchfit.planning.traits import holding
from batchfit.profile import MemoryProfile
from batchfit.records import to_json
from batchfit.settings import ATTENTION, CHECKPOINTING, COMPILE, TRACED_PRECISIONS, TRACED_QUANTIZE
from batchfit.sharding import NAMES as SHARDING

if TYPE_CHECKING:
    from batchfit.trace.timeline import Timeline
    from batchfit.trace.varying import VaryingLengths

#: Options that say how the step is trained. A saved profile has them already.
_ASKED = (
    "image",
    "precision",
    "optimizer",
    "checkpointing",
    "attention",
    "loss",
    "lora",
    "lora_targets",
    "dora",
    "quantize",
    "trainer",
    "max_grad_norm",
    "ema",
    "flat_gradients",
    "compile",
    "allocator",
    "fold",
    "snapshot",
    "lengths",
)

#: What the catalogue's profiles were traced with, beside what their names say.
_CATALOGUE: dict[str, object] = {
    "image": None,
    "attention": "sdpa",
    "loss": "full",
    "dora": False,
    "trainer": "none",
    "max_grad_norm": None,
    "ema": False,
    "flat_gradients": False,
    "compile": "none",
    "allocator": None,
    "fold": True,
    "snapshot": None,
    "lengths": None,
}


class TraceCommand(click.Command):
    """Keeps the words it was called with, to build the commands it suggests."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, args)


@click.command(
    cls=TraceCommand,
    epilog="\b\nExamples:\n"
    "  batchfit trace config.json --seq-len 4096 --micro-batch 4 --checkpointing full\n"
    "  batchfit trace hf:owner/name --seq-len 512..8192 --lora 16 --save profile.json\n"
    "  batchfit trace train.py:training --precision bf16-mixed --snapshot step.pickle\n"
    "  batchfit trace config.json --lengths tokens.txt --micro-batch 4\n"
    "  batchfit trace timm:resnet50 --input 3x224x224 --precision fp16-mixed --optimizer momentum\n"
    "  batchfit trace profile.json --micro-batch 8 --sharding fsdp --replicas 8\n\n"
    "Exit status: 0 with an answer, 2 where an option or the model cannot be used.",
)
@click.argument("model")
@click.option("--seq-len", metavar="N|A..B", help="Tokens per sample, or a range that the profile holds for.")
@click.option("--lengths", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
              help="Tokens of each sample, a number a line: what is reserved over them, in their order.")  # fmt: skip
@click.option("--input", "image", metavar="CxHxW", help="Channels, height and width of an image: 3x224x224.")
@click.option("--micro-batch", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Samples per micro-batch to tell the peak for.")  # fmt: skip
@click.option("--accumulation-steps", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Micro-batches per optimizer step.")  # fmt: skip
@click.option("--precision", type=click.Choice(TRACED_PRECISIONS), default="bf16", show_default=True,
              help="Type of the weights; under autocast -mixed has 32-bit weights, -autocast 16-bit.")  # fmt: skip
@click.option("--optimizer", default="adamw", show_default=True, metavar="NAME",
              help="adamw, adamw-fused, adamw-8bit, sgd, adafactor, lion, muon, ...")  # fmt: skip
@click.option("--checkpointing", type=click.Choice(CHECKPOINTING), default="none", show_default=True,
              help="Activation checkpointing of the model's blocks.")  # fmt: skip
@click.option("--attention", type=click.Choice(ATTENTION), default="sdpa", show_default=True,
              help="The attention kernel; sdpa is what PyTorch chooses on CUDA.")  # fmt: skip
@click.option("--loss", type=click.Choice(("full", "chunked", "fused")), default="full", show_default=True,
              help="How a language model gets from hidden states to its loss.")  # fmt: skip
@click.option("--lora", type=click.IntRange(1), metavar="RANK", help="Train LoRA adapters of this rank.")
@click.option("--lora-targets", metavar="A,B", help="Layers that get an adapter; all-linear for all.")
@click.option("--dora", is_flag=True, help="DoRA: adapters that also learn magnitudes.")
@click.option(
    "--quantize", type=click.Choice(TRACED_QUANTIZE), help="Base weights in few bits under the adapters."
)
@click.option("--trainer", type=click.Choice(("none", "hf", "trl")), default="none", show_default=True,
              help="Run the step of transformers' Trainer or of TRL's SFTTrainer.")  # fmt: skip
@click.option("--max-grad-norm", type=float, metavar="X", help="Clip gradients to this norm.")
@click.option("--ema", is_flag=True, help="Keep a moving average of the weights.")
@click.option("--flat-gradients", is_flag=True,
              help="Frozen weights lie in a flat parameter of fsdp1 with adapters, and get gradients.")  # fmt: skip
@click.option("--compile", type=click.Choice(COMPILE), default="none", show_default=True,
              help="What torch.compile is called on: each repeated block, or the whole model.")  # fmt: skip
@click.option("--allocator", metavar="SETTINGS",
              help="The caching allocator's, as in PYTORCH_CUDA_ALLOC_CONF.")  # fmt: skip
@click.option("--sharding", type=click.Choice(SHARDING), default="none", show_default=True,
              help="What each data-parallel replica holds; fsdp is FSDP2.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Data-parallel replicas.")  # fmt: skip
@click.option(
    "--fold/--no-fold", default=True, help="Trace few of the blocks that repeat.  [default: --fold]"
)
@click.option("--ledger", "lines", type=click.IntRange(0), default=12, show_default=True, metavar="N",
              help="Lines of code to show.")  # fmt: skip
@click.option("--save", metavar="P.json", type=click.Path(dir_okay=False), help="Write the profile there.")
@click.option("--snapshot", metavar="P.pickle", type=click.Path(dir_okay=False),
              help="Write the step there for PyTorch's memory viewer.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, model: str, save: str | None, as_json: bool, lines: int, **asked: Any
) -> None:
    """Trace a training step: its peak memory, phase by phase, and which lines of the model hold it.

    MODEL is a config.json or its folder, hf:owner/name (only its config.json is fetched), timm:name, FILE.py:FUNCTION
    or package.module:FUNCTION returning a batchfit.Training, a name in the catalogue, or a profile saved before.
    No GPU is used, and no weights are loaded.
    """
    try:
        for option, path in (("--save", save), ("--snapshot", asked["snapshot"])):
            _check_folder(option, path)
        lengths = _lengths(asked)
        profile = _sharded(_profile(ctx, model, asked), asked)
        view = View(
            profile, asked["micro_batch"], asked["accumulation_steps"], _seq_len(profile, asked["seq_len"])
        )
    except BadInput as wrong:
        raise click.UsageError(_worded(wrong, ctx), ctx) from None
    if save:
        profile.save(save)
    if as_json:
        click.echo(json.dumps(document(view, lengths), indent=1))
    else:
        from batchfit.cli import _trace_text

        _trace_text.show(
            view,
            lines=lines,
            saved=save or (model if _saved(model) else None),
            words=ctx.meta["words"],
            lengths=lengths,
        )


def document(view: View, lengths: SampleLengths | None) -> dict[str, Any]:
    """The answer as JSON."""
    profile, peak = view.profile, view.peak
    return {
        "profile": json.loads(profile.to_json()),
        "micro_batch": view.micro_batch,
        "accumulation_steps": view.accumulation_steps,
        "seq_len": view.seq_len,
        "peak": {
            "allocated_bytes": peak.allocated_bytes,
            "reserved_bytes": peak.reserved_bytes,
            "binding_phase": peak.binding_phase,
            "where": peak.line.where,
            "parts": {f"{part}_bytes": nbytes for part, nbytes in peak.parts.items()},
            "activations": kinds_as_data(peak.activations),
        },
        **({"reserved_over_lengths": to_json(lengths.reserved)} if lengths else {}),
        "states": to_json(profile.states),
        "activation_per_sample_bytes": profile.activation_per_sample,
        "parameters": profile.model.parameters,
        "trainable_parameters": profile.model.trainable_parameters,
        "ledger": [to_json(entry) for entry in profile.ledger],
        "assumptions": list(profile.assumptions),
        "versions": profile.provenance.versions,
        "seconds": profile.provenance.seconds,
    }


def _lengths(asked: dict[str, Any]) -> SampleLengths | None:
    """The samples' lengths, if they are given; what is traced is then their range."""
    if asked["lengths"] is None:
        return None
    if asked["seq_len"]:
        raise BadInput("lengths", "says how long samples are; leave out --seq-len")
    asked["lengths"] = found = SampleLengths.read(asked["lengths"], asked["micro_batch"])
    asked["seq_len"] = f"{found.shortest}..{found.longest}"
    return found


def _seq_len(profile: MemoryProfile, asked: str | None) -> int | None:
    """The length to tell the peak at: the one asked for, of a range the longest."""
    if profile.seq_len is None:
        return None
    return int(asked) if asked and asked.isdigit() else profile.seq_len.maximum


def _profile(ctx: click.Context, model: str, asked: dict[str, Any]) -> MemoryProfile:
    """The profile that MODEL is, or that a trace of it gives."""
    saved = _saved(model)
    if saved is None:
        entry = find_model(model)
        if entry is None:
            return _traced(model, asked)
        return _ready(entry.name, asked) or _traced(str(entry.config), asked)
    typed = [name for name in _ASKED if _is_typed(ctx, name)]
    if typed:
        raise BadInput(
            typed[0], "cannot be changed in {model}, a profile that was saved; trace its model", model=model
        )
    return saved


def _ready(model: str, asked: dict[str, Any]) -> MemoryProfile | None:
    """The catalogue's profile of a model, where it has one that was trained in just the way that is asked for."""
    if any(asked[name] != value for name, value in _CATALOGUE.items()):
        return None
    if asked["lora"] and _targets(asked["lora_targets"]) != ("all-linear",):
        return None
    length = int(asked["seq_len"]) if (asked["seq_len"] or "").isdigit() else None
    adapters = f"lora{asked['lora']}" if asked["lora"] else "full"
    wanted = {
        "precision": asked["precision"],
        "optimizer": asked["optimizer"],
        "trained": f"{asked['quantize']}-{adapters}" if asked["quantize"] else adapters,
        "checkpointing": asked["checkpointing"],
    }
    try:
        profile = holding(load_profiles(model, **wanted), length)[0]
    except BadInput:
        return None
    span = profile.seq_len
    if asked["seq_len"] and (length is None or span is None or not span.minimum <= length <= span.maximum):
        return None
    return profile


def _is_typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _saved(model: str) -> MemoryProfile | None:
    """The profile in the file MODEL, if it is a file with one."""
    path = Path(model)
    if path.suffix != ".json" or not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        begins = file.read(100)
    return MemoryProfile.load(path) if '"batchfit_profile"' in begins else None


def _traced(model: str, asked: dict[str, Any]) -> MemoryProfile:
    from batchfit.cli._progress import progress

    seq_len, image = asked["seq_len"], _image(asked["image"])
    with progress(f"tracing {model}") as tell, _quiet():
        tell("loading PyTorch", 0.0)
        need("torch", extra="trace", wanted_for="tracing a model")
        from batchfit.trace import Lora, trace
        from batchfit.trace.lengths import parse_lengths

        if asked["lora"] is None and (asked["lora_targets"] or asked["dora"]):
            field = "lora_targets" if asked["lora_targets"] else "dora"
            raise BadInput(field, "needs adapters; give their rank with --lora RANK")
        lora = asked["lora"] and Lora(asked["lora"], _targets(asked["lora_targets"]), dora=asked["dora"])
        watched: list[Timeline] = []
        profile = trace(
            model,
            seq_len=parse_lengths(seq_len) if seq_len else None,
            image=image,
            precision=asked["precision"],
            optimizer=asked["optimizer"],
            checkpointing=asked["checkpointing"],
            attention=asked["attention"],
            loss=asked["loss"],
            lora=lora,
            quantize=asked["quantize"],
            trainer=asked["trainer"],
            max_grad_norm=asked["max_grad_norm"],
            ema=asked["ema"],
            flat_gradients=asked["flat_gradients"],
            compile=asked["compile"],
            allocator=asked["allocator"],
            folding=asked["fold"],
            micro_batches=(asked["micro_batch"],),
            on_timeline=watched.append if asked["snapshot"] else None,
            on_lengths=_replay(asked, tell) if asked["lengths"] else None,
            progress=tell,
        )
        if asked["snapshot"]:
            from batchfit.trace.snapshot import write_snapshot

            tell("writing the snapshot", 1.0)
            write_snapshot(asked["snapshot"], watched[0])
        return profile


def _replay(asked: dict[str, Any], tell: Callable[[str, float], None]) -> Callable[[VaryingLengths], None]:
    def replay(steps: VaryingLengths) -> None:
        tell("replaying the samples' lengths", 1.0)
        asked["lengths"].replay(steps, asked["accumulation_steps"])

    return replay


@contextmanager
def _quiet() -> Iterator[None]:
    """Libraries' chatter, and what a person's own code prints, stay off the answer."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield


def _targets(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else None


def _image(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip())
    if found is None or not all(int(size) for size in found.groups()):
        raise BadInput(
            "image",
            "must be channels, height and width such as 3x224x224; you typed {typed}",
            typed=repr(text),
        )
    channels, height, width = (int(size) for size in found.groups())
    return channels, height, width


def _sharded(profile: MemoryProfile, asked: dict[str, Any]) -> MemoryProfile:
    if asked["sharding"] == "none":
        if asked["replicas"] > 1:
            raise BadInput("replicas", "needs a --sharding; without one each replica is like a single GPU")
        return profile
    from batchfit.sharding import named, shard

    return shard(profile, named(asked["sharding"]), asked["replicas"])


def _check_folder(option: str, path: str | None) -> None:
    """A trace is not to be lost for want of a folder."""
    if path and not Path(path).absolute().parent.is_dir():
        raise click.UsageError(f"{option} {path}: there is no folder {Path(path).parent}")


def _worded(wrong: BadInput, ctx: click.Context) -> str:
    """A complaint that names the option as it is typed, or the file that is wrong."""
    options = {param.name: param.opts[0] for param in ctx.command.params}
    if ctx.params.get("lengths"):  # which say what is traced
        options["seq_len"] = options["lengths"]
    if wrong.field == "model":
        return f"MODEL {wrong.reason}"
    return (
        f"{options[wrong.field]} {wrong.reason}"
        if wrong.field in options
        else f"{wrong.field} {wrong.reason}"
    )
