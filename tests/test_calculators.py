"""The shelf: every calculator on it holds together, and gradient accumulation gives the known figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit import Batch, calculators
from batchfit.batch import solve_steps

GRADIENT_ACCUMULATION = calculators.load("gradient-accumulation")
GB = 10**9


def evaluate(**inputs: int) -> dict[str, object]:
    answer = GRADIENT_ACCUMULATION.evaluate(inputs).as_json(GRADIENT_ACCUMULATION)
    outputs = answer["outputs"]
    assert isinstance(outputs, dict)
    return outputs


def test_the_defaults_give_32_samples_and_2_gb() -> None:
    defaults = {field.name: field.default_value() for field in GRADIENT_ACCUMULATION.fields}
    assert GRADIENT_ACCUMULATION.evaluate(defaults).outputs == {
        "effective_batch_size": 32,
        "activation_memory_bytes": 2 * GB,
    }


def test_four_replicas_and_half_a_gib() -> None:
    assert evaluate(micro_batch=4, accumulation_steps=8, replicas=4, activation_per_sample=2**29) == {
        "effective_batch_size": 128,
        "activation_memory_bytes": 2**31,
    }


def test_a_target_is_solved_for_the_steps_with_the_choices_around_it() -> None:
    assert evaluate(target_batch=250, micro_batch=4, replicas=8, activation_per_sample=GB // 2) == {
        "accumulation_steps": 8,
        "effective_batch_size": 256,
        "activation_memory_bytes": 2 * GB,
        "drift": 6,
        "choices": [
            {"accumulation_steps": 7, "effective_batch_size": 224, "drift": -26},
            {"accumulation_steps": 8, "effective_batch_size": 256, "drift": 6},
        ],
    }


@given(st.integers(1, 10**6), st.integers(1, 500), st.integers(1, 500))
def test_the_calculator_and_the_library_solve_alike(target: int, b: int, g: int) -> None:
    outputs = evaluate(target_batch=target, micro_batch=b, replicas=g, activation_per_sample=0)
    library = solve_steps(target, micro_batch=b, replicas=g)
    assert outputs["accumulation_steps"] == library.nearest.batch.accumulation_steps
    assert outputs["drift"] == library.nearest.drift
    choices = outputs["choices"]
    assert isinstance(choices, list)
    assert [(c["accumulation_steps"], c["drift"]) for c in choices] == [
        (choice.batch.accumulation_steps, choice.drift) for choice in library
    ]


def test_json_inputs_say_that_sizes_are_bytes() -> None:
    inputs = {"micro_batch": 4, "accumulation_steps": 8, "replicas": 1, "activation_per_sample": GB // 2}
    answer = GRADIENT_ACCUMULATION.evaluate(inputs).as_json(GRADIENT_ACCUMULATION)
    assert answer["calculator"] == "gradient-accumulation"
    assert answer["inputs"] == {
        "micro_batch": 4,
        "accumulation_steps": 8,
        "replicas": 1,
        "activation_per_sample_bytes": GB // 2,
    }


@pytest.mark.parametrize("slug", calculators.slugs())
def test_every_calculator_holds_together(slug: str) -> None:
    calculator = calculators.load(slug)
    names = [field.name for field in calculator.all_fields] + [output.name for output in calculator.outputs]
    assert len(set(names)) == len(names)
    known = {field.name for field in calculator.fields}
    for output in calculator.outputs:
        assert set(output.parameters) <= known, f"{output.name} needs what is not there yet"
        known.add(output.name)
        assert (output.kind == "bytes") == output.name.endswith("_bytes")
    inputs = {field.name: field.default_value() for field in calculator.fields}
    assert calculator.evaluate(inputs).outputs.keys() == {output.name for output in calculator.outputs}


@given(st.integers(1, 2**20), st.integers(1, 2**20), st.integers(1, 2**20))
def test_the_calculator_and_the_library_multiply_alike(b: int, a: int, g: int) -> None:
    outputs = evaluate(micro_batch=b, accumulation_steps=a, replicas=g, activation_per_sample=0)
    assert outputs["effective_batch_size"] == Batch(b, a, g).effective_batch
