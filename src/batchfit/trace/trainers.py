"""Training steps of real trainers: transformers' Trainer and TRL's SFTTrainer, run by their own code."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from batchfit.errors import BadInput
from batchfit.extras import need
from batchfit.trace.optimizers import BlockwiseOptimizer, OptimizerFactory, create_optimizer
from batchfit.trace.reads import ReadsAreOne
from batchfit.trace.tracker import Tracker

#: The trainers a step can be run by; "none" is a bare loop.
TRAINERS = ("none", "hf", "trl")


class TrainerStep:
    """Runs optimizer steps of a trainer under the tracker: what its `train` does, without data and files.

    Forward and backward are its own `training_step`, and clipping, the optimizer's step and the schedule follow it as
    in its loop.
    """

    def __init__(self, trainer: Any, tracker: Tracker) -> None:
        self._trainer = trainer
        self._tracker = tracker
        self._at = 0, 0
        trainer.create_optimizer_and_scheduler(num_training_steps=1000)
        trainer.model_wrapped, trainer.optimizer, trainer.lr_scheduler = trainer.accelerator.prepare(
            trainer.model, trainer.optimizer, trainer.lr_scheduler
        )
        self._backward = trainer.accelerator.backward
        trainer.accelerator.backward = self._marked_backward

    def run(self, batch: Callable[[], Mapping[str, Tensor]], steps: Iterable[int]) -> None:
        """Runs optimizer steps; `steps` gives the number of micro-batches in each. Batches are on the host."""
        trainer, tracker = self._trainer, self._tracker
        steps = tuple(steps)
        for step, micros in enumerate(steps):
            tracker.mark("begin", step)
            made = iter([_named(batch()) for _ in range(micros)])
            batches, items = self._batch_samples(made, micros)
            trainer.current_gradient_accumulation_steps = micros
            for micro, inputs in enumerate(batches):
                self._at = step, micro
                tracker.mark("forward", step, micro)
                with ReadsAreOne("transformers.trainer", "trl", "accelerate"):
                    # Kept until the next one is there, as in the trainer's loop.
                    loss = trainer.training_step(trainer.model_wrapped, inputs, *items)
                for parameter in trainer.model.parameters():
                    if parameter.grad is not None:
                        tracker.label(parameter.grad, "gradients")
            tracker.mark("optimizer", step)
            self._update()
            tracker.mark("zero_grad", step)
            trainer.model_wrapped.zero_grad()
            del loss
        tracker.mark("end", len(steps) - 1)

    def _batch_samples(
        self, batches: Iterator[dict[str, Any]], count: int
    ) -> tuple[list[dict[str, Any]], tuple[Any, ...]]:
        """A step's micro-batches, and what goes to `training_step` with each: the items in them all.

        Before 4.46 transformers knew nothing of these; since 4.50 it asks for the device.
        """
        take = getattr(self._trainer, "get_batch_samples", None)
        if take is None:
            return list(batches), ()
        device = [self._trainer.args.device] if "device" in signature(take).parameters else []
        samples, items = take(batches, count, *device)
        return samples, (items,)

    def _marked_backward(self, loss: Tensor, **kwargs: Any) -> None:
        self._tracker.mark("backward", *self._at)
        self._backward(loss, **kwargs)

    def _update(self) -> None:
        trainer = self._trainer
        if trainer.args.max_grad_norm:
            trainer.accelerator.clip_grad_norm_(
                trainer.model_wrapped.parameters(), trainer.args.max_grad_norm
            )
        trainer.optimizer.step()
        trainer.lr_scheduler.step()


def _named(batch: Any) -> dict[str, Any]:
    """A batch as a trainer takes it. Raises BadInput where it is none."""
    if isinstance(batch, Mapping):
        return dict(batch)
    raise BadInput(
        "trainer",
        "needs batches that are dicts of the model's arguments, such as input_ids and labels; you gave a {kind}",
        kind=type(batch).__name__,
    )


@contextmanager
def trainer_step(
    kind: str,
    model: nn.Module,
    tracker: Tracker,
    *,
    precision: str,
    optimizer: str | OptimizerFactory,
    max_grad_norm: float | None,
) -> Iterator[TrainerStep]:
    """A trainer of this kind around `model`, which is on the GPU that a trace pretends to have, or on the CPU.

    precision       as `Settings` has it: "bf16-mixed" and "fp16-mixed" are the trainer's `bf16=True` and `fp16=True`,
                    "bf16-autocast" is `bf16=True` over 16-bit weights; TRL has that by default, so there "bf16" is too
    max_grad_norm   None: what the trainer does by itself

    Nothing is written but in a temporary folder, nothing is reported, and accelerate's process-wide state is as before
    when the context ends. Raises BadInput where the trainer is not known, not installed, or refuses the model.
    """
    if kind not in _MAKERS:
        raise BadInput(
            "trainer",
            "must be one of {known}; you typed {typed}",
            known=", ".join(TRAINERS),
            typed=repr(kind),
        )
    for package in _PACKAGES[kind]:
        need(package, extra="trainers", wanted_for=f"the trainer {kind}")
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="batchfit-"))
        on_gpu = next(model.parameters()).device.type == "cuda"
        stack.enter_context(_alone())
        for patch in _patches(kind, on_gpu):
            stack.enter_context(patch)
        arguments: dict[str, Any] = {
            "output_dir": folder,
            "gradient_checkpointing": False,  # the model's blocks are set up before
            "bf16": precision in _AUTOCAST_BF16[kind],
            "fp16": precision == "fp16-mixed",
            "use_cpu": not on_gpu,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "remove_unused_columns": False,
        }
        if max_grad_norm is not None:
            arguments["max_grad_norm"] = max_grad_norm
        try:
            with tracker.categorised("weights"):  # TRL casts adapters
                trainer = _MAKERS[kind](model, arguments)
        except ValueError as error:
            raise BadInput(
                "trainer", "{kind} refuses the model: {reason}", kind=kind, reason=str(error)
            ) from error
        with tracker.categorised("optimizer"):
            trainer.optimizer = _optimizer(optimizer, trainer)
        yield TrainerStep(trainer, tracker)


def _optimizer(choice: str | OptimizerFactory, trainer: Any) -> Optimizer:
    """The optimizer in the trainer's place, over the parameter groups that it makes: with and without weight decay.

    Source: `transformers.Trainer.create_optimizer`, which also keeps the states of embeddings in float32 where
    bitsandbytes would have them in 8 bits.
    """
    model = trainer.model
    decayed = set(trainer.get_decay_parameter_names(model))
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in trained if name in decayed], "weight_decay": trainer.args.weight_decay},
        {"params": [p for name, p in trained if name not in decayed], "weight_decay": 0.0},
    ]
    optimizer = create_optimizer(choice, model, groups=[group for group in groups if group["params"]])
    if isinstance(optimizer, BlockwiseOptimizer):
        optimizer.keep_float32(m.weight for m in model.modules() if isinstance(m, nn.Embedding))
    return optimizer


def _hf(model: nn.Module, arguments: dict[str, Any]) -> Any:
    from transformers import Trainer, TrainingArguments

    return Trainer(model, TrainingArguments(**arguments))


def _trl(model: nn.Module, arguments: dict[str, Any]) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    # It never gets to see data; this is the least that it takes for a data set.
    sample = Dataset.from_dict({"input_ids": [[0, 1]], "labels": [[0, 1]]})
    arguments |= {"dataset_kwargs": {"skip_prepare_dataset": True}, "max_length": None}
    return SFTTrainer(
        model,
        SFTConfig(**arguments),
        train_dataset=sample,
        processing_class=_tokenizer(),
    )


def _tokenizer() -> Any:
    """The least that SFTTrainer takes for a tokenizer: it never gets a text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
    )


