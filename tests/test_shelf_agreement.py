"""The calculators of the shelf against each other, and their prose against their defaults."""

from __future__ import annotations

from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit import calculators
from batchfit.calculator import Results
from batchfit.fields import Input
from batchfit.numbers import format_number
from tests.inputs import defaults


def results(slug: str, **inputs: Input) -> Results:
    """What a calculator answers to its defaults with these inputs in their place."""
    calculator = calculators.load(slug)
    return calculator.evaluate({**defaults(calculator), **inputs})


# Against each other


@settings(deadline=None, max_examples=50)
@given(st.integers(10**6, 10**12), st.integers(10**8, 10**14))
def test_compute_is_counted_alike(parameters: int, tokens: int) -> None:
    own = results("chinchilla-tokens", parameters=parameters, tokens=tokens).outputs["training_flops"]
    other = results("training-flops", parameters=parameters, tokens=tokens).outputs["parameter_flops"]
    assert own == pytest.approx(other)
    back = results("compute-optimal-model-size", flops=own, parameters=parameters).outputs["tokens"]
    assert back == pytest.approx(tokens)


FITS = [choice.value for choice in calculators.load("chinchilla-tokens").field("fit").choices]


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("flops", [1e20, 5.76e23, 1e26])
def test_sizes_and_tokens_of_a_fit_undo_each_other(fit: str, flops: float) -> None:
    best = results("compute-optimal-model-size", flops=flops, fit=fit).outputs
    back = results("chinchilla-tokens", parameters=best["optimal_parameters"], fit=fit).outputs
    assert back["optimal_tokens"] == pytest.approx(best["optimal_tokens"], rel=1e-6)


def test_gpu_hours_are_the_same_operations_as_gpu_days() -> None:
    hours = results("compute-optimal-model-size", budget_in="gpu-hours", gpu_hours=24 * 365).outputs["budget"]
    days = results("training-flops", parameters=10**9, tokens=10**12, recomputation="none").outputs
    assert days["gpu_days"] == pytest.approx(365 * days["hardware_flops"] / hours)


def test_a_data_set_has_as_many_steps_as_its_budget() -> None:
    data = results("dataset-tokens", epochs=3.0).outputs
    rate, hours = 8000, data["training_tokens"] / 8000 / 3600
    budget = results(
        "trainable-epochs", gpu_hours=hours, throughput=rate, dataset_tokens=data["dataset_tokens"]
    ).outputs
    assert budget["epochs"] == pytest.approx(3)
    assert budget["optimizer_steps"] == pytest.approx(data["optimizer_steps"], abs=1)
    batch = results("effective-batch-size", sequence_length=4096).outputs
    same = results(
        "dataset-tokens", effective_batch_size=batch["effective_batch_size"], sequence_length=4096
    ).outputs
    assert same["tokens_per_step"] == batch["tokens_per_step"]


@pytest.mark.parametrize("target", [0.6, 0.9, 0.95, 0.99])
def test_the_accumulation_steps_found_give_the_efficiency(target: float) -> None:
    found = results("data-parallel-scaling", target_efficiency=target).outputs["accumulation_steps_needed"]
    assert results("data-parallel-scaling", accumulation_steps=found).outputs["efficiency"] >= target
    assert results("data-parallel-scaling", accumulation_steps=found - 1).outputs["efficiency"] < target


def test_both_measurements_of_the_noise_agree_by_default() -> None:
    by_norms, by_runs = (
        results("gradient-noise-scale", measured_by=way).outputs for way in ("norms", "runs")
    )
    assert by_norms["critical_batch"] == pytest.approx(by_runs["critical_batch"])
    assert by_norms.keys() - by_runs.keys() == {"squared_norm", "variance"}
    assert by_runs.keys() - by_norms.keys() == {"fewest_samples"}


# The prose

PROSE = resources.files("batchfit").joinpath("content", "en")
BILLION, TRILLION = 10**9, 10**12


def shown(value: float, digits: int = 0) -> str:
    return format_number(round(value, digits), max_fraction=digits)


def figures(slug: str) -> dict[str, float]:
    return dict(results(slug).outputs)


def loss_of(parameters: float) -> float:
    return results("compute-optimal-model-size", parameters=parameters).outputs["excess_loss"]


def optimal(fit: str) -> float:
    return results("compute-optimal-model-size", fit=fit).outputs["optimal_parameters"] / BILLION


def compute_optimal(fit: str) -> float:
    return results("chinchilla-tokens", fit=fit).outputs["optimal_tokens"] / BILLION


def data(**inputs: Input) -> dict[str, float]:
    return dict(results("dataset-tokens", **inputs).outputs)


