"""What attention keeps, against the tensors alive after a forward pass of it on a pretended GPU."""

from __future__ import annotations

import pytest

from batchfit.formulas import attention_memory as attention
from tests.formulas.both import both

#: Samples, tokens, heads, key-value heads, head size.
B, S, H, K, D = 2, 256, 8, 2, 64


@pytest.mark.parametrize(
    ("value_bytes", "upcasts", "drops", "expected"),
    [(2, 0, 0, 2), (2, 0, 1, 5), (2, 1, 0, 6), (2, 1, 1, 7), (4, 0, 0, 4), (4, 1, 0, 4), (4, 1, 1, 9)],
)
def test_bytes_of_a_score(value_bytes: int, upcasts: int, drops: int, expected: int) -> None:
    assert both(attention.score_bytes, value_bytes, upcasts, drops) == expected


def test_scores_of_gpt3_as_published() -> None:
    """Korthikanti et al. 2022, section 4.1: 5·a·s²·b; section 5: 5·a·s/h is 80 for GPT-3 (a 96, s 2048, h 12288)."""
    score = both(attention.score_bytes, 2, 0, 1)
    scores = both(attention.scores_bytes, 1, 96, 2048, score)
    assert scores == 80 * 2048 * 12288


def test_all_layers_and_the_comparison() -> None:
    assert both(attention.eager_bytes, 32, 10) == 320
    assert both(attention.flash_bytes, 32, 10) == 320
    assert both(attention.saved_bytes, 320, 20) == 300
    assert both(attention.times_less, 320, 20) == 16


def test_at_the_even_length_scores_take_as_much_as_the_rest() -> None:
    length = both(attention.even_length, 128, 2, 2)
    assert length == 512
    scores = attention.scores_bytes(1, 32, 512, 2)
    assert attention.eager_layer_bytes(1, 512, 32, 128, 2, scores) == 2 * scores


def kept(eager: bool, dropout: float) -> int:
    """Bytes alive for backward after one attention in bf16 on a pretended GPU, its projections' weights, the layer's
    input and its result left out."""
    import torch
    from torch import nn
    from transformers.models.llama.modeling_llama import eager_attention_forward

    from batchfit.trace.gpu import Gpu
    from batchfit.trace.kernels import CUBLAS_WORKSPACE_BYTES

    def leaf(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, dtype=torch.bfloat16, device="meta", requires_grad=True)

    layer = nn.Module()
    layer.num_key_value_groups = H // K  # type: ignore[assignment]
    x, out = leaf(B, S, D), leaf(D, H * D)
    projections = [leaf(heads * D, D) for heads in (H, K, K)]
    linear, flash = nn.functional.linear, nn.functional.scaled_dot_product_attention

    def attend() -> torch.Tensor:
        q, k, v = (linear(x, weight).view(B, S, -1, D).transpose(1, 2) for weight in projections)
        if eager:
            inner = eager_attention_forward(layer, q, k, v, None, D**-0.5, dropout=dropout)[0]
        else:
            inner = flash(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
        return linear(inner.reshape(B, S, -1), out)

    with Gpu(attention="eager" if eager else "flash").watched() as tracker:
        result = attend()
        tracker.close()
    alive = sum(tracker.timeline.alive_at(len(tracker.timeline.events) - 1).values())
    others = sum(t.numel() * t.element_size() for t in (x, out, *projections, result))
    return alive - others - CUBLAS_WORKSPACE_BYTES


@pytest.mark.torch
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_eager_attention_keeps_what_a_trace_says(dropout: float) -> None:
    score = attention.score_bytes(2, 1, int(dropout > 0))
    scores = attention.scores_bytes(B, H, S, score)
    expected = attention.eager_layer_bytes(B, S, H, D, 2, scores)
    assert kept(eager=True, dropout=dropout) == expected


@pytest.mark.torch
def test_flash_attention_keeps_what_a_trace_says() -> None:
    expected = attention.flash_layer_bytes(B, S, H, K, D, 2)
    seeds = 24  # of a dropout that does not happen
    assert kept(eager=False, dropout=0.0) == expected + seeds
