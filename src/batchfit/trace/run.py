"""`trace`: a model and a way to make batches go in, a memory profile comes out."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from torch import nn

from batchfit.profile import Affinity, Compute, MemoryProfile, Provenance, SeqRange, States
from batchfit.trace.adapters import Lora, add_lora
from batchfit.trace.build import twin
from batchfit.trace.checkpointing import checkpoint_blocks
from batchfit.trace.errors import explained
from batchfit.trace.gpu import Gpu
from batchfit.trace.losses import use_loss
from batchfit.trace.model_units import describe
from batchfit.trace.optimizers import OptimizerFactory, create_optimizer
from batchfit.trace.phases import alike, envelopes, peaks
from batchfit.trace.protocol import Loss, MakeBatch, model_loss
from batchfit.trace.quantize import prepare_for_training, quantize
from batchfit.trace.settings import Settings
from batchfit.trace.step import STEPS, Step
from batchfit.trace.timeline import Timeline
from batchfit.trace.tracker import Tracker, true_tensors
from batchfit.trace.trainers import trainer_step

#: Told what runs now and which part of the whole is done, from 0 to 1.
Progress = Callable[[str, float], None]

#: The micro-batches traced (with one sample strides are ambiguous, and copies are skipped), and the one at which
#: the lines are checked.
TRACED = (2, 3)
CHECKED_AT = 5

#: Memory is called affine in the micro-batch where the check is off by less than this (relative).
AFFINE_WITHIN = 0.005

_PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "timm", "batchfit")


def trace(
    model: nn.Module,
    make_batch: MakeBatch,
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
    trainer: str = "none",
    seq_len: int | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> MemoryProfile:
    """The memory profile of training `model`, which is left untouched and may be on the meta device.

    `make_batch(b)` makes a micro-batch of b samples: a dict goes to the model by keywords, a tuple by position.
    `loss(model, batch)` is the loss; by a name ("full", "chunked", "fused") it is the one that the model computes
    itself, in this way. `lora` adds adapters, to base weights in few bits if `quantize` says so. `trainer` runs the
    step of a real one. `seq_len` is only noted, in tokens. `progress` is told what runs and how much of it is done.

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
        trainer=trainer,
    )
    job = prepare(model, make_batch, settings, model_loss if isinstance(loss, str) else loss)
    timelines: dict[int, Timeline] = {}
    for done, micro_batch in enumerate((*TRACED, CHECKED_AT)):
        if progress is not None:
            progress(f"tracing micro-batch {micro_batch}", done / (len(TRACED) + 1))
        timelines[micro_batch] = job.timeline(micro_batch)
    if progress is not None:
        progress("traced", 1.0)
    return _profile(
        job, timelines, settings, seq_len, name or type(model).__name__, time.perf_counter() - begun
    )


def trace_timeline(
    model: nn.Module,
    make_batch: MakeBatch,
    micro_batch: int,
    settings: Settings | None = None,
    *,
    loss: Loss = model_loss,
    steps: Iterable[int] = STEPS,
    shown: str = "cuda:0",
) -> Timeline:
    """The timeline of optimizer steps of `model` at this micro-batch; `steps` has the micro-batches of each.

    `shown` "cpu" traces what the CPU would do instead of a GPU.
    """
    return prepare(model, make_batch, settings or Settings(), loss, shown).timeline(micro_batch, steps)


@dataclass(slots=True)
class Job:
    """A model on the pretended GPU, ready to be trained there at any micro-batch.

    `fresh` makes the model anew, for trainers: they wrap it, and may change it.
    """

    model: nn.Module
    fresh: Callable[[], nn.Module]
    make_batch: MakeBatch
    loss: Loss
    settings: Settings
    gpu: Gpu

    def timeline(self, micro_batch: int, steps: Iterable[int] = STEPS) -> Timeline:
        """Trains the model for a few optimizer steps and answers the timeline; the model is as before."""
        model = self.model if self.settings.trainer == "none" else self.fresh()
        with ExitStack() as stack:
            tracker = stack.enter_context(self.gpu.watched())
            stack.enter_context(explained())
            adopt(model, tracker)
            if self.settings.trainer == "none":
                optimizer = create_optimizer(self.settings.optimizer, model)
                step = Step(model, self.loss, optimizer, self.settings, tracker)
                step.run(lambda: self.gpu.bring(self.make_batch(micro_batch)), steps)
            else:
                trained = stack.enter_context(
                    trainer_step(
                        self.settings.trainer,
                        model,
                        tracker,
                        precision=self.settings.precision,
                        optimizer=self.settings.optimizer,
                        max_grad_norm=self.settings.max_grad_norm,
                    )
                )
                trained.run(lambda: self.make_batch(micro_batch), steps)
            tracker.close()
            model.zero_grad(set_to_none=True)
        return tracker.timeline