def told() -> list[tuple[str, str]]:
    """What the prose says that its calculator answers, by calculator."""
    exchange, rate = figures("data-parallel-scaling"), figures("learning-rate-warmup")
    noise, epochs = figures("gradient-noise-scale"), figures("trainable-epochs")
    tokens = figures("chinchilla-tokens")
    hours = results("compute-optimal-model-size", budget_in="gpu-hours").outputs
    small = results("trainable-epochs", dataset_tokens=BILLION).outputs
    seventy = results("chinchilla-tokens", parameters=70 * BILLION).outputs["optimal_tokens"]
    return [
        ("data-parallel-scaling", f"{shown(exchange['exchanged_bytes'] / 10**9, 1)} GB"),
        ("data-parallel-scaling", f"{shown(exchange['exchange_seconds'], 4)} − 0.25"),
        ("data-parallel-scaling", f"= {shown(exchange['step_seconds'], 4)} seconds"),
        ("data-parallel-scaling", f"At {exchange['accumulation_steps_needed']} accumulation steps"),
        ("data-parallel-scaling", f"at {shown(100 * exchange['efficiency'])}%"),
        ("data-parallel-scaling", f"≈ {shown(exchange['speed_up'], 2)} GPUs"),
        ("learning-rate-warmup", f"lasts {rate['warmup']} steps"),
        ("learning-rate-warmup", f"= {shown(rate['warmup_tokens'])} tokens"),
        ("learning-rate-warmup", f"cosine reaches {shown(rate['rate'], 7)} at step 5,000"),
        ("gradient-noise-scale", f"= {shown(noise['critical_batch'])} samples"),
        ("gradient-noise-scale", f"≈ {shown(noise['steps_ratio'], 2)} of what"),
        ("gradient-noise-scale", f"{shown(100 * noise['samples_ratio'] - 100)}% more compute"),
        (
            "compute-optimal-model-size",
            f"say {shown(optimal('approach-1'))} billion and {shown(optimal('approach-2'))} billion",
        ),
        ("compute-optimal-model-size", f"the third {shown(optimal('approach-3'))} billion"),
        ("compute-optimal-model-size", f"another answer, {shown(optimal('approach-3-printed'))} billion"),
        (
            "compute-optimal-model-size",
            f"gives {shown(optimal('replication'))} billion parameters and 18 tokens",
        ),
        ("compute-optimal-model-size", f"= {shown(hours['budget'] / TRILLION)} TFLOP"),
        ("compute-optimal-model-size", f"trains {shown(hours['optimal_parameters'] / BILLION, 1)} billion"),
        ("chinchilla-tokens", f"gives {shown(compute_optimal('replication'))} billion for this model"),
        (
            "chinchilla-tokens",
            f"{shown(compute_optimal('approach-1'))} billion and {shown(compute_optimal('approach-2'))} billion, "
            f"its third {shown(compute_optimal('approach-3'))} billion",
        ),
        ("chinchilla-tokens", f"says {shown(seventy / TRILLION, 2)} trillion tokens"),
        ("chinchilla-tokens", f"takes about {shown(tokens['training_flops'] / 10**23, 1)} × 10²³"),
        ("chinchilla-tokens", f"reached with {shown(tokens['least_flops'] / 10**23, 1)} × 10²³"),
        ("chinchilla-tokens", f"It cost {shown(tokens['extra_compute'], 1)} times"),
        ("trainable-epochs", f"= {shown(epochs['training_tokens'])} tokens"),
        ("trainable-epochs", f"= {shown(epochs['epochs'], 2)} times"),
        ("trainable-epochs", f"≈ {shown(epochs['optimizer_steps'])} steps"),
        ("trainable-epochs", f"worth {shown(epochs['worth_tokens'] / BILLION, 1)} billion fresh"),
        ("trainable-epochs", f"worth only {shown(small['worth_tokens'] / BILLION, 1)} billion"),
        ("dataset-tokens", f"The {shown(data()['dataset_tokens'])} tokens of the example"),
        ("dataset-tokens", f"make {shown(data()['optimizer_steps'])} steps"),
        ("dataset-tokens", f"≈ {shown(data()['text_ratio'], 2)} bytes for each"),
        ("dataset-tokens", f"of German {shown(data(language='de')['dataset_tokens'] / BILLION, 1)} billion"),
        ("dataset-tokens", f"we counted {shown(data(language='python')['text_ratio'], 1)}"),
    ]


@pytest.mark.parametrize(("slug", "says"), told())
def test_the_prose_says_what_the_calculator_answers(slug: str, says: str) -> None:
    text = PROSE.joinpath(f"{slug}.md").read_text(encoding="utf-8").replace("\xa0", " ")
    assert says in text


def test_half_the_optimal_size_costs_little_loss() -> None:
    """As the article says of 36 billion parameters instead of 72."""
    assert 0 < loss_of(36e9) < 0.01


def test_the_optimal_model_of_llama_3_8b_s_loss() -> None:
    """As the article says: about 34 billion parameters."""
    least = figures("chinchilla-tokens")["least_flops"]
    assert (
        round(results("compute-optimal-model-size", flops=least).outputs["optimal_parameters"] / BILLION)
        == 34
    )
