"""The shelf: every calculator on it holds together, and gradient accumulation gives the known figures."""

from math import isfinite

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from batchfit import Batch, calculators
from batchfit.batch import solve_steps
from batchfit.calculator import Calculator, Cards, Curve, Output, Stack, Table, parameters
from batchfit.errors import BadInput
from batchfit.fields import Field, Input
from batchfit.palette import PARTS
from batchfit.sections import ends
from batchfit.wording import all_in_words
from tests.everything import CALCULATOR as EVERYTHING
from tests.inputs import allowed_inputs, defaults

GRADIENT_ACCUMULATION = calculators.load("gradient-accumulation")
GB = 10**9


def evaluate(**inputs: int) -> dict[str, object]:
    answer = GRADIENT_ACCUMULATION.evaluate(inputs).as_json(GRADIENT_ACCUMULATION)
    outputs = answer["outputs"]
    assert isinstance(outputs, dict)
    return outputs


def test_the_defaults_give_32_samples_and_2_gb() -> None:
    assert GRADIENT_ACCUMULATION.evaluate(defaults(GRADIENT_ACCUMULATION)).outputs == {
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


EVERY = [*map(calculators.load, calculators.slugs()), EVERYTHING]


@pytest.mark.parametrize("calculator", EVERY, ids=lambda each: each.slug)
def test_every_calculator_holds_together(calculator: Calculator) -> None:
    of: list[Field | Output] = [*calculator.all_fields, *calculator.outputs]
    names = [each.name for each in of]
    assert len(set(names)) == len(names)
    known = set(calculator.numbers(defaults(calculator)))
    for output in calculator.outputs:
        assert set(output.parameters) <= known, f"{output.name} needs what is not there yet"
        assert output.when is None or set(parameters(output.when)) <= known
        known.add(output.name)
        for kind in ("bytes", "seconds"):
            assert (output.kind == kind) == output.name.endswith(f"_{kind}"), output.name
    results = calculator.evaluate(defaults(calculator))
    always = {output.name for output in calculator.outputs if output.when is None}
    assert always <= results.outputs.keys() <= {output.name for output in calculator.outputs}


@pytest.mark.parametrize("calculator", EVERY, ids=lambda each: each.slug)
def test_every_field_can_be_left_as_it_is_and_every_choice_binds_alike(calculator: Calculator) -> None:
    for field in calculator.fields:
        assert field.default is not None or field.empty is not None, field.name
        bound = {each.name for each in field.binds}
        for choice in field.choices:
            if field.kind == "choice":
                assert set(choice.numbers) == bound, (field.name, choice.value)
        assert {name for choice in field.choices for name in choice.numbers} == bound
        if not field.is_choice:
            assert field.minimum < field.maximum, field.name
    symbols = [each.symbol for each in calculator.bounds] + [each.symbol for each in calculator.outputs]
    symbols += [field.symbol for field in calculator.fields if not field.is_choice]
    assert len(set(symbols)) == len(symbols), sorted(symbols)
    assert all(symbols)


@pytest.mark.parametrize("calculator", EVERY, ids=lambda each: each.slug)
def test_what_a_calculator_names_is_there(calculator: Calculator) -> None:
    fields = {field.name: field for field in calculator.fields}
    for preset in calculator.presets:
        assert preset.fills.keys() <= fields.keys()
        assert preset.usable(), f"{preset.name} has nothing to offer"
        for entry in preset.usable():
            for name, text in preset.texts(entry).items():
                fields[name].read(text)  # raises where a figure is not allowed
    for section in calculator.sections:
        match section:
            case Table(over=over, columns=columns, values=values):
                assert fields[over].is_choice != bool(values)
                assert [calculator.output(name) for name in columns]
                assert [fields[over].read(text) for text in values] or not values
            case Curve(over=over, outputs=outputs, corners=corners):
                assert set(corners) <= calculator.evaluate(defaults(calculator)).values.keys()
                assert not fields[over].is_choice
                assert len({calculator.output(name).kind for name in outputs}) == 1
                low, high = ends(calculator, section, calculator.evaluate(defaults(calculator)))
                assert low < high
                assert not section.log_x or low > 0
            case Stack(parts=parts):
                assert parts.keys() <= set(PARTS)
                assert {calculator.output(name).kind for name in parts.values()} == {"bytes"}
            case Cards(output=output):
                assert calculator.output(output).kind == "bytes"
    for check in calculator.checks:
        assert check.field in fields


@pytest.mark.parametrize("calculator", EVERY, ids=lambda each: each.slug)
def test_every_sentence_can_be_filled(calculator: Calculator) -> None:
    results = calculator.evaluate(defaults(calculator))
    words = all_in_words(calculator, results.values, "en", inputs=results.inputs)
    calculator.answer.format(**words)
    for output in calculator.outputs:
        if output.name in results.outputs:
            output.reading.format(**words)
    for check in calculator.checks:
        check.message.format(**results.numbers)


@pytest.mark.parametrize("calculator", EVERY, ids=lambda each: each.slug)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_allowed_input_has_an_answer_or_a_reason(calculator: Calculator, data: st.DataObject) -> None:
    inputs = data.draw(allowed_inputs(calculator))
    try:
        results = calculator.evaluate(inputs)
    except BadInput as refused:
        messages = [refused.template]
        outputs: list[float] = []
    else:
        messages = []
        outputs = list(results.outputs.values())
    assert set(messages) <= {check.message for check in calculator.checks}
    assert all(map(isfinite, outputs))


def counts_for_nothing(
    field: Field, calculator: Calculator, first: dict[str, Input], data: st.DataObject
) -> None:
    """Whatever else a field holds beside these inputs, the results are the same."""
    second = first | {field.name: data.draw(allowed_inputs(calculator))[field.name]}
    try:
        assert calculator.evaluate(first).outputs == calculator.evaluate(second).outputs
    except BadInput:
        assume(False)


SOMETIMES = [
    (calculator, field) for calculator in EVERY for field in calculator.fields if field.only_when is not None
]


@pytest.mark.parametrize(
    ("calculator", "field"), SOMETIMES, ids=lambda each: getattr(each, "slug", None) or each.name
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_no_result_depends_on_a_field_that_does_not_apply(
    calculator: Calculator, field: Field, data: st.DataObject
) -> None:
    when = field.only_when
    assert when
    choice = calculator.field(when.field)
    others = [each.value for each in choice.choices if each.value not in when.values]
    assert choice.kind == "choice"
    assert 0 < len(others) < len(choice.choices)
    first = data.draw(allowed_inputs(calculator)) | {choice.name: data.draw(st.sampled_from(others))}
    counts_for_nothing(field, calculator, first, data)


REPLACED = [(calculator, field) for calculator in EVERY for field in calculator.fields if field.replaced_by]


@pytest.mark.parametrize(
    ("calculator", "field"), REPLACED, ids=lambda each: getattr(each, "slug", None) or each.name
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_no_result_depends_on_a_field_whose_place_is_taken(
    calculator: Calculator, field: Field, data: st.DataObject
) -> None:
    other = calculator.field(field.replaced_by or "")
    assert other.empty is not None
    first = data.draw(allowed_inputs(calculator))
    assume(first[other.name] is not None)
    counts_for_nothing(field, calculator, first, data)


def test_inputs_that_do_not_go_together_are_told_to_the_field() -> None:
    with pytest.raises(BadInput, match="warmup: must be at most 1,000"):
        EVERYTHING.evaluate(defaults(EVERYTHING) | {"warmup": 1001})


def test_an_optional_output_is_there_only_when_asked_for() -> None:
    assert "steps_left" not in EVERYTHING.evaluate(defaults(EVERYTHING)).outputs
    assert EVERYTHING.evaluate(defaults(EVERYTHING) | {"budget": 1200}).outputs["steps_left"] == 200


@given(st.integers(1, 2**20), st.integers(1, 2**20), st.integers(1, 2**20))
def test_the_calculator_and_the_library_multiply_alike(b: int, a: int, g: int) -> None:
    outputs = evaluate(micro_batch=b, accumulation_steps=a, replicas=g, activation_per_sample=0)
    assert outputs["effective_batch_size"] == Batch(b, a, g).effective_batch
