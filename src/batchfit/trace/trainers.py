"""Training steps of real trainers: transformers' Trainer and TRL's SFTTrainer, run by their own code."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from batchfit.errors import BadInput
from batchfit.trace.optimizers import BlockwiseOptimizer, OptimizerFactory, create_optimizer

#: The trainers a step can be run by; "none" is a bare loop.
TRAINERS = ("none", "hf", "trl")


class TrainerStep:
    """A trainer that was made for `model` and is ready to train: what `Trainer.train` does, without data and files.

    `micro` runs the trainer's own `training_step` on one micro-batch, `update` what its loop does after the last one of
    a step. `on_backward` is called where forward is over.
    """

    def __init__(self, trainer: Any, on_backward: Callable[[], None]) -> None:
        self._trainer = trainer
        trainer.create_optimizer_and_scheduler(num_training_steps=1000)
        self.model, self.optimizer, trainer.lr_scheduler = trainer.accelerator.prepare(
            trainer.model, trainer.optimizer, trainer.lr_scheduler
        )
        trainer.optimizer, trainer.model_wrapped = self.optimizer, self.model
        backward = trainer.accelerator.backward

        def marked(loss: Tensor, **kwargs: Any) -> None:
            on_backward()
            backward(loss, **kwargs)

        trainer.accelerator.backward = marked

    def batches(self, made: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
        """The micro-batches of a step as the loop hands them on, with the number of items in them all."""
        batches, items = self._trainer.get_batch_samples(iter(made), len(made), self._trainer.args.device)
        self._trainer.current_gradient_accumulation_steps = len(batches)
        return batches, items

    def micro(self, inputs: dict[str, Any], items: Any) -> Tensor:
        """Forward and backward of one micro-batch; the loss that the loop adds up."""
        loss: Tensor = self._trainer.training_step(self.model, inputs, items)
        return loss

    def update(self) -> None:
        """Clips gradients, steps the optimizer and the schedule, and sets gradients to None."""
        trainer = self._trainer
        if trainer.args.max_grad_norm:
            trainer.accelerator.clip_grad_norm_(self.model.parameters(), trainer.args.max_grad_norm)
        self.optimizer.step()
        trainer.lr_scheduler.step()
        self.model.zero_grad()


@contextmanager
def trainer_step(
    kind: str,
    model: nn.Module,
    *,
    precision: str,
    optimizer: str | OptimizerFactory,
    max_grad_norm: float | None,
    accumulation_steps: int,
    on_backward: Callable[[], None],
) -> Iterator[TrainerStep]:
    """A trainer of this kind around `model`, which is on the GPU that a trace pretends to have.

    precision   as `Settings` has it: "bf16-mixed" and "fp16-mixed" are the trainer's `bf16=True` and `fp16=True`

    Nothing is written but in a temporary folder, nothing is reported, and accelerate's process-wide state is as before
    when the context ends. Raises BadInput where the trainer is not known, not installed, or refuses the model.
    """
    if kind not in TRAINERS[1:]:
        raise BadInput(
            "trainer", "must be one of {known}; you typed {typed}", known=", ".join(TRAINERS), typed=repr(kind)
        )
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="batchfit-"))
        stack.enter_context(_alone())
        arguments: dict[str, Any] = {
            "output_dir": folder,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": accumulation_steps,
            "gradient_checkpointing": False,  # the model's blocks are set up before
            "bf16": precision == "bf16-mixed",
            "fp16": precision == "fp16-mixed",
            "max_grad_norm": max_grad_norm or 0.0,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "remove_unused_columns": False,
        }
        try:
            trainer = _MAKERS[kind](model, arguments)
        except ImportError as error:
            raise BadInput(
                "trainer",
                "{kind} needs {package}: pip install {package}",
                kind=kind,
                package=error.name or str(error),
            ) from error
        except ValueError as error:
            raise BadInput("trainer", "{kind} refuses the model: {reason}", kind=kind, reason=str(error)) from error
        trainer.optimizer = _optimizer(optimizer, trainer)
        yield TrainerStep(trainer, on_backward)


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

    return Trainer(model, TrainingArguments(**arguments))  # type: ignore[arg-type]


def _trl(model: nn.Module, arguments: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

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
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


_MAKERS: dict[str, Callable[..., Any]] = {"hf": _hf, "trl": _trl}


@contextmanager
def _alone() -> Iterator[None]:
    """Trainers find one GPU; accelerate's and transformers' process-wide state is put back at the end."""
    from accelerate.state import AcceleratorState, GradientState, PartialState
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    with ExitStack() as stack:
        for state in (PartialState, AcceleratorState, GradientState):
            stack.enter_context(mock.patch.dict(state._shared_state, clear=True))
        stack.enter_context(mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true"}))
        stack.enter_context(mock.patch("torch.cuda.is_available", lambda: True))
        stack.enter_context(mock.patch("torch.cuda.device_count", lambda: 1))
        stack.enter_context(mock.patch("torch.cuda.set_device", lambda device: None))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
