"""`trace`: a model and a way to make batches go in, a memory profile comes out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import nn

from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile
from batchfit.trace.adapters import Lora
from batchfit.trace.gpu import Gpu
from batchfit.trace.inputs import Inputs
from batchfit.trace.job import Job, prepare
from batchfit.trace.kernels import assumed_of_the_card
from batchfit.trace.optimizers import OptimizerFactory
from batchfit.trace.own_step import OwnStep
from batchfit.trace.protocol import Loss, MakeBatch, Training, WholeStep, model_loss
from batchfit.trace.result import profile_of
from batchfit.trace.settings import Settings
from batchfit.trace.sources import Source, from_function, open_source
from batchfit.trace.step import STEPS
from batchfit.trace.timeline import Timeline

#: Told what runs now and which part of the whole is done, from 0 to 1.
Progress = Callable[[str, float], None]

#: The micro-batches traced (with one sample strides are ambiguous, and copies are skipped); the last one only
#: checks the lines that the first two give.
TRACED = (2, 3, 5)


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
    seq_len: int | None = None,
    image: tuple[int, int, int] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> MemoryProfile:
    """The memory profile of training `model`.

    A live module is left untouched (and may be on the meta device), and `make_batch(b)` makes a micro-batch of b
    samples: a dict goes to the model by keywords, a tuple by position. Instead of both: a Training; a function that
    returns one, or a WholeStep (it runs where tensors take no memory); or text as the command line takes it
    ("config.json", "hf:owner/name", "FILE.py:FUNCTION"). A sample that batchfit makes is `seq_len` tokens, or an
    `image` of channels, height and width.

    `loss(model, batch)` is the loss; by a name ("full", "chunked", "fused") it is the one that the model computes
    itself, in this way. `lora` adds adapters, to base weights in few bits if `quantize` says so (prepared by PEFT's
    `prepare_model_for_kbit_training` with `kbit`). `trainer` runs the step of a real one. `progress` is told what
    runs and how much of it is done.

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
    )
    tell = progress or _silent
    tell("making the model", 0.0)
    gpu = Gpu(attention=attention)
    source = _source(model, make_batch, loss, gpu, settings, Inputs(seq_len, image))
    job = _job(source, settings, gpu)
    timelines: dict[int, Timeline] = {}
    for done, micro_batch in enumerate(TRACED, 1):
        tell(f"tracing micro-batch {micro_batch}", done / (len(TRACED) + 1))
        # A later micro-batch is a first one that finds gradients; the check can do without.
        timelines[micro_batch] = job.timeline(micro_batch, STEPS if done < len(TRACED) else (1, 1))
    tell("traced", 1.0)
    return profile_of(
        job.model,
        name or source.name,
        timelines,
        job.described(),
        seq_len=job.tokens(),
        assumptions=(*source.assumptions, *job.assumptions(), *assumed_of_the_card(job.model)),
        seconds=time.perf_counter() - begun,
    )


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


def _job(source: Source, settings: Settings, gpu: Gpu) -> Job | OwnStep:
    training: Any = source.training
    if isinstance(training, WholeStep):
        return OwnStep(training, gpu)
    return prepare(training.model, training.make_batch, settings, training.loss, gpu, training.optimizer)
