"""The calculators of memory, parallelism and compute: known answers, and each against the others and the tracer."""

from __future__ import annotations

from importlib import resources

import pytest

from batchfit import calculators
from batchfit.calculator import Value
from batchfit.calculators.optimizer_memory import OPTIMIZERS
from batchfit.decoder import shape_of
from batchfit.fields import Input
from batchfit.numbers import format_number
from tests.inputs import defaults

GB = 10**9


def answer(slug: str, **inputs: Input) -> dict[str, Value]:
    """What a calculator answers to its defaults with these inputs in their place."""
    calculator = calculators.load(slug)
    return calculator.evaluate({**defaults(calculator), **inputs}).outputs


def test_seven_billion_parameters_take_112_gb_of_states() -> None:
    assert answer("llm-training-memory", parameters=7 * GB)["states_bytes"] == 112 * GB


def test_lora_on_llama_3() -> None:
    assert answer("lora-parameters")["trainable_parameters"] == 13_631_488


def test_eight_stages_and_32_micro_batches() -> None:
    assert round(answer("pipeline-bubble", stages=8, micro_batches=32)["bubble_share"], 4) == 0.1795


@pytest.mark.parametrize("steps", [1, 8, 100])
def test_without_sharing_the_effective_batch_is_that_of_gradient_accumulation(steps: int) -> None:
    alone = {"tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 1}
    own = answer("effective-batch-size", accumulation_steps=steps, gpus=16, **alone)
    other = answer("gradient-accumulation", accumulation_steps=steps, replicas=16)
    assert own["effective_batch_size"] == other["effective_batch_size"]


def test_more_gpus_per_copy_mean_fewer_replicas_and_none_too_few() -> None:
    assert answer("effective-batch-size", gpus=70)["idle_gpus"] == 6
    with pytest.raises(ValueError, match="at least the GPUs of one copy of the model"):
        answer("effective-batch-size", gpus=7)


@pytest.mark.parametrize(
    "optimizer", ["adamw", "adamw-8bit", "adafactor", "lion", "lion-8bit", "momentum", "sgd"]
)
def test_both_calculators_give_an_optimizer_the_same_state(optimizer: str) -> None:
    for precision, updated in (("mixed", "fp32"), ("bf16", "16-bit"), ("fp32", "fp32")):
        own = answer("optimizer-memory", optimizer=optimizer, updated_precision=updated)
        training = answer("llm-training-memory", optimizer=optimizer, precision=precision)
        assert training["optimizer_bytes"] == own["optimizer_bytes"]
        step = training["optimizer_step_bytes"] - training["states_bytes"]
        assert step == own["step_bytes"]


def test_what_attention_keeps_is_part_of_what_training_keeps() -> None:
    """Queries, keys, values and output in 16 bits, as many query heads as key-value heads."""
    flash = answer("attention-memory", key_value_heads=32, sequence_length=4096, micro_batch=2)["flash_bytes"]
    training = answer("llm-training-memory")
    assert 0 < flash < training["activations_bytes"]


def test_flops_that_are_executed_take_the_time_they_take() -> None:
    full = answer("training-flops", recomputation="full")
    none = answer("training-flops", recomputation="none")
    assert full["gpu_days"] == pytest.approx(none["gpu_days"] * 4 / 3)
    assert full["model_utilisation"] == pytest.approx(0.3)


def test_presets_have_the_true_shapes_of_their_models() -> None:
    from batchfit.models import find_model

    entry = find_model("phi-4")
    assert entry is not None
    shape = shape_of(entry)
    assert shape is not None
    assert (shape.key_value_dim, shape.gated, shape.separate) == (1280, True, False)


# The prose

PROSE = resources.files("batchfit").joinpath("content", "en")


def shown(value: Value, digits: int = 0) -> str:
    return format_number(round(value, digits), max_fraction=digits)


def told() -> list[tuple[str, str]]:
    """What the prose says that its calculator answers to the defaults, by calculator."""
    pipeline, memory, lora = map(answer, ("pipeline-bubble", "llm-training-memory", "lora-parameters"))
    optimizer, attention = map(answer, ("optimizer-memory", "attention-memory"))
    compute, batch = map(answer, ("training-flops", "effective-batch-size"))
    interleaved = answer("pipeline-bubble", schedule="interleaved")
    zb_h2 = answer("pipeline-bubble", schedule="zb-h2")
    every = answer("lora-parameters", modules=("q", "k", "v", "o", "gate", "up", "down"))
    return [
        ("pipeline-bubble", f"≈ {shown(pipeline['bubble_share'], 4)} of it"),
        ("pipeline-bubble", f"= {pipeline['micro_batches_needed']} micro-batches"),
        ("pipeline-bubble", f"= {shown(interleaved['micro_batches_in_flight'], 1)} micro-batches"),
        ("pipeline-bubble", f"multiple of 8 is {interleaved['micro_batches_needed']}"),
        ("pipeline-bubble", f"= {zb_h2['micro_batches_in_flight']} micro-batches"),
        ("llm-training-memory", f"= {shown(memory['states_bytes'] / GB)} GB before the first sample"),
        ("llm-training-memory", f"= {shown(memory['layer_activation'])} bytes"),
        ("llm-training-memory", f"= {shown(memory['output_activation'])} bytes"),
        ("llm-training-memory", f"≈ {shown(memory['activations_bytes'] / GB, 2)} GB"),
        ("lora-parameters", f"= {shown(lora['attention_adapters'])}, and"),
        ("lora-parameters", f"= {shown(lora['trainable_parameters'])}."),
        ("lora-parameters", f"≈ {shown(lora['trained_share'], 4)} of all"),
        ("lora-parameters", f"≈ {shown(lora['training_bytes'] / 10**6)} MB"),
        ("lora-parameters", f"≈ {shown(lora['full_training_bytes'] / GB)} GB"),
        ("lora-parameters", f"≈ {shown(lora['adapter_bytes'] / 10**6)} MB"),
        ("lora-parameters", f"= {shown(every['trainable_parameters'])} parameters"),
        ("optimizer-memory", f"= {shown(optimizer['optimizer_bytes'] / GB)} GB, four times"),
        ("optimizer-memory", f"= {shown(optimizer['embedding_parameters'])} parameters"),
        ("optimizer-memory", f"= {shown(optimizer['step_bytes'] / GB)} GB. Activations"),
        ("attention-memory", f"≈ {shown(attention['scores_bytes'] / GB, 1)} GB of scores"),
        ("attention-memory", f"≈ {shown(attention['flash_layer_bytes'] / 10**6)} MB in a layer"),
        ("attention-memory", f"≈ {shown(attention['even_length'])} tokens on"),
        ("training-flops", f"{shown(compute['model_flops'] / 1e22, 2)} × 10²² operations"),
        ("training-flops", f"take {shown(compute['gpu_days'])} GPU-days"),
        ("training-flops", f"≈ {shown(compute['training_seconds'] / 86400, 1)} days"),
        ("training-flops", f"≈ {shown(compute['attention_share'], 2)} of the total"),
        ("effective-batch-size", f"= {batch['effective_batch_size']} samples, not"),
        ("effective-batch-size", f"= {shown(batch['tokens_per_step'])} tokens. If"),
        ("effective-batch-size", f"so {batch['steps_per_epoch']} steps"),
        ("effective-batch-size", f"= {batch['last_step_samples']} samples. Some"),
    ]


@pytest.mark.parametrize(("slug", "phrase"), told(), ids=str)
def test_the_prose_says_what_the_calculator_answers(slug: str, phrase: str) -> None:
    prose = PROSE.joinpath(f"{slug}.md").read_text(encoding="utf-8").replace("\xa0", " ")
    assert phrase in prose


# Against the tracer

#: Width and number of square matrices, and rows of the embedding and of the output layer, which are square too.
#: So large that even a paged optimizer leaves none on the GPU.
WIDTH, MATRICES, VOCABULARY = 512, 16, 512
NAMES = [choice.value for choice in OPTIMIZERS]


@pytest.mark.torch
def test_every_optimizer_of_the_tracer_is_compared() -> None:
    from batchfit.trace.optimizers import OPTIMIZERS as TRACED

    assert set(NAMES) == set(TRACED)


@pytest.mark.torch
@pytest.mark.parametrize(("precision", "updated"), [("float32", "fp32"), ("bfloat16", "16-bit")])
@pytest.mark.parametrize("optimizer", NAMES)
def test_an_optimizer_keeps_and_takes_what_a_trace_says(optimizer: str, precision: str, updated: str) -> None:
    parameters, largest, state, step = traced(optimizer, precision)
    own = answer(
        "optimizer-memory",
        optimizer=optimizer,
        updated_precision=updated,
        parameters=parameters,
        hidden_size=WIDTH,
        vocabulary=VOCABULARY,
    )
    if optimizer == "adafactor-torch" and precision == "bfloat16":
        assert state == own["optimizer_bytes"] / 2, "it keeps the parameters' precision"
    else:
        assert state == pytest.approx(own["optimizer_bytes"], rel=1e-3)
    # Beside what is counted, temporaries of one tensor while it is updated.
    assert own["step_bytes"] <= step <= own["step_bytes"] + 6 * largest


def traced(optimizer: str, precision: str) -> tuple[int, int, int, int]:
    """Parameters of a model of many equal matrices, bytes of one of them in fp32, bytes of optimizer state after two
    steps, and the most that the second step takes beside what is there."""
    import torch
    from torch import nn

    from batchfit.trace.gpu import Gpu
    from batchfit.trace.optimizers import create_optimizer, documented_state_bytes
    from batchfit.trace.timeline import MARK

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.hidden = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(MATRICES)])
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def get_output_embeddings(self) -> nn.Module:
            return self.head

    with torch.device("meta"):
        model = Model().to(getattr(torch, precision))
    with Gpu().watched() as tracker:
        for parameter in model.parameters():
            tracker.adopt(parameter, "weights")
        made = create_optimizer(optimizer, model)
        for step in range(2):
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            tracker.mark("optimizer", step)
            made.step()
        state = documented_state_bytes(optimizer, made)
        tracker.close()
    live = list(tracker.timeline.live())
    begun = max(i for i, (event, _) in enumerate(live) if event.kind == MARK)
    step_bytes = max(alive for _, alive in live[begun:]) - live[begun][1]
    return sum(p.numel() for p in model.parameters()), 4 * WIDTH * WIDTH, state, step_bytes
