"""Training FLOPs against the tables of GPT-3, PaLM, Llama and Megatron."""

from __future__ import annotations

import pytest

from batchfit.formulas import training_flops as flops
from tests.formulas.both import both


@pytest.mark.parametrize(
    ("parameters", "tokens", "published"),
    [
        # Brown et al. 2020, table D.1: total train compute.
        (174_600e6, 300e9, 3.14e23),
        (12_850e6, 300e9, 2.31e22),
        (6_658e6, 300e9, 1.20e22),
        (2_650e6, 300e9, 4.77e21),
        (1_320e6, 300e9, 2.38e21),
        (125e6, 300e9, 2.25e20),
        # Grattafiori et al. 2024, "The Llama 3 Herd of Models", section 1: 405B on 15.6T tokens.
        (405e9, 15.6e12, 3.8e25),
    ],
)
def test_six_n_d_as_published(parameters: float, tokens: float, published: float) -> None:
    assert both(flops.parameter_flops, parameters, tokens) == pytest.approx(published, rel=0.005)


def palm(tokens: float) -> tuple[float, float]:
    """PaLM 540B, of 118 layers with 48 heads of 256 and 2048 tokens (Chowdhery et al. 2022, table 1): operations in
    products with weights, and in attention."""
    return both(flops.parameter_flops, 540.35e9, tokens), both(
        flops.attention_flops, 118, 48 * 256, 2048, 12, tokens
    )


def test_palm_takes_the_operations_that_are_published() -> None:
    """The same, table 20: 2.56 × 10^24 for 780 billion tokens."""
    assert both(flops.model_flops, *palm(780e9)) == pytest.approx(2.56e24, rel=0.003)


@pytest.mark.parametrize(("attention", "published"), [(True, 0.462), (False, 0.457)])
def test_palm_uses_the_share_of_the_peak_that_is_published(attention: bool, published: float) -> None:
    """The same, section 4.1: 238.3 thousand tokens a second on 6144 chips of 275 TFLOP/s each."""
    weights, scores = palm(238.3e3)
    needed = both(flops.model_flops, weights, scores if attention else 0.0)
    assert needed / (6144 * 275e12) == pytest.approx(published, abs=0.0006)


@pytest.mark.parametrize(
    ("parameters", "tokens", "gpus", "achieved", "published"),
    [(175e9, 300e9, 1024, 140, 34), (1008e9, 450e9, 3072, 163, 84)],
)
def test_megatrons_days(parameters: float, tokens: float, gpus: int, achieved: float, published: int) -> None:
    """Narayanan et al. 2021, section 5.1: 8·T·P/(n·X), all layers recomputed; TFLOP/s achieved on each A100."""
    executed = both(flops.hardware_flops, flops.parameter_flops(parameters, tokens), 0.0, 1, 1)
    assert executed == pytest.approx(8 * parameters * tokens)
    on_one = both(flops.gpu_days, executed, 312.0, achieved / 312)
    assert round(both(flops.training_seconds, on_one, gpus) / 86400) == published


def test_recomputation_leaves_less_of_the_peak_for_the_model() -> None:
    weights, scores = flops.parameter_flops(7e9, 1e12), flops.attention_flops(32, 4096, 4096, 12, 1e12)
    needed = both(flops.model_flops, weights, scores)
    executed = both(flops.hardware_flops, weights, scores, 1, 1)
    assert executed == pytest.approx(needed * 4 / 3)
    assert both(flops.model_utilisation, needed, executed, 0.6) == pytest.approx(0.45)
    assert both(flops.hardware_flops, weights, scores, 0, 0) == needed
    assert both(flops.hardware_flops, weights, scores, 0, 1) - needed == pytest.approx(scores / 3)


def test_attention_to_earlier_tokens_is_half() -> None:
    every = both(flops.attention_flops, 32, 4096, 8192, 12, 1e9)
    assert both(flops.attention_flops, 32, 4096, 8192, 6, 1e9) == every / 2
    assert both(flops.attention_share, every, 4 * every) == 0.25


def test_tokens_per_second_make_up_the_days() -> None:
    assert both(flops.tokens_per_second, 1e12, 5000.0) * 5000 * 86400 == pytest.approx(1e12)
