"""What people type for a batch and a tolerance."""

import pytest

from batchfit.errors import BadInput
from batchfit.planning.target import Target, parse_target


@pytest.mark.parametrize(
    ("typed", "samples", "tokens"),
    [
        (256, 256, None),
        ("256", 256, None),
        ("1,024", 1024, None),
        ("256 samples", 256, None),
        ("2k", 2000, None),
        ("2Ki", 2048, None),
        ("4M-tokens", 488, 4_000_000),
        ("4Mi-tokens", 512, 4 * 2**20),
        ("4194304 tokens", 512, 4 * 2**20),
        ("0.5M tokens", 61, 500_000),
    ],
)
def test_batches_as_people_write_them(typed: int | str, samples: int, tokens: int | None) -> None:
    assert parse_target(typed, 8192) == Target(samples, samples, samples, tokens)


@pytest.mark.parametrize(
    "typed", ["", "many", "-4", "0", 0, True, "2.5", "1e3", "4M-words", "256;", None, 3.0, 10**8]
)
def test_what_is_no_batch_is_named(typed: object) -> None:
    with pytest.raises(BadInput) as wrong:
        parse_target(typed, 8192)  # type: ignore[arg-type]
    assert wrong.value.field == "batch"


def test_tokens_need_a_length() -> None:
    with pytest.raises(BadInput, match="seq_len: is needed to turn a batch of 4,000,000 tokens into samples"):
        parse_target("4M-tokens")


@pytest.mark.parametrize(
    ("typed", "low", "high"), [(0, 250, 250), ("5%", 238, 262), (8, 242, 258), ("8", 242, 258), (400, 1, 650)]
)
def test_a_tolerance_is_a_share_or_samples(typed: int | str, low: int, high: int) -> None:
    target = parse_target(250, tolerance=typed)
    assert (target.low, target.high) == (low, high)


@pytest.mark.parametrize("typed", ["x", "-1", "100%", "2.5", "nan", "inf%", True, ""])
def test_what_is_no_tolerance_is_named(typed: int | str) -> None:
    with pytest.raises(BadInput) as wrong:
        parse_target(250, tolerance=typed)
    assert wrong.value.field == "tolerance"
