"""Training memory against the ZeRO paper's figures, and against the profiles that traces of real models gave."""

from __future__ import annotations

import json

import pytest

from batchfit.formulas import training_memory as memory
from batchfit.models import find_model, load_profiles
from batchfit.profile import MemoryProfile
from tests.formulas.both import both

GB = 10**9

#: Bytes of a weight, of its master copy, of an activation.
MIXED, AUTOCAST, BF16, FP32 = (2, 4, 2), (4, 0, 2), (2, 0, 2), (4, 0, 4)
#: Values in full and in 8 bits for each parameter, scales for each block, and factored values.
ADAMW, ADAMW_8BIT, MOMENTUM = (2, 0, 0, 0), (0, 2, 2, 0), (1, 0, 0, 0)
SGD, ADAFACTOR = (0, 0, 0, 0), (0, 0, 0, 2)

Precision = tuple[int, int, int]


def states(
    parameters: int,
    precision: Precision = MIXED,
    optimizer: tuple[int, int, int, int] = ADAMW,
    replicas: int = 1,
    stage: int = 0,
) -> tuple[int, int, int, int]:
    """Weights, gradients, optimizer state and master copy."""
    weight, master, _ = precision
    return (
        both(memory.weights_bytes, parameters, weight, replicas, stage),
        both(memory.gradients_bytes, parameters, weight, replicas, stage),
        both(memory.optimizer_bytes, parameters, 4096, *optimizer, weight, master, replicas, stage),
        both(memory.master_copy_bytes, parameters, master, replicas, stage),
    )


def test_mixed_precision_adam_takes_16_bytes_a_parameter() -> None:
    """Rajbhandari et al. 2020, section 3.1."""
    assert states(7 * GB) == (14 * GB, 14 * GB, 56 * GB, 28 * GB)
    assert both(memory.states_bytes, *states(7 * GB)) == 112 * GB
    assert both(memory.states_per_parameter, 7 * GB, 112 * GB) == 16


