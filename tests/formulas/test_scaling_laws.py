"""Compute-optimal sizes against the tables and figures of the papers that the laws come from."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfit.formulas import scaling_laws as laws
from batchfit.formulas import training_flops
from batchfit.formulas.scaling_laws import Law

GOPHER = 5.76e23

#: Hoffmann et al. 2022, table 3 and table A3 (Approach 3's 175 billion is printed as 1.26e24 FLOPs, a slip of the
#: exponent beside its 12.0 trillion tokens): parameters, then FLOPs and tokens of each approach.
TABLE_1 = [
    (400e6, 1.92e19, 8.0e9),
    (1e9, 1.21e20, 20.2e9),
    (10e9, 1.23e22, 205.1e9),
    (67e9, 5.76e23, 1.5e12),
    (175e9, 3.85e24, 3.7e12),
    (280e9, 9.90e24, 5.9e12),
    (520e9, 3.43e25, 11.0e12),
    (1e12, 1.27e26, 21.2e12),
    (10e12, 1.30e28, 216.2e12),
]
TABLE_2 = [
    (400e6, 1.84e19, 7.7e9),
    (1e9, 1.20e20, 20.0e9),
    (10e9, 1.32e22, 219.5e9),
    (67e9, 6.88e23, 1.7e12),
    (175e9, 4.54e24, 4.3e12),
    (280e9, 1.18e25, 7.1e12),
    (520e9, 4.19e25, 13.4e12),
    (1e12, 1.59e26, 26.5e12),
    (10e12, 1.75e28, 292.0e12),
]
TABLE_3 = [
    (400e6, 2.21e19, 9.2e9),
    (1e9, 1.62e20, 27.1e9),
    (10e9, 2.46e22, 410.1e9),
    (67e9, 1.71e24, 4.1e12),
    (175e9, 1.26e25, 12.0e12),
    (280e9, 3.52e25, 20.1e12),
    (520e9, 1.36e26, 43.5e12),
    (1e12, 5.65e26, 94.1e12),
    (10e12, 8.55e28, 1425.5e12),
]


def size(law: Law, flops: float) -> int:
    return laws.optimal_parameters(flops, law.coefficient, law.exponent)


def tokens(law: Law, parameters: float) -> int:
    return laws.tokens_for_parameters(parameters, law.coefficient, law.exponent)


@pytest.mark.parametrize(("law", "table"), [(laws.APPROACH_1, TABLE_1), (laws.APPROACH_2, TABLE_2)])
def test_the_papers_tables(law: Law, table: list[tuple[float, float, float]]) -> None:
    """The laws run through the tables' ends, and so through the lines between. Only the line of 67 billion is off by a
    size of 70 billion in approach 2: the tables print one size for what each approach made of it."""
    for parameters, flops, trained in table:
        tolerance = 0.08 if parameters == 67e9 else 0.015
        budget = laws.budget_that_favours(parameters, law.coefficient, law.exponent)
        assert budget == pytest.approx(flops, rel=tolerance)
        assert tokens(law, parameters) == pytest.approx(trained, rel=tolerance)


def test_the_third_approachs_table_needs_more_digits_than_the_paper_prints() -> None:
    """Its constants are rounded: as printed they miss the paper's own table by a factor of up to 2.3, as in its TeX
    source by up to a fifth."""

    def misses(law: Law) -> list[float]:
        return [tokens(law, parameters) / trained for parameters, _, trained in TABLE_3]

    assert all(1 < miss < 1.2 for miss in misses(laws.APPROACH_3.law()))
    assert all(1.5 < miss < 2.3 for miss in misses(laws.APPROACH_3_PRINTED.law()))


@pytest.mark.parametrize(
    ("law", "exponent"),
    [
        (laws.APPROACH_1, 0.50),
        (laws.APPROACH_2, 0.49),
        (laws.APPROACH_3.law(), 0.46),
        (laws.REPLICATION.law(), 0.51),
    ],
)
def test_the_exponents_are_those_the_papers_state(law: Law, exponent: float) -> None:
    """Hoffmann et al. 2022, table 2; Besiroglu et al. 2024 give 0.5126."""
    assert round(law.exponent, 2) == exponent


def test_what_gophers_budget_should_have_trained() -> None:
    """67 billion by approach 1 on 1.5 trillion tokens; 40 billion by approach 3 (figure 4); about 20 tokens a
    parameter by the replication; 70 billion and 1.4 trillion were trained."""
    first = size(laws.APPROACH_1, GOPHER)
    assert first == pytest.approx(67e9, rel=0.02)
    assert laws.optimal_tokens(GOPHER, first) == pytest.approx(1.5e12, rel=0.07)
    assert size(laws.APPROACH_3.law(), GOPHER) == pytest.approx(40e9, rel=0.04)
    refitted = size(laws.REPLICATION.law(), GOPHER)
    assert refitted == pytest.approx(70e9, rel=0.05)
    assert laws.tokens_per_parameter(laws.optimal_tokens(GOPHER, refitted), refitted) == pytest.approx(
        20, rel=0.1
    )
    assert size(laws.RULE_OF_THUMB, 6 * 70e9 * 1.4e12) == pytest.approx(70e9)


def test_rounding_the_printed_constants_moves_the_optimum() -> None:
    """The replication's finding: the two digits in the paper are too few."""
    printed = size(laws.APPROACH_3_PRINTED.law(), GOPHER)
    assert printed / size(laws.APPROACH_3.law(), GOPHER) == pytest.approx(0.80, abs=0.01)


