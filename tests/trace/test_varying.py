"""What is reserved over samples of several lengths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from batchfit.errors import BadInput  # noqa: E402
from batchfit.trace import trace, trace_timeline  # noqa: E402
from batchfit.trace.allocator import DeviceFullError, replay  # noqa: E402
from batchfit.trace.allocator_config import AllocatorConfig  # noqa: E402
from batchfit.trace.varying import VaryingLengths, telling  # noqa: E402
from tests.trace.models import text  # noqa: E402

pytestmark = pytest.mark.torch

SHORTEST, LONGEST = 128, 2048
RISING = (256, 640, 1024, 1536, 2048)
MICRO_BATCH = 2


def model() -> nn.Module:
    return transformers.LlamaForCausalLM(  # type: ignore[no-any-return]
        transformers.LlamaConfig(
            hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2,
            num_hidden_layers=8, vocab_size=32000, use_cache=False, bos_token_id=1, eos_token_id=2
        )
    )  # fmt: skip


def really(lengths: tuple[int, ...], steps: tuple[int, ...]) -> int:
    """What is reserved when a training loop is traced that is given samples of these lengths, one after the other."""
    left: Iterator[int] = iter(lengths)
    timeline = trace_timeline(model(), lambda b: text(b, next(left)), MICRO_BATCH, steps=steps)
    return replay(timeline.events).reserved_peak_bytes


@pytest.fixture(scope="module")
def steps() -> VaryingLengths:
    found: list[VaryingLengths] = []
    trace(model(), text, seq_len=(SHORTEST, LONGEST), on_lengths=found.append)
    return found[0]


@pytest.mark.parametrize(
    "lengths", [RISING, RISING[::-1], (1024, 256, 2048, 640), (500, 1000, 1500), (LONGEST,) * 3]
)
def test_it_is_what_a_loop_over_such_samples_reserves(
    steps: VaryingLengths, lengths: tuple[int, ...]
) -> None:
    # Like the loop, the first step makes the optimizer's state and is one more of the first length.
    told = list(steps.reserved(lengths, MICRO_BATCH))
    assert told[-1] == pytest.approx(really((lengths[0], *lengths), (1,) * (len(lengths) + 1)), rel=0.01)
    assert told == sorted(told)


def test_micro_batches_of_one_step_are_told_too(steps: VaryingLengths) -> None:
    told = list(steps.reserved(RISING[:4], MICRO_BATCH, accumulation_steps=2))
    assert told[-1] == pytest.approx(really((RISING[0], *RISING[:4]), (1, 2, 2)), rel=0.01)


def test_the_order_of_samples_decides(steps: VaryingLengths) -> None:
    rising = list(steps.reserved(RISING, MICRO_BATCH))[-1]
    falling = list(steps.reserved(RISING[::-1], MICRO_BATCH))[-1]
    longest = list(steps.reserved([LONGEST] * 3, MICRO_BATCH))[-1]
    assert falling == pytest.approx(longest, rel=0.02)
    assert rising > 1.5 * falling


def test_expandable_segments_grow_instead(steps: VaryingLengths) -> None:
    expandable = AllocatorConfig(expandable_segments=True)
    rising = list(steps.reserved(RISING, MICRO_BATCH, config=expandable))[-1]
    falling = list(steps.reserved(RISING[::-1], MICRO_BATCH, config=expandable))[-1]
    assert rising < 1.1 * falling


def test_a_full_device_gets_its_cache_back(steps: VaryingLengths) -> None:
    falling = list(steps.reserved(RISING[::-1], MICRO_BATCH))[-1]
    assert list(steps.reserved(RISING, MICRO_BATCH, capacity_bytes=falling))[-1] <= falling
    with pytest.raises(DeviceFullError):
        list(steps.reserved(RISING, MICRO_BATCH, capacity_bytes=falling // 2))


def test_few_lengths_tell_of_an_epoch(steps: VaryingLengths) -> None:
    lengths = [SHORTEST + (7919 * n) % 1501 for n in range(60)]
    few = list(telling(lengths, 6))
    assert few[:6] == lengths[:6]
    assert all(later > max(lengths[:6]) for later in few[6:])
    assert len(few) < 16
    assert max(few) == max(lengths)
    whole = max(steps.reserved(lengths, MICRO_BATCH))
    assert max(steps.reserved(few, MICRO_BATCH)) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("length", [SHORTEST - 1, LONGEST + 1])
def test_a_length_that_was_not_traced_is_refused(steps: VaryingLengths, length: int) -> None:
    with pytest.raises(BadInput, match=f"128 to 2,048 tokens; you gave {length:,}"):
        list(steps.reserved([length], MICRO_BATCH))


def test_one_length_has_no_others() -> None:
    with pytest.raises(BadInput, match="must be a range"):
        trace(model(), lambda b: text(b, 64), on_lengths=print)