@pytest.mark.parametrize(("stage", "published"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_shards_as_published(stage: int, published: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters on 64 GPUs."""
    parts = states(7_500_000_000, replicas=64, stage=stage)
    assert round(memory.states_bytes(*parts) / GB, 1) == published


@pytest.mark.parametrize(
    ("stage", "parameters", "published"),
    [(1, 7.5, 52.5), (2, 7.5, 41.3), (3, 7.5, 30.0), (1, 128, 896), (2, 128, 704), (3, 128, 512)],
)
def test_zero_on_four_gpus_as_published(stage: int, parameters: float, published: float) -> None:
    """The same, table 1, first row: GB on each of 4 GPUs."""
    parts = states(int(parameters * GB), replicas=4, stage=stage)
    assert memory.states_bytes(*parts) / GB == pytest.approx(published, abs=0.06)


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected"),
    [
        (FP32, ADAMW, 16),
        (AUTOCAST, ADAMW, 16),
        (BF16, ADAMW, 8),
        (MIXED, ADAMW_8BIT, 8 + 2 + 2 / 64),
        (BF16, ADAMW_8BIT, 4 + 2 + 2 / 64),
        (MIXED, MOMENTUM, 12),
        (MIXED, SGD, 8),
        (BF16, ADAFACTOR, 4 + 8 / 4096),
    ],
)
def test_bytes_a_parameter(
    precision: Precision, optimizer: tuple[int, int, int, int], expected: float
) -> None:
    parts = states(4096 * 1000, precision, optimizer)
    assert memory.states_per_parameter(4096 * 1000, memory.states_bytes(*parts)) == expected


def test_a_part_of_a_byte_is_a_byte() -> None:
    assert both(memory.per_replica, 10, 3, 1, 1) == 4
    assert both(memory.per_replica, 10, 3, 1, 2) == 10


def test_a_layer_with_layernorm_keeps_what_korthikanti_counts_but_for_dropout() -> None:
    """34 bytes a token and value of the hidden size, two of which are the masks of two dropouts."""
    assert both(memory.layer_activation, 12288, 12288, 4 * 12288, 0, 2, 2) == (34 - 2) * 12288


class Shape:
    """The figures of a model of the catalogue."""

    def __init__(self, name: str, gated: int) -> None:
        entry = find_model(name)
        assert entry is not None
        config = json.loads(entry.config.read_text(encoding="utf-8"))
        self.parameters = entry.parameters
        self.layers = config["num_hidden_layers"]
        self.hidden_size = config["hidden_size"]
        self.vocabulary = config["vocab_size"]
        self.intermediate_size = config["intermediate_size"]
        self.gated = gated
        heads = config["num_attention_heads"]
        head_size = config.get("head_dim") or self.hidden_size // heads
        self.key_value_dim = config.get("num_key_value_heads", heads) * head_size


def total(shape: Shape, precision: Precision, recomputes: int, micro_batch: int, length: int) -> int:
    """Bytes on one GPU with AdamW."""
    weight, master, activation = precision
    parts = both(memory.states_bytes, *states(shape.parameters, precision))
    layer = memory.layer_activation(
        shape.hidden_size,
        shape.key_value_dim,
        shape.intermediate_size,
        shape.gated,
        weight,
        activation,
    )
    output = memory.output_activation(shape.vocabulary, activation)
    token = memory.token_activation(shape.layers, shape.hidden_size, weight, recomputes, layer, output)
    activations = memory.activations_bytes(micro_batch, length, token)
    copies = both(memory.copies_bytes, shape.parameters, weight, activation, 1, 0)
    passes = both(memory.micro_batch_bytes, parts, copies, activations)
    step = both(memory.optimizer_step_bytes, shape.parameters, 1, weight, master, 1, 0, parts)
    result: int = both(memory.total_bytes, passes, step)
    return result


def traced(profile: MemoryProfile, micro_batch: int, length: int) -> int:
    """Bytes at the peak of all phases, with accumulated gradients."""
    return max(line.at(micro_batch, length) for lines in profile.phases.values() for line in lines)


SIX = ("llama-3.1-8b", "llama-2-7b", "llama-3.2-3b", "mistral-7b", "qwen2.5-7b", "smollm2-1.7b")


@pytest.mark.parametrize("name", SIX)
def test_states_are_those_of_a_trace(name: str) -> None:
    parameters = Shape(name, gated=1).parameters
    for precision, called in ((BF16, "bf16"), (AUTOCAST, "bf16-mixed")):
        for profile in load_profiles(name, precision=called, trained="full"):
            weights, gradients, optimizer, _ = states(parameters, precision)
            assert weights == pytest.approx(profile.states.weights_bytes, rel=1e-4)
            assert gradients == pytest.approx(profile.states.gradients_bytes, rel=1e-4)
            assert optimizer == pytest.approx(profile.states.optimizer_bytes, rel=1e-4)


#: What the page says of how near the sum is to a trace.
TOLERANCE = {"bf16": 0.02, "bf16-mixed": 0.07}


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", SIX)
def test_the_total_is_that_of_a_trace(name: str, precision: str, checkpointing: str) -> None:
    shape = Shape(name, gated=1)
    widths = BF16 if precision == "bf16" else AUTOCAST
    profiles = load_profiles(name, precision=precision, trained="full", checkpointing=checkpointing)
    for micro_batch, length in ((1, 512), (4, 1024), (1, 2048), (8, 2048)):
        for profile in profiles:
            assert profile.seq_len is not None
            if profile.seq_len.minimum <= length <= profile.seq_len.maximum:
                expected = traced(profile, micro_batch, length)
                ours = total(shape, widths, int(checkpointing == "full"), micro_batch, length)
                assert ours == pytest.approx(expected, rel=TOLERANCE[precision])


def test_a_gpt_neox_without_dropout_keeps_what_a_trace_says() -> None:
    shape = Shape("pythia-1.4b", gated=0)
    (profile,) = load_profiles("pythia-1.4b", precision="bf16", trained="full", checkpointing="none")
    assert total(shape, BF16, 0, 4, 1024) == pytest.approx(traced(profile, 4, 1024), rel=0.01)


def test_norms_of_queries_and_keys_are_not_counted() -> None:
    """OLMo 2 has them, and norms after a block: the page names it as one that keeps more."""
    shape = Shape("olmo-2-7b", gated=1)
    (profile,) = load_profiles("olmo-2-7b", precision="bf16", trained="full", checkpointing="none")
    assert 0.75 < total(shape, BF16, 0, 8, 2048) / traced(profile, 8, 2048) < 0.85