@pytest.mark.parametrize(
    "fit", [laws.APPROACH_3_PRINTED, laws.APPROACH_3, laws.REPLICATION], ids=["printed", "unrounded", "again"]
)
@pytest.mark.parametrize("flops", [1e19, GOPHER, 1e26])
def test_no_other_size_has_a_lower_loss_at_the_same_budget(fit: laws.LossFit, flops: float) -> None:
    def loss(parameters: float) -> float:
        trained = laws.tokens_within(flops, parameters)
        return float(fit.constant + fit.a / parameters**fit.alpha + fit.b / trained**fit.beta)

    best = size(fit.law(), flops)
    assert loss(best) < loss(best * 1.02)
    assert loss(best) < loss(best / 1.02)


@given(st.floats(1e8, 1e13))
def test_parameters_and_budgets_undo_each_other(parameters: float) -> None:
    for law in (laws.APPROACH_1, laws.APPROACH_2, laws.REPLICATION.law(), laws.RULE_OF_THUMB):
        trained = tokens(law, parameters)
        assert size(law, training_flops.parameter_flops(parameters, trained)) == pytest.approx(
            parameters, rel=1e-6
        )
    assert tokens(laws.RULE_OF_THUMB, parameters) == pytest.approx(20 * parameters)


@given(st.floats(1e17, 1e28))
def test_the_budget_for_a_loss_is_the_one_that_reaches_it(flops: float) -> None:
    best = size(laws.REPLICATION.law(), flops)
    reached = laws.optimal_loss(best, laws.optimal_tokens(flops, best))
    assert laws.flops_for_loss(reached) == pytest.approx(flops, rel=1e-6)


def test_the_named_constants_are_the_replications() -> None:
    assert laws.loss(math.inf, math.inf) == laws.REPLICATION.constant
    fit = laws.REPLICATION
    assert laws.loss(70e9, 1.4e12) == fit.constant + fit.a / 70e9**fit.alpha + fit.b / 1.4e12**fit.beta


def test_a_small_model_on_many_tokens_is_over_trained() -> None:
    """Llama 3 8B saw 15 trillion tokens: some ninety times the rule of thumb, and more than its loss needed."""
    assert laws.over_training(15e12, tokens(laws.RULE_OF_THUMB, 8e9)) == pytest.approx(93.75, rel=1e-6)
    least = laws.flops_for_loss(laws.loss(8e9, 15e12))
    assert laws.extra_compute(training_flops.parameter_flops(8e9, 15e12), least) > 2


def test_a_budget_in_gpu_hours() -> None:
    """1,000 H100 hours at 989 TFLOP/s and 40 %."""
    assert laws.budget(1, 1, 1000, 989, 0.4) == pytest.approx(1.42416e21)
    assert laws.budget(0, 1e21, 1000, 989, 0.4) == 1e21
