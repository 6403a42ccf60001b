"""`trace`: a model and a way to make batches go in, a memory profile comes out."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile
from batchfit.trace.adapters import Lora
from batchfit.trace.allocator_config import AllocatorConfig
from batchfit.trace.fold import unfolded
from batchfit.trace.gpu import Gpu, frozen_heap
from batchfit.trace.inputs import Inputs
from batchfit.trace.job import Job, prepare
from batchfit.trace.kernels import assumed_of_the_card
from batchfit.trace.lengths import Lengths
from batchfit.trace.optimizers import OptimizerFactory
from batchfit.trace.own_step import OwnStep
from batchfit.trace.protocol import Loss, MakeBatch, Training, WholeStep, model_loss
from batchfit.trace.result import profile_of
from batchfit.trace.settings import Settings
from batchfit.trace.sources import Source, from_function, open_source
from batchfit.trace.study import TRACED, Progress, Study, study
from batchfit.trace.timeline import Timeline
from batchfit.trace.varying import VaryingLengths


def trace(
    model: nn.Module | Training | str | Callable[[], object],
    make_batch: MakeBatch | None = None,
    *,
    loss: Loss | str = "full",
    precision: str = "bf16",
    optimizer: str | OptimizerFactory = "adamw",
    checkpointing: str = "none",
    attention: str = "sdpa",
    max_grad_norm: float | None = None,
    set_to_none: bool = True,
    ema: bool = False,
    lora: Lora | None = None,
    quantize: str | None = None,
    kbit: bool = False,
    trainer: str = "none",
    flat_gradients: bool = False,
    compile: str = "none",  # noqa: A002
    seq_len: int | tuple[int, int] | None = None,
    image: tuple[int, int, int] | None = None,
    folding: bool = True,
    micro_batches: Iterable[int] = (),
    allocator: str | None = None,
    on_timeline: Callable[[Timeline], object] | None = None,
    on_lengths: Callable[[VaryingLengths], object] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> MemoryProfile:
    """The memory profile of training `model`.

    A live module is left untouched (and may be on the meta device), and `make_batch(b)` makes a micro-batch of b
    samples: a dict goes to the model by keywords, a tuple by position. Instead of both: a Training; a function that
    returns one, or a WholeStep (it runs where tensors take no memory); or text as the command line takes it
    ("config.json", "hf:owner/name", "FILE.py:FUNCTION"). A sample that batchfit makes is `seq_len` tokens, or an
    `image` of channels, height and width. With two lengths the profile holds for all in between, and a `make_batch`
    of one's own is called with the tokens, too: `make_batch(b, s)`.

    Blocks that repeat are traced a few times for all, unless `folding` is False. The allocator is replayed at a few
    micro-batches; `micro_batches` are further ones, `allocator` its settings as in PYTORCH_CUDA_ALLOC_CONF
    ("expandable_segments:True"; those of this process's environment do not count). `on_timeline` is given the whole
    model's timeline at the first of them.

    `loss(model, batch)` is the loss; by a name ("full", "chunked", "fused") it is the one that the model computes
    itself, in this way. `lora` adds adapters, to base weights in few bits if `quantize` says so (prepared by PEFT's
    `prepare_model_for_kbit_training` with `kbit`). `flat_gradients` gives frozen weights the gradients they have in
    FSDP1 where adapters are no units of their own. `compile` is what torch.compile is called on: "block" (each repeated
    block) or "whole". `trainer` runs the step of a real one. `progress` is told what runs
    and how much of it is done.

    Raises BadInput where a setting is not known, or where the model needs data that a trace does not have.
    """
    begun = time.perf_counter()
    settings = Settings(
        precision,
        optimizer,
        checkpointing,
        attention,
        max_grad_norm,
        set_to_none,
        ema,
        loss=loss if isinstance(loss, str) else "full",
        lora=lora,
        quantize=quantize,
        kbit=kbit,
        trainer=trainer,
        flat_gradients=flat_gradients,
        compile=compile,
    )
    config = None if allocator is None else AllocatorConfig.parse(allocator, "allocator")
    tell = progress or _silent
    with frozen_heap(), _one_thread():
        tell("making the model", 0.0)
        gpu = Gpu(attention=attention)
        lengths = Lengths.asked(seq_len)
        source = _source(model, make_batch, loss, gpu, settings, Inputs(lengths.longest, image))
        job = _job(source, settings, gpu, lengths)
        _check_length(lengths, job)
        studied = study(job, lengths, tell, folding=folding)
        tell("adding up", 1.0)
        micro_batches = tuple(micro_batches)
        if on_timeline is not None:
            on_timeline(whole_timeline(job, studied, micro_batches[0] if micro_batches else TRACED[0]))
        if on_lengths is not None:
            on_lengths(_varying(studied, config))
        return profile_of(
            studied,
            name or source.name,
            job.described() | ({} if allocator is None else {"allocator": allocator}),
            seq_len=None if lengths.is_range else job.tokens(),
            assumptions=(*source.assumptions, *job.assumptions(), *assumed_of_the_card(studied.model)),
            micro_batches=micro_batches,
            allocator=config,
            begun=begun,
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors without data give threads nothing to do, and what is added up here is too small to share: threads that
    wait for one another cost more than they save."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def whole_timeline(job: Job | OwnStep, studied: Study, micro_batch: int) -> Timeline:
    """The timeline of all blocks at this micro-batch, from the study where it tells it, else from a trace. Of a range
    of sequence lengths, at the longest."""
    if not studied.is_regular:
        return job.timeline(micro_batch)
    surface = studied.surface()
    return unfolded(surface.timeline, studied.fold).timeline(surface.requested(micro_batch, -1))


def _varying(studied: Study, config: AllocatorConfig | None) -> VaryingLengths:
    if not (studied.lengths.is_range and studied.is_regular):
        raise BadInput(
            "seq_len",
            "must be a range over which a training step stays the same, to replay samples of several lengths; you "
            "gave {given}",
            given=studied.lengths.longest,
        )
    return VaryingLengths(studied.surface(), config)


def _silent(what: str, done: float) -> None:
    pass


def _source(
    model: nn.Module | Training | str | Callable[[], object],
    make_batch: MakeBatch | None,
    loss: Loss | str,
    gpu: Gpu,
    settings: Settings,
    inputs: Inputs,
) -> Source:
    if isinstance(model, str):
        return open_source(model, gpu, settings, inputs)
    if isinstance(model, Training):
        return Source(model, model.name or type(model.model).__name__)
    if not isinstance(model, nn.Module):
        return from_function(model, getattr(model, "__qualname__", "model"), gpu)
    if make_batch is None:
        raise BadInput(
            "make_batch", "is needed with a module: a function that makes a micro-batch of b samples"
        )
    own_loss = model_loss if isinstance(loss, str) else loss
    return Source(Training(model, make_batch, own_loss), type(model).__name__)


def _job(source: Source, settings: Settings, gpu: Gpu, lengths: Lengths) -> Job | OwnStep:
    training: Any = source.training
    if isinstance(training, WholeStep):
        return OwnStep(training, gpu)
    make_batch, at_length = training.make_batch, source.at_length
    if at_length is None and lengths.longest is not None and (lengths.is_range or _takes_length(make_batch)):
        at_length = _at_length(make_batch)
        make_batch = at_length(lengths.longest)
    return prepare(training.model, make_batch, settings, training.loss, gpu, training.optimizer, at_length)


def _check_length(lengths: Lengths, job: Job | OwnStep) -> None:
    """Raises BadInput where samples are not of the length that is asked for: whoever makes them decides."""
    asked, found = lengths.longest, job.tokens()
    if asked is not None and found != asked:
        raise BadInput(
            "seq_len",
            "is {asked}, and {found}; a make_batch that takes a length, make_batch(micro_batch, seq_len), is given it",
            asked=asked,
            found="the batches are no token ids"
            if found is None
            else f"make_batch makes samples of {found} tokens",
        )


def _takes_length(make_batch: Callable[..., Any]) -> bool:
    try:
        inspect.signature(make_batch).bind(2, 1)
    except TypeError:
        return False
    return True


def _at_length(make_batch: Callable[..., Any]) -> Callable[[int], MakeBatch]:
    """Batches of so many tokens from a person's function, which must take them beside the micro-batch."""
    if not _takes_length(make_batch):
        raise BadInput(
            "seq_len",
            "is a range, and needs a make_batch that takes a length: make_batch(micro_batch, seq_len); this one takes "
            "the micro-batch alone",
        )
    return lambda seq_len: lambda micro_batch: make_batch(micro_batch, seq_len)
