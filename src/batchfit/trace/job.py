"""A model on the pretended GPU, ready to be trained there at any micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.samples import SETTING
from batchfit.trace.adapters import add_lora
from batchfit.trace.assumptions import assumed
from batchfit.trace.blocks import Depths
from batchfit.trace.build import twin
from batchfit.trace.checkpointing import checkpoint_blocks
from batchfit.trace.compiled import compile_model
from batchfit.trace.errors import explained
from batchfit.trace.flat import flatten_gradients
from batchfit.trace.gpu import Gpu
from batchfit.trace.inputs import samples_in
from batchfit.trace.losses import use_loss
from batchfit.trace.optimizers import create_optimizer
from batchfit.trace.protocol import Loss, MakeBatch, model_loss
from batchfit.trace.quantize import prepare_for_training, quantize
from batchfit.trace.reads import without_data
from batchfit.trace.settings import Settings
from batchfit.trace.step import STEPS, Step
from batchfit.trace.timeline import Timeline
from batchfit.trace.tracker import Tracker, true_tensors
from batchfit.trace.trainers import trainer_step

_MIXED = ("the weights come in several types and are trained in these",)

_BALANCED = (
    "tokens are spread evenly over the experts of a layer, or whatever a model picks by the highest values",
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
    settings = settings or Settings()
    job = prepare(model, make_batch, settings, loss, Gpu(shown, settings.attention))
    return job.timeline(micro_batch, steps)


@dataclass(slots=True)
class Job:
    """A model on the pretended GPU, ready to be trained there at any micro-batch.

    `source` is the model as it was given, `fresh` makes the one that is trained anew, for trainers: they wrap it, and
    may change it. `at_length` makes batches of so many tokens, where the length can be chosen.
    """

    source: nn.Module
    fresh: Callable[[], nn.Module]
    make_batch: MakeBatch
    loss: Loss
    settings: Settings
    gpu: Gpu
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    at_length: Callable[[int], MakeBatch] | None = None
    _model: nn.Module | None = None

    @property
    def model(self) -> nn.Module:
        """The model as it is trained, made when it is first needed."""
        if self._model is None:
            self._model = self.fresh()
        return self._model

    def at(self, depths: Depths) -> Job:
        """The same with so many copies of the model's runs of blocks."""
        fresh = partial(_as_trained, self.source, self.settings, self.gpu, depths)
        return replace(self, fresh=fresh, _model=None)

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.optimizer is None:
            return create_optimizer(self.settings.optimizer, model)
        return without_data(self.optimizer(model))

    def described(self) -> dict[str, Any]:
        """The settings as a profile holds them, and what samples are, where that can be told."""
        kind = samples_in(self._sample())
        return self.settings.described() | ({} if kind is None else {SETTING: kind})

    def _sample(self) -> object:
        with self.gpu.pretending():
            return self.make_batch(1)

    def tokens(self) -> int | None:
        """Tokens of a sample, where batches hold `input_ids`."""
        batch = self._sample()
        ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
        return int(ids.shape[-1]) if isinstance(ids, torch.Tensor) and ids.dim() == 2 else None

    def assumptions(self) -> tuple[str, ...]:
        """What was taken for granted."""
        return (
            *assumed(self.settings),
            *(_BALANCED if self.gpu.device.picked else ()),
            *(_MIXED if is_mixed(self.source) else ()),
        )

    def timeline(
        self, micro_batch: int, steps: Iterable[int] = STEPS, seq_len: int | None = None
    ) -> Timeline:
        """Trains the model for a few optimizer steps and answers the timeline; the model is as before.

        `seq_len` is the tokens of a sample, where they can be chosen.
        """
        make_batch = self.make_batch
        if seq_len is not None:
            if self.at_length is None:
                raise BadInput(
                    "seq_len", "must be one number: this model's batches come from a function of your own"
                )
            make_batch = self.at_length(seq_len)
        model = self.model if self.settings.trainer == "none" else self.fresh()
        with ExitStack() as stack:
            tracker = stack.enter_context(self.gpu.watched())
            stack.enter_context(explained())
            adopt(model, tracker)
            if self.settings.trainer == "none":
                # Some optimizers make their state when they are made, before any step.
                with tracker.categorised("optimizer"):
                    optimizer = self._optimizer(model)
                step = Step(model, self.loss, optimizer, self.settings, tracker)
                step.run(lambda: self.gpu.bring(make_batch(micro_batch), self.settings.inputs_dtype), steps)
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
                trained.run(lambda: make_batch(micro_batch), steps)
            tracker.close()
            model.zero_grad(set_to_none=True)
        return tracker.timeline


def prepare(
    model: nn.Module,
    make_batch: MakeBatch,
    settings: Settings,
    loss: Loss = model_loss,
    gpu: Gpu | None = None,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    at_length: Callable[[int], MakeBatch] | None = None,
) -> Job:
    """Copies `model` to a pretended GPU and makes it what the settings ask for.

    `gpu` is the one where the model was made, if it was made on one; `optimizer` is a person's own. Raises BadInput
    where a trainer is to run and the loss is not the model's own.
    """
    if settings.trainer != "none" and loss is not model_loss:
        raise BadInput(
            "loss",
            "must be the model's own with the trainer {trainer}; you gave {given}",
            trainer=settings.trainer,
            given=getattr(loss, "__qualname__", repr(loss)),
        )
    gpu = gpu or Gpu(attention=settings.attention)
    fresh = partial(_as_trained, model, settings, gpu)
    return Job(model, fresh, make_batch, loss, settings, gpu, optimizer, at_length)


def _as_trained(model: nn.Module, settings: Settings, gpu: Gpu, depths: Depths | None = None) -> nn.Module:
    """A copy of `model` on the GPU, with the weights, adapters, loss and checkpointing that the settings ask for.

    `depths` says of which runs of blocks only some copies are kept.
    """
    copied: nn.Module = twin(model, gpu.device, depths)
    copied.train()
    if not is_mixed(copied):
        copied.to(settings.weights_dtype)
    if settings.quantize is not None:
        quantize(copied, settings.quantize)
    if settings.kbit:
        copied = prepare_for_training(copied, checkpointing=False)
    if settings.lora is not None:
        copied = add_lora(copied, settings.lora)
    use_loss(copied, settings.loss)
    _use_attention(copied, settings.attention)
    if settings.compile == "none":
        checkpoint_blocks(copied, settings.checkpointing)
    compile_model(copied, settings.compile, settings.checkpointing, gpu.graphs)
    if settings.flat_gradients:
        flatten_gradients(copied)
    return copied


def is_mixed(model: nn.Module) -> bool:
    """Whether a model's floating-point weights come in several types: whoever made it chose them, so they stay."""
    return len({p.dtype for p in model.parameters() if p.is_floating_point()}) > 1


def _use_attention(model: nn.Module, attention: str) -> None:
    """Models of transformers choose between attention written out and one function; others call the function."""
    switch: Any = getattr(model, "set_attn_implementation", None)
    if switch is not None and attention != "sdpa":
        switch("eager" if attention == "eager" else "sdpa")


def adopt(model: nn.Module, tracker: Tracker) -> None:
    """Puts the model's tensors, which are there before the step begins, on the timeline."""
    tracker.paths.know(model)
    for path, parameter in model.named_parameters():
        tracker.adopt(parameter, "weights", path.rpartition(".")[0])
    with true_tensors():
        buffers = [(path, buffer) for path, buffer in model.named_buffers() if tracker.counts(buffer)]
    for path, buffer in buffers:
        tracker.adopt(buffer, "buffers", path.rpartition(".")[0])
