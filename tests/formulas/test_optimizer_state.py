"""Optimizer state, in figures worked out by hand."""

from __future__ import annotations

from batchfit.formulas import optimizer_state
from tests.formulas.both import both


def test_adamw_keeps_two_values_a_parameter() -> None:
    assert both(optimizer_state.optimizer_state_bytes, 7 * 10**9, 4096, 2, 0, 0, 0, 4) == 56 * 10**9
    assert both(optimizer_state.optimizer_state_bytes, 7 * 10**9, 4096, 2, 0, 0, 0, 2) == 28 * 10**9


def test_eight_bits_have_a_scale_for_every_block() -> None:
    assert both(optimizer_state.optimizer_state_bytes, 256, 4096, 0, 2, 2, 0, 4) == 2 * (256 + 4)


def test_adafactor_keeps_a_row_and_a_column() -> None:
    assert both(optimizer_state.optimizer_state_bytes, 4096**2, 4096, 0, 0, 0, 2, 2) == 4 * (4096 + 4096)


def test_muon_keeps_adamws_second_value_for_embeddings_alone() -> None:
    embedding = both(optimizer_state.embedding_parameters, 10**6, 100, 200, 2)
    assert embedding == 40_000
    assert both(optimizer_state.optimizer_bytes, 10**6, embedding, 200, 1, 0, 0, 0, 1, 4) == 4 * 1_040_000
    assert both(optimizer_state.step_bytes, 10**6, embedding, 0, 1, 4) == 160_000
    assert both(optimizer_state.embedding_parameters, 1000, 100, 200, 1) == 1000


def test_foreach_takes_a_value_for_every_parameter_for_a_moment() -> None:
    assert both(optimizer_state.step_bytes, 10**6, 40_000, 1, 0, 4) == 4 * 10**6


def test_comparisons() -> None:
    assert both(optimizer_state.bytes_per_parameter, 4, 10) == 2.5
    assert both(optimizer_state.saved_bytes, 100, 4, 300) == 500
