"""Profiles over a range of sequence lengths."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402

from batchfit.errors import BadInput  # noqa: E402
from batchfit.profile import MemoryProfile, evaluate  # noqa: E402
from batchfit.trace import trace  # noqa: E402
from batchfit.trace.lengths import Lengths, parse_lengths  # noqa: E402
from tests.trace.models import text  # noqa: E402

pytestmark = pytest.mark.torch

SHORTEST, LONGEST = 64, 512


def model() -> nn.Module:
    return transformers.LlamaForCausalLM(  # type: ignore[no-any-return]
        transformers.LlamaConfig(
            hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
            num_hidden_layers=6, vocab_size=500, use_cache=False, bos_token_id=1, eos_token_id=2
        )
    )  # fmt: skip


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def traced(request: pytest.FixtureRequest) -> tuple[MemoryProfile, Callable[[int], MemoryProfile]]:
    attention = request.param
    over = trace(model(), text, seq_len=(SHORTEST, LONGEST), attention=attention)
    return over, lambda s: trace(model(), lambda b: text(b, s), attention=attention)


def test_a_range_is_what_each_length_is(
    traced: tuple[MemoryProfile, Callable[[int], MemoryProfile]],
) -> None:
    over, at = traced
    assert over.seq_len is not None
    assert (over.seq_len.minimum, over.seq_len.maximum) == (SHORTEST, LONGEST)
    assert len(over.seq_len.traced) == 3
    assert over.seq_len.checked_at not in over.seq_len.traced
    assert over.seq_len.deviation is not None
    assert over.seq_len.deviation < 0.001
    for length in (SHORTEST, 128, 300, LONGEST):
        alone = at(length)
        for b in (1, 4, 64):
            for a in (1, 2):
                # Small tensors are rounded to blocks of 512 bytes, and attention works on blocks of 128 tokens.
                assert over.peak(b, a, length).allocated_bytes == pytest.approx(
                    alone.peak(b, a).allocated_bytes, rel=0.002
                )
        if length == LONGEST:
            assert over.activation_per_sample == pytest.approx(alone.activation_per_sample, rel=1e-6)
        assert evaluate(over.compute.step_flops, length) == pytest.approx(
            evaluate(alone.compute.step_flops, None), rel=0.001
        )


def windowed() -> nn.Module:
    return transformers.MistralForCausalLM(  # type: ignore[no-any-return]
        transformers.MistralConfig(
            hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            num_hidden_layers=8, vocab_size=500, sliding_window=100, use_cache=False, bos_token_id=1, eos_token_id=2
        )
    )  # fmt: skip


def test_a_range_is_parted_where_a_window_of_attention_begins_to_matter() -> None:
    told: list[str] = []
    with pytest.raises(
        BadInput,
        match=r"^seq_len: must be a range over which a training step stays the same; this model's changes after "
        r"99 tokens, as attention over a window does: ask for 64\.\.99, or for 104\.\.512$",
    ):
        trace(windowed(), text, seq_len=(64, 512), progress=lambda what, done: told.append(what))
    # Few blocks, at the lengths between which it was looked for.
    assert len(told) < 30
    for part in ((64, 99), (104, 512)):
        profile = trace(windowed(), text, seq_len=part)
        assert profile.affinity.affine
        assert profile.seq_len is not None
        assert (profile.seq_len.deviation or 0) < 0.001
        assert any("a few were traced" in said for said in profile.assumptions)


class Wavering(nn.Module):
    """Does more at some lengths in the middle than at those on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)

    def forward(self, input_ids: Any, labels: Any) -> Any:
        x = self.table(input_ids)
        if 128 < input_ids.shape[1] < 400:
            x = x.sin().exp()
        return types.SimpleNamespace(loss=(x * x).mean())


def test_a_step_that_changes_more_than_once_is_told_with_how_far_off_it_is() -> None:
    profile = trace(Wavering(), text, seq_len=(64, 512))
    assert not profile.affinity.affine
    assert profile.seq_len is not None
    assert profile.seq_len.deviation is not None
    assert profile.seq_len.deviation > 0.01
    assert all(len(lines) == 1 for lines in profile.phases.values())


def test_a_profile_of_a_range_round_trips(
    traced: tuple[MemoryProfile, Callable[[int], MemoryProfile]],
) -> None:
    over, _ = traced
    assert MemoryProfile.from_json(over.to_json()) == over


def test_a_range_needs_batches_that_take_a_length() -> None:
    with pytest.raises(BadInput, match=r"seq_len: is a range, and needs a make_batch that takes a length"):
        trace(model(), lambda b: text(b, 64), seq_len=(64, 512))


def test_a_length_that_the_batches_do_not_have_is_told() -> None:
    with pytest.raises(BadInput, match=r"seq_len: is 128, and make_batch makes samples of 64 tokens"):
        trace(model(), lambda b: text(b, 64), seq_len=128)
    assert trace(model(), text, seq_len=128).settings["seq_len"] == 128


@given(
    st.integers(1, 2000),
    st.integers(8, 20000),
    st.tuples(*[st.integers(-(10**6), 10**9)] * 3),
)
def test_a_curve_goes_through_what_it_is_made_of(
    minimum: int, more: int, coefficients: tuple[int, int, int]
) -> None:
    lengths = Lengths.asked((minimum, minimum + more))
    low, middle, high = lengths.traced
    assert low < middle < high
    assert lengths.checked_at is None or low < lengths.checked_at < high
    values = [evaluate(tuple(map(float, coefficients)), s) for s in lengths.traced]
    curve = lengths.curve(values)
    for length in (*lengths.traced, (low + high) // 2):
        real = evaluate(tuple(map(float, coefficients)), length)
        scale = max(abs(v) for v in (*values, real, 1.0))
        assert abs(evaluate(curve, length) - real) <= 1e-6 * scale
        weighed = sum(w * v for w, v in zip(lengths.weights(length), values, strict=True))
        assert abs(weighed - real) <= 1e-6 * scale


def test_lengths_as_they_are_typed() -> None:
    assert parse_lengths("1024") == 1024
    assert parse_lengths("512..8192") == (512, 8192)
    for wrong in ("x", "0", "-4", "8192..512", "5..6", "1..", "..4", "1.5"):
        with pytest.raises(BadInput, match="you typed"):
            parse_lengths(wrong)