def _patches(kind: str, on_gpu: bool) -> list[Any]:
    if not on_gpu:
        return []
    return [*_one_gpu(), *(_triton_of_trl() if kind == "trl" else ())]


def _one_gpu() -> list[Any]:
    """Trainers, and accelerate below them, look for a GPU themselves, and find one."""
    return [
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.device_count", return_value=1),
        mock.patch("torch.cuda.set_device", return_value=None),
    ]


def _triton_of_trl() -> list[Any]:
    """TRL's loss (since 1.15) folds tiles of logits into statistics, and those into gradients, in Triton kernels.

    They work in place. Without Triton, TRL does the same in float32 copies of a tile, which a GPU never holds.
    """
    try:
        from trl.kernels import chunked_logprob as loss
        from trl.trainer import utils
    except ImportError:
        return []
    kernel = _InPlaceKernel()
    return [
        mock.patch.object(loss, "_use_triton", return_value=True),
        mock.patch.object(utils, "_use_triton", return_value=True),
        mock.patch.object(loss, "_forward_kernel", kernel),
        mock.patch.object(loss, "_backward_kernel", kernel),
        mock.patch.object(loss, "triton", SimpleNamespace(cdiv=lambda a, b: -(-a // b)), create=True),
    ]


class _InPlaceKernel:
    """A Triton kernel to be called as `kernel[grid](...)`, for what it allocates: nothing."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **kwargs: None


_MAKERS: dict[str, Callable[..., Any]] = {"hf": _hf, "trl": _trl}
_AUTOCAST_BF16 = {"hf": ("bf16-mixed", "bf16-autocast"), "trl": ("bf16-mixed", "bf16-autocast", "bf16")}
_PACKAGES = {"hf": ("transformers", "accelerate"), "trl": ("transformers", "accelerate", "trl", "datasets")}


@contextmanager
def _alone() -> Iterator[None]:
    """Trainers find no network; process-wide states that they set are put back at the end."""
    from accelerate.state import (
        AcceleratorState,
        GradientState,
        PartialState,
    )
    from transformers.utils import logging

    with ExitStack() as stack:
        for state in (PartialState, AcceleratorState, GradientState):
            stack.enter_context(mock.patch.dict(state._shared_state, clear=True))
        stack.enter_context(mock.patch.dict(os.environ, {"CI": "1"}))  # TRL then reports no use
        stack.enter_context(mock.patch("huggingface_hub.constants.HF_HUB_OFFLINE", True))
        stack.enter_context(mock.patch("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True))
        stack.callback(random.setstate, random.getstate())
        stack.callback(numpy.random.set_state, numpy.random.get_state())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
