"""Steps of real trainers: their own code runs, leaves nothing behind, and holds what it holds."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer

from batchfit.errors import BadInput
from batchfit.profile import MemoryProfile
from batchfit.trace import Lora, Settings
from batchfit.trace.job import prepare
from batchfit.trace.phases import peaks
from batchfit.trace.run import trace
from batchfit.trace.timeline import ALLOC, Timeline
from batchfit.trace.tracker import Tracker
from batchfit.trace.trainers import trainer_step
from tests.trace.models import gpt2
from tests.trace.same import on_cpu, sizes, without_data

pytestmark = pytest.mark.torch

TOKENS, VOCABULARY = 128, 4000


def llama() -> nn.Module:
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
    )
    model: nn.Module = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return model


def make_batch(count: int) -> dict[str, torch.Tensor]:
    tokens = torch.zeros(count, TOKENS, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


def timeline(micro_batch: int = 2, **settings: Any) -> Timeline:
    with torch.device("meta"):
        model = llama()
    return prepare(model, make_batch, Settings(**settings)).timeline(micro_batch)


@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed", "fp16-mixed"])
@pytest.mark.parametrize("trainer", ["hf", "trl"])
def test_phases_of_a_trainer_are_those_of_a_loop(trainer: str, precision: str) -> None:
    ran = timeline(trainer=trainer, precision=precision)
    bare = timeline(precision=precision)
    marks = [(mark.phase, mark.step, mark.micro) for mark in ran.marks]
    assert marks == [(mark.phase, mark.step, mark.micro) for mark in bare.marks]
    assert peaks(ran).keys() == peaks(bare).keys()


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-8bit"])
@pytest.mark.parametrize("trainer", ["hf", "trl"])
def test_a_step_without_data_allocates_what_one_with_data_does(trainer: str, optimizer: str) -> None:
    def train(model: nn.Module, batch: Any, tracker: Tracker) -> None:
        options: dict[str, Any] = {"precision": "fp32", "optimizer": optimizer, "max_grad_norm": None}
        with trainer_step(trainer, model, tracker, **options) as step:
            step.run(lambda: batch, (1, 2))

    batch = make_batch(2)
    # The trainer takes batches on the host; the CPU is all there is here.
    assert sizes(without_data(llama, batch, train)) == sizes(on_cpu(llama, batch, train))


def test_hf_holds_what_a_loop_holds_that_gives_up_its_outputs() -> None:
    # transformers computes the loss in its forward, and its Trainer drops the outputs before backward.
    def loop(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch).loss
        return loss

    bare = peaks(prepare(llama(), make_batch, Settings(max_grad_norm=1.0), loop).timeline(2))
    ran = peaks(timeline(trainer="hf"))
    for phase, peak in bare.items():
        assert ran[phase] == pytest.approx(peak, rel=0.01)


def test_accelerate_brings_16_bit_outputs_to_float32() -> None:
    """Under autocast, accelerate converts what the model returns (`convert_outputs_to_fp32`): another copy of the
    logits, in forward."""
    logits = 4 * 2 * TOKENS * VOCABULARY
    forward = copies_of(timeline(trainer="hf", precision="bf16-mixed"), logits)
    assert forward == copies_of(timeline(precision="bf16-mixed", max_grad_norm=1.0), logits) + 3


def copies_of(ran: Timeline, nbytes: int) -> int:
    """How many tensors of this size are born in all three micro-batches."""
    return sum(e.kind == ALLOC and e.nbytes == nbytes for e in ran.events)


def test_trl_makes_no_full_logits() -> None:
    logits = 4 * 2 * TOKENS * VOCABULARY
    assert copies_of(timeline(trainer="trl"), logits) == 0
    assert copies_of(timeline(trainer="hf"), logits) > 0


def optimizer_states(ran: Timeline) -> list[int]:
    """The bytes of each tensor that the optimizer keeps."""
    alive = ran.alive_at(len(ran.events) - 1)
    return [nbytes for number, nbytes in alive.items() if ran.categories[number] == "optimizer"]


def test_trl_trains_quantised_models_with_adapters_in_bf16() -> None:
    ran = timeline(trainer="trl", quantize="nf4", lora=Lora(4, ("q_proj",)))
    # two moments of two bytes for A and for B, in each of two layers
    assert optimizer_states(ran) == [2 * 4 * 128] * 8


def test_trainer_groups_keep_8_bit_states_of_embeddings_in_float32() -> None:
    embedding = VOCABULARY * 128
    states = optimizer_states(timeline(trainer="hf", optimizer="adamw-8bit"))
    assert (states.count(4 * embedding), states.count(embedding)) == (2, 2)
    states = optimizer_states(timeline(optimizer="adamw-8bit"))
    assert (states.count(4 * embedding), states.count(embedding)) == (0, 4)


def test_the_trainers_own_training_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = Trainer.training_step

    def noted(self: Trainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(self.args.device)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "training_step", noted)
    timeline(trainer="hf")
    assert calls == [torch.device("cuda:0")] * 3


@pytest.mark.parametrize("trainer", ["hf", "trl"])
def test_nothing_is_left_behind(trainer: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.state import AcceleratorState, PartialState

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    environment = dict(os.environ)
    before = random.getstate(), str(numpy.random.get_state()), torch.get_rng_state()
    states = dict(PartialState._shared_state), dict(AcceleratorState._shared_state)
    timeline(trainer=trainer)
    assert os.listdir(tmp_path) == []
    assert dict(os.environ) == environment
    assert (dict(PartialState._shared_state), dict(AcceleratorState._shared_state)) == states
    assert random.getstate() == before[0]
    assert str(numpy.random.get_state()) == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_trl_reports_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    monkeypatch.setattr(
        "trl.trainer.base_trainer.send_telemetry", lambda *args, **kwargs: sent.append(kwargs)
    )
    timeline(trainer="trl")
    assert sent == []


def test_traced_twice_a_trainer_gives_the_same() -> None:
    job = prepare(
        llama(),
        make_batch,
        Settings(trainer="trl", precision="bf16-mixed", quantize="nf4", lora=Lora(4, ("q_proj",))),
    )
    assert job.timeline(2).events == job.timeline(2).events


def test_unknown_trainer_says_which_there_are() -> None:
    with pytest.raises(BadInput, match=r"^trainer: must be one of none, hf, trl; you gave 'lightning'$"):
        Settings(trainer="lightning")


def test_trl_has_its_own_loss() -> None:
    with pytest.raises(
        BadInput, match=r"^loss: must be full with the trainer trl, which has its own; you gave 'fused'$"
    ):
        Settings(trainer="trl", loss="fused")


def test_a_model_that_a_trainer_refuses_is_told() -> None:
    job = prepare(llama(), make_batch, Settings(trainer="trl", lora=Lora(4, ("lm_head",))))
    with pytest.raises(
        BadInput, match=r"^trainer: trl refuses the model: Applying a PEFT adapter to `lm_head` is not"
    ):
        job.timeline(2)


def test_a_loss_of_ones_own_is_not_the_trainers() -> None:
    def mine(model: nn.Module, batch: Any) -> torch.Tensor:
        raise AssertionError

    with pytest.raises(
        BadInput, match=r"^loss: must be the model's own with the trainer hf; you gave .*mine$"
    ):
        prepare(llama(), make_batch, Settings(trainer="hf"), mine)


def test_batches_that_are_no_dicts_are_told() -> None:
    job = prepare(llama(), lambda count: (torch.zeros(count, 8),), Settings(trainer="hf"))
    with pytest.raises(BadInput, match=r"^trainer: needs batches that are dicts .*; you gave a tuple$"):
        job.timeline(2)


def test_bf16_over_16_bit_weights_computes_norms_in_float32() -> None:
    model, batch = gpt2()

    def trained(precision: str) -> MemoryProfile:
        return trace(model, batch, precision=precision, trainer="hf")

    plain, autocast, mixed = trained("bf16"), trained("bf16-autocast"), trained("bf16-mixed")
    assert autocast.states.weights_bytes == plain.states.weights_bytes < mixed.states.weights_bytes
    assert autocast.activation_per_sample > plain.activation_per_sample


def test_a_trainer_that_does_not_count_the_items_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers before 4.46 gives micro-batches to `training_step` one by one."""
    counted = peaks(timeline())
    monkeypatch.delattr(Trainer, "get_batch_samples")
    assert peaks(timeline()) == pytest.approx(counted, rel=0.01)