def prepare(
    model: nn.Module,
    make_batch: MakeBatch,
    settings: Settings,
    loss: Loss = model_loss,
    shown: str = "cuda:0",
) -> Job:
    """Copies `model` to the pretended GPU and makes it what the settings ask for."""
    gpu = Gpu(shown)
    fresh = partial(_as_trained, model, settings, gpu)
    return Job(fresh(), fresh, make_batch, loss, settings, gpu)


def _as_trained(model: nn.Module, settings: Settings, gpu: Gpu) -> nn.Module:
    """A copy of `model` on the GPU, with the weights, adapters, loss and checkpointing that the settings ask for."""
    copied: nn.Module = twin(model, gpu.device)
    copied.train()
    dtype = settings.weights_dtype
    if any(p.is_floating_point() and p.dtype != dtype for p in copied.parameters()):
        copied.to(dtype)
    if settings.quantize is not None:
        quantize(copied, settings.quantize)
    if settings.kbit:
        copied = prepare_for_training(copied, checkpointing=False)
    if settings.lora is not None:
        copied = add_lora(copied, settings.lora)
    use_loss(copied, settings.loss)
    checkpoint_blocks(copied, settings.checkpointing)
    return copied


def adopt(model: nn.Module, tracker: Tracker) -> None:
    """Puts the model's tensors, which are there before the step begins, on the timeline."""
    tracker.paths.know(model)
    for path, parameter in model.named_parameters():
        tracker.adopt(parameter, "weights", path.rpartition(".")[0])
    with true_tensors():
        buffers = [(path, buffer) for path, buffer in model.named_buffers() if tracker.counts(buffer)]
    for path, buffer in buffers:
        tracker.adopt(buffer, "buffers", path.rpartition(".")[0])


def _profile(
    job: Job,
    timelines: dict[int, Timeline],
    settings: Settings,
    seq_len: int | None,
    name: str,
    seconds: float,
) -> MemoryProfile:
    small, large = TRACED
    phases = envelopes(timelines[small], timelines[large], small, large)
    deviation = max(
        abs(max(line.at(CHECKED_AT) for line in phases[phase]) - peak) / peak
        for phase, peak in peaks(timelines[CHECKED_AT]).items()
    )
    matched = alike(timelines[small], timelines[large])
    described = settings.described() | ({} if seq_len is None else {"seq_len": seq_len})
    return MemoryProfile(
        model=describe(job.model, name),
        settings=described,
        states=_states(timelines[small]),
        phases=phases,
        reserved=(),
        compute=Compute(
            (0,),
            (0,),
            (0,),
            ((0,), (0,)),
            ((0,), (0,)),
            0,
            0,
            0,
            sum(p.numel() for p in job.model.parameters() if p.requires_grad),
        ),
        ledger=(),
        seq_len=None if seq_len is None else SeqRange(seq_len, seq_len, (seq_len,), None, None),
        affinity=Affinity(TRACED, CHECKED_AT, round(deviation, 6), matched and deviation < AFFINE_WITHIN),
        assumptions=(),
        provenance=Provenance(
            "traced", _versions(), round(seconds, 3), datetime.now(UTC).isoformat(timespec="seconds")
        ),
    )


def _states(timeline: Timeline) -> States:
    """What is alive when the last optimizer step begins: weights, gradients, optimizer state and buffers."""
    last = max(
        index
        for index, event in enumerate(timeline.events)
        if event.kind == 2 and timeline.marks[event.stack].phase == "optimizer"
    )
    sizes = dict.fromkeys(("weights", "gradients", "optimizer", "buffers"), 0)
    for storage, nbytes in timeline.alive_at(last).items():
        category = timeline.categories[storage]
        if category in sizes:
            sizes[category] += nbytes
    return States(sizes["weights"], sizes["gradients"], sizes["optimizer"], sizes["buffers"])


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
