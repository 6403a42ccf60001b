"""Ranks of Megatron-DeepSpeed hold what its papers say, and pipeline stages as many micro-batches as they must."""

from __future__ import annotations

import pytest
import torch

from batchfit.formulas import pipeline
from batchfit.trace.gpu import Gpu
from batchfit.trace.job import adopt
from batchfit.trace.timeline import ALLOC, FREE
from bench.accuracy import megatron_step
from bench.accuracy.families import bigscience
from bench.accuracy.megatron import Place, Stage
from bench.accuracy.question import CannotExpress
from bench.accuracy.rows import Row, read

LENGTH, BATCH, HIDDEN, HEADS, LAYERS = 128, 4, 256, 8, 8
CONFIG = {
    "hidden_size": HIDDEN,
    "intermediate_size": 4 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "vocab_size": 1000,
}
GIB = 2**30


def _kept(tensor: int, length: int = LENGTH, batch: int = BATCH, **sizes: int) -> int:
    """Bytes of activations that a layer keeps for backward: what is alive after its forward. Its result is among them,
    and its input, which is as large, is not."""
    config = {**CONFIG, "num_hidden_layers": 4, **sizes}
    gpu = Gpu(attention="eager")
    with gpu.building():
        stage = Stage(config, length, Place(1, 4, tensor), checkpointing=False).half()
        x = torch.empty(length, batch, config["hidden_size"], dtype=torch.float16, requires_grad=True)
    with gpu.watched() as tracker:
        adopt(stage, tracker)
        result = stage.layers[0](x)
        timeline = tracker.timeline
        alive: dict[int, int] = {}
        for event in timeline.events:
            if event.kind == ALLOC and timeline.categories[event.storage] == "activations":
                alive[event.storage] = event.nbytes
            elif event.kind == FREE:
                alive.pop(event.storage, None)
        del result
    return sum(alive.values())


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_layer_keeps_what_the_paper_counts(tensor: int) -> None:
    """Korthikanti et al. 2022, equations 1 and 2: sbh (10 + 24/t + 5as/(ht)) bytes, but for small buffers."""
    whole = LENGTH * BATCH * HIDDEN
    expected = whole * (10 + 24 / tensor + 5 * HEADS * LENGTH / (HIDDEN * tensor))
    assert _kept(tensor) == pytest.approx(expected, rel=0.02)


#: Korthikanti et al. 2022, figure 1, as calculon computes it (calculon-ai/calculon, `validation/seqsel/fig1`): layers,
#: hidden, heads, micro-batch, stages, chunks of each, and GiB of activations on the first stage without recomputation,
#: by 8 ranks of tensor parallelism.
FIGURE_1 = {
    "22B": (48, 6144, 64, 4, 1, 1, 59.25),
    "175B": (96, 12288, 96, 1, 8, 3, 66.84375),
    "530B": (105, 20480, 128, 1, 35, 3, 114.0234375),
    "1T": (128, 25600, 160, 1, 64, 1, 131.25),
}


@pytest.mark.parametrize("model", FIGURE_1)
def test_first_stages_keep_what_the_paper_shows(model: str) -> None:
    layers, hidden, heads, batch, stages, chunks, published = FIGURE_1[model]
    sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_attention_heads": heads}
    kept = _kept(8, 2048, batch, **sizes)
    schedule = pipeline.INTERLEAVED if chunks > 1 else pipeline.ONE_F_ONE_B
    in_flight = pipeline.in_flight(schedule, stages, 512, chunks, 1)
    assert kept * layers / stages * in_flight / GIB == pytest.approx(published, rel=0.005)


def _allocated(stages: int, micro_batches: int, micro_batch: int = BATCH, **changed: object) -> int:
    asked = {
        "config": CONFIG,
        "seq_len": LENGTH,
        "weights": "fp16",
        "checkpointing": "full",
        "capacity_bytes": GIB,
        "rank": {
            "stage": "first",
            "stages": stages,
            "tensor": 1,
            "replicas": 1,
            "zero": 1,
            "micro_batches": micro_batches,
            **changed,
        },
    }
    allocated: int = megatron_step.answer(asked, (micro_batch,))["replays"][str(micro_batch)]["allocated"]
    return allocated


def test_the_first_stage_holds_as_many_micro_batches_as_there_are_stages() -> None:
    # Inputs of two layers, the stage's result, and of the embedding the norm's input and the dropout's mask.
    kept = LENGTH * 64 * HIDDEN * (2 * 2 + 2 + 2 + 1)
    found = [_allocated(4, micro_batches, 64) for micro_batches in (2, 3, 4, 5, 8)]
    two, three, four, five, eight = found
    assert three - two == four - three == pytest.approx(kept, rel=0.02)
    # From the fifth on, gradients of earlier ones are there when all four are.
    assert five == eight == pytest.approx(four, rel=0.01)


def test_zero_1_shares_the_optimizer_and_its_gradients() -> None:
    """From one replica to two: half of the float32 weights, of Adam's two states, and of a step's gradients go."""
    parameters = sum(
        p.numel() for p in Stage(CONFIG, LENGTH, Place(0, 1, 1), checkpointing=True).parameters()
    )
    saved = _allocated(1, 2) - _allocated(1, 2, replicas=2)
    assert 12 * parameters / 2 <= saved <= 21 * parameters / 2


def test_without_zero_a_replica_updates_all_weights() -> None:
    assert _allocated(1, 2, replicas=2, zero=0) > _allocated(1, 2, replicas=2)


def _row(identifier: str) -> Row:
    return next(row for row in read() if row.id == identifier)


def test_what_is_measured_is_the_first_stage() -> None:
    asked = bigscience.question(_row("BSC010"))
    assert asked.measure == "device"
    assert asked.trace["rank"] == {
        "stage": "first", "stages": 4, "tensor": 1, "replicas": 2, "zero": 1, "micro_batches": 32
    }  # fmt: skip
    assert asked.beside_bytes == (1113 + 2 * 256) * 2**20


def test_what_runs_out_of_memory_is_any_stage() -> None:
    asked = bigscience.question(_row("BSC019"))
    assert (asked.measure, asked.gpu, asked.beside_bytes) == ("oom", "v100-16gb", None)
    assert asked.trace["rank"]["stage"] == "fullest"


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        ("BSC028", "no training: what the context takes"),
        ("BSC082", "the source calls its feed-forward width misconfigured, and does not give it"),
        ("BSC094", "activations checkpointed on the host"),
        ("BSC093", "Megatron's own pipeline and optimizer of 2021"),
        ("BSC110", "a vision-language model with parameters offloaded by ZeRO-3"),
    ],
)
def test_rows_without_a_question_say_why(identifier: str, reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        bigscience.question(_row(identifier))
