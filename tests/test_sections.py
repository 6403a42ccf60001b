"""Tables, curves and cards, as values."""

from dataclasses import replace

from batchfit.calculator import Cards, Curve, Table
from batchfit.pictures.curve import SAMPLES
from batchfit.sections import as_json, fitting, rows, samples
from tests.everything import CALCULATOR
from tests.inputs import defaults

INPUTS = defaults(CALCULATOR)
RESULTS = CALCULATOR.evaluate(INPUTS)
TABLES = [section for section in CALCULATOR.sections if isinstance(section, Table)]
CURVES = [section for section in CALCULATOR.sections if isinstance(section, Curve)]


def test_a_table_over_a_choice_has_a_row_for_each_and_marks_the_one_given() -> None:
    found = rows(CALCULATOR, TABLES[0], INPUTS)
    assert [(row.value, row.here) for row in found] == [("bf16", True), ("fp32", False)]
    assert [row.cell("total_bytes") for row in found] == [7_000_096_000, 14_000_096_000]


def test_a_table_over_a_number_has_a_row_for_the_one_given_too() -> None:
    found = rows(CALCULATOR, TABLES[1], INPUTS)
    assert [(row.value, row.here) for row in found] == [
        (0, False),
        (100, True),
        (500, False),
        (1000, False),
        (2000, False),
    ]
    assert found[0].cell("busy_share") == 0.5
    assert found[-1].results is None, "a warm-up longer than the training does not go together with it"
    assert found[0].cell("steps_left") is None, "there is no budget"


def test_a_curve_goes_from_end_to_end_by_equal_factors_or_steps() -> None:
    logarithmic = samples(CALCULATOR, CURVES[0], RESULTS)
    assert len(logarithmic) == SAMPLES + 1
    assert [at for at, _ in logarithmic][:: SAMPLES // 2] == [10**6, 10**9, 10**12]
    even = samples(CALCULATOR, replace(CURVES[1], corners=()), RESULTS)
    assert [at for at, _ in even][:: SAMPLES // 2] == [0, 500, 1000]
    assert even[0][1] == (0.5,)


def test_a_curve_is_drawn_through_its_corners() -> None:
    places = [at for at, _ in samples(CALCULATOR, CURVES[1], RESULTS)]
    assert len(places) == SAMPLES + 2
    assert 100 in places
    assert places == sorted(places)


def test_a_card_holds_what_is_no_larger_than_its_memory() -> None:
    (section,) = (section for section in CALCULATOR.sections if isinstance(section, Cards))
    found = fitting(section, RESULTS)
    assert {fits for _, fits in found} == {True, False}
    for gpu, fits in found:
        assert fits == (gpu.memory_bytes >= 7_000_096_000)
    sizes = [gpu.memory_bytes for gpu, _ in found]
    assert sizes == sorted(sizes)


def test_tables_and_cards_are_data_too() -> None:
    data = as_json(CALCULATOR, RESULTS)
    assert data["tables"][0] == {  # type: ignore[index]
        "over": "precision",
        "rows": [
            {"precision": "bf16", "total_bytes": 7_000_096_000, "training_seconds": 3000.0},
            {"precision": "fp32", "total_bytes": 14_000_096_000, "training_seconds": 3000.0},
        ],
    }
    assert {"gpu", "memory_bytes", "fits"} == set(data["cards"][0])  # type: ignore[index]
