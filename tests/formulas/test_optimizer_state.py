"""Optimizer state, in figures worked out by hand."""

from __future__ import annotations

from batchfit.formulas import optimizer_state
from tests.formulas.both import both


def test_adamw_keeps_two_values_a_parameter() -> None:
    assert both(optimizer_state.optimizer_state_bytes, 7 * 10**9, 4096, 2, 0, 0, 4) == 56 * 10**9
    assert both(optimizer_state.optimizer_state_bytes, 7 * 10**9, 4096, 2, 0, 0, 2) == 28 * 10**9


def test_eight_bits_have_a_scale_for_every_block() -> None:
    assert both(optimizer_state.optimizer_state_bytes, 256, 4096, 0, 2, 0, 4) == 2 * (256 + 4)


def test_adafactor_keeps_a_row_and_a_column() -> None:
    assert both(optimizer_state.optimizer_state_bytes, 4096**2, 4096, 0, 0, 2, 2) == 4 * (4096 + 4096)


def test_muon_keeps_adamws_second_value_for_embeddings_alone() -> None:
    assert both(optimizer_state.embedding_state_bytes, 1000, 200, 1, 4) == 800
    assert both(optimizer_state.embedding_state_bytes, 100, 200, 1, 4) == 400


def test_parts_and_comparisons() -> None:
    assert both(optimizer_state.all_state_bytes, 3, 4) == 7
    assert both(optimizer_state.bytes_per_parameter, 4, 10) == 2.5
    assert both(optimizer_state.saved_bytes, 100, 4, 300) == 500
