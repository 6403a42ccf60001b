"""What CUDA does its own way, on tensors that are on no device at all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from batchfit.errors import BadInput
from batchfit.trace import autocast
from batchfit.trace.attention import efficient_takes, flash_takes
from batchfit.trace.errors import DataNeeded
from batchfit.trace.gpu import Gpu
from batchfit.trace.job import trace_timeline
from batchfit.trace.kernels import CUBLAS_WORKSPACE_BYTES
from batchfit.trace.settings import Settings
from batchfit.trace.timeline import ALLOC, FREE, Timeline
from batchfit.trace.tracker import Tracker
from tests.trace.models import gpt2

pytestmark = pytest.mark.torch

#: Batch, heads, tokens and head size of the queries in these tests.
SHAPE = (2, 4, 64, 16)


def run(code: Callable[[], object], shown: str = "cuda:0") -> tuple[Timeline, object]:
    """The timeline of `code` on the pretended GPU, and what it returned."""
    with Gpu(shown).watched() as tracker:
        result = code()
        tracker.close()
    return tracker.timeline, result


def kept(code: Callable[[], Tensor]) -> list[int]:
    """Sizes in bytes of what is alive after `code` while its result is, smallest first."""
    timeline, result = run(code)
    assert result is not None
    return sorted(timeline.alive_at(len(timeline.events) - 1).values())


def weights(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=True)


def test_the_lists_of_autocast_are_all_that_pytorch_has() -> None:
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    ours = {
        *autocast.LOWER_PRECISION,
        *autocast.FLOAT32,
        *autocast.FLOAT32_RESULT,
        *autocast.FLOAT32_OVERLOAD,
        *autocast.WIDEST,
        *autocast.BANNED,
    }
    # Kernels of their own, in builds for CUDA and from 2.14 on; a trace takes LSTMs apart, and never meets the first.
    others = {"_cudnn_rnn", "linalg_matrix_sqrth"}
    assert {name.removeprefix("aten::") for name in registered} - others == ours


def test_autocast_computes_where_cuda_does() -> None:
    weight = weights(8, 8)

    def types() -> list[torch.dtype]:
        x = torch.zeros(4, 8, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            y = functional.linear(x, weight)
            return [
                t.dtype
                for t in (
                    y,
                    y + 1,
                    functional.layer_norm(y, (8,)),
                    y.softmax(-1),
                    y.pow(2),
                    y.sum(),
                    y.norm(),
                    torch.einsum("ab,cb->ac", x, weight),
                    torch.addcmul(y, x, x),
                    functional.mse_loss(y, y),
                )
            ]

    half, single = torch.bfloat16, torch.float32
    assert run(types)[1] == [half, half, single, single, single, single, single, half, single, single]
    with pytest.warns(UserWarning, match="CUDA is not available"), torch.autocast("cuda"):
        pass


def test_autocast_casts_a_weight_once() -> None:
    weight = weights(64, 64)

    def twice() -> None:
        x = torch.zeros(4, 64, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            functional.linear(functional.linear(x, weight), weight)

    timeline, _ = run(twice)
    copies = [e for e in timeline.events if e.kind == ALLOC and timeline.categories[e.storage] == "buffers"]
    assert [copy.nbytes for copy in copies] == [64 * 64 * 2]
    # When autocast ends, so do the copies.
    assert copies[0].storage in {e.storage for e in timeline.events if e.kind == FREE}


def test_dropout_keeps_a_mask_of_a_byte_an_element() -> None:
    x = weights(8, 1024)
    assert kept(lambda: functional.dropout(x, 0.1, training=True)) == [8 * 1024, 8 * 1024 * 4]
    assert kept(lambda: functional.dropout(x, 0.1, training=False)) == []
    # The CPU multiplies by a mask of numbers.
    on_cpu, _ = run(lambda: functional.dropout(x, 0.1, training=True), "cpu")
    assert sum(e.nbytes for e in on_cpu.events if e.kind == ALLOC) > 8 * 1024 * 5


def test_flash_attention_keeps_its_result_and_a_number_a_row() -> None:
    q = weights(*SHAPE, dtype=torch.bfloat16)
    sizes = kept(lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1))
    batch, heads, tokens, _ = SHAPE
    assert sizes[-2:] == [batch * heads * tokens * 4, q.numel() * 2]
    # What is left are the seeds of dropout.
    assert sum(sizes[:-2]) <= 64


def test_grouped_queries_are_not_repeated() -> None:
    q, k = weights(*SHAPE, dtype=torch.bfloat16), weights(2, 2, 64, 16, dtype=torch.bfloat16)
    sizes = kept(lambda: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True))
    assert sizes[-1] == q.numel() * 2
    assert sum(sizes[:-1]) <= 2 * 4 * 64 * 4 + 64


@pytest.mark.parametrize("masked", [True, False])
def test_attention_in_float32_or_with_a_mask_is_memory_efficient(masked: bool) -> None:
    q = weights(*SHAPE, dtype=torch.bfloat16 if masked else torch.float32)
    batch, heads, tokens, _ = SHAPE

    def attend() -> Tensor:
        mask = torch.ones(tokens, tokens, dtype=torch.bool, device="cuda") if masked else None
        return functional.scaled_dot_product_attention(q, q, q, mask)

    sizes = kept(attend)
    scores = batch * heads * tokens * tokens * q.element_size()
    assert max(sizes) < scores
    assert batch * heads * tokens * 4 in sizes


def test_eager_attention_keeps_the_scores() -> None:
    q = weights(*SHAPE)
    gpu = Gpu(attention="eager")
    with gpu.watched() as tracker:
        result = functional.scaled_dot_product_attention(q, q, q)
        tracker.close()
    assert result.shape == SHAPE
    scores = 2 * 4 * 64 * 64 * 4
    alive = tracker.timeline.alive_at(len(tracker.timeline.events) - 1).values()
    assert scores in alive


def test_causal_attention_to_more_keys_than_queries_is_not_flash() -> None:
    q, k = weights(*SHAPE, dtype=torch.bfloat16), weights(2, 4, 128, 16, dtype=torch.bfloat16)
    assert flash_takes(q, k, k, None, causal=False, grouped=False)
    assert not flash_takes(q, k, k, None, causal=True, grouped=False)
    assert efficient_takes(q, k, k, None, grouped=False)


def test_grouped_queries_have_to_be_allowed() -> None:
    q, k = weights(*SHAPE, dtype=torch.bfloat16), weights(2, 2, 64, 16, dtype=torch.bfloat16)
    assert flash_takes(q, k, k, None, causal=True, grouped=True)
    assert not flash_takes(q, k, k, None, causal=True, grouped=False)
    assert not efficient_takes(q, k, k, None, grouped=False)


@pytest.mark.parametrize(
    ("head", "dtype", "masked", "reason"),
    [
        (16, torch.float32, False, r"the type is torch\.float32, not float16 or bfloat16"),
        (16, torch.bfloat16, True, "an attention mask is given"),
        (512, torch.bfloat16, False, "heads are of size 512, not one of at most 256"),
    ],
)
def test_flash_attention_that_is_asked_for_and_cannot_be(
    head: int, dtype: torch.dtype, masked: bool, reason: str
) -> None:
    q = weights(2, 4, 64, head, dtype=dtype)
    with Gpu(attention="flash").watched():
        mask = torch.zeros(64, 64, dtype=dtype, device="cuda") if masked else None
        with pytest.raises(
            BadInput, match=f"^attention: cannot be flash here: {reason}; choose sdpa or eager$"
        ):
            functional.scaled_dot_product_attention(q, q, q, mask)


def test_flash_attention_is_refused_in_float32() -> None:
    with pytest.raises(BadInput, match="cannot be flash in fp32: .* choose sdpa, or the precision bf16"):
        Settings("fp32", attention="flash")
    assert Settings("bf16-mixed", attention="flash").attention == "flash"


def test_flash_attention_sees_to_windows_itself() -> None:
    q = weights(*SHAPE, dtype=torch.bfloat16)
    window = torch.ones(64, 64, dtype=torch.bool).tril().triu(-8)
    with Gpu(attention="flash").watched() as tracker:
        out = functional.scaled_dot_product_attention(q, q, q, window)
    assert out.shape == SHAPE
    assert max(e.nbytes for e in tracker.timeline.events) == q.numel() * 2


def backward_transients(code: Callable[[], Tensor]) -> list[int]:
    """Sizes of what is taken and given back within one operation of the backward of `code`, the largest first."""
    with Gpu().watched() as tracker:
        loss = code().sum()
        tracker.mark("backward", 0, 0)
        loss.backward()
    events = tracker.timeline.events
    pairs = pairwise(events)
    return sorted(
        (a.nbytes for a, b in pairs if (a.kind, b.kind) == (ALLOC, FREE) and a.storage == b.storage),
        reverse=True,
    )


def test_memory_efficient_backward_sums_the_queries_gradient_in_tiles() -> None:
    q = weights(2, 4, 100, 16, dtype=torch.float16)
    mask = torch.zeros(100, 100, dtype=torch.float16, device="meta")
    tiles = 2 * 4 * 2 * (4 * 64 * 64 + 16)  # two of 64 queries each
    assert backward_transients(lambda: functional.scaled_dot_product_attention(q, q, q, mask))[0] == (
        tiles + 2 * 4 * 100 * 4
    )


def test_an_embeddings_backward_sums_each_tokens_row_in_float() -> None:
    table = weights(50, 64, dtype=torch.bfloat16)

    def taken(tokens: int) -> int:
        ids = torch.zeros(tokens, dtype=torch.long, device="meta")
        return backward_transients(lambda: functional.embedding(ids, table))[0]

    assert taken(4096) == 4096 * (64 * 4 + 6 * 8)
    # A few take less on the card; a line through small micro-batches must hold for large ones.
    assert taken(8) == 8 * (64 * 4 + 6 * 8)


def test_rms_norm_keeps_its_input_and_a_number_a_row() -> None:
    if not hasattr(torch.ops.aten, "_fused_rms_norm"):
        pytest.skip(f"PyTorch {torch.__version__} has no fused RMS norm")
    x, weight = weights(64, 1024, dtype=torch.bfloat16), weights(1024, dtype=torch.bfloat16)
    result = 64 * 1024 * 2
    assert kept(lambda: functional.rms_norm(x, (1024,), weight)) == [64 * 4, result]
    on_cpu, _ = run(lambda: functional.rms_norm(x, (1024,), weight), "cpu")
    assert sum(e.nbytes for e in on_cpu.events if e.kind == ALLOC) > 4 * result


def test_softmax_goes_from_half_to_float_in_one_kernel() -> None:
    x = weights(8, 1024, dtype=torch.float16)
    timeline, _ = run(lambda: functional.softmax(x, -1, dtype=torch.float32))
    assert [e.nbytes for e in timeline.events if e.kind == ALLOC] == [8 * 1024 * 4]


def test_counters_of_adam_are_on_the_host_unless_it_is_fused() -> None:
    model, batch = gpt2()
    parameters = sum(1 for _ in model.parameters())

    def counters(optimizer: str) -> int:
        timeline = trace_timeline(model, batch, 2, Settings("fp32", optimizer), steps=(1,))
        alive = timeline.alive_at(len(timeline.events) - 1)
        return sum(1 for s, n in alive.items() if n == 4 and timeline.categories[s] == "optimizer")

    assert counters("adamw") == 0
    assert counters("adamw-fused") == parameters


def test_forward_and_backward_have_a_cublas_workspace_each() -> None:
    weight = weights(8, 8)

    def step() -> None:
        for _ in range(2):
            functional.linear(torch.zeros(4, 8, device="cuda"), weight).sum().backward()

    with Gpu().watched() as tracker:
        tracker.mark("forward", 0, 0)
        out = functional.linear(torch.zeros(4, 8, device="cuda"), weight)
        tracker.mark("backward", 0, 0)
        out.sum().backward()
    sizes = [e.nbytes for e in tracker.timeline.events if e.kind == ALLOC]
    assert sizes.count(CUBLAS_WORKSPACE_BYTES) == 2


def test_known_values_can_be_read_and_others_cannot() -> None:
    weight = weights(64, 64)

    def code() -> list[object]:
        ids = torch.arange(12, device="cuda").view(3, 4)
        mask = (ids % 5) != 0
        return [
            ids.device.type,
            ids.is_cuda,
            int(ids.sum()),
            bool(mask.all()),
            ids[mask].shape[0],
            torch.nonzero(mask).shape,
            ids.tolist()[1],
            weight.detach()[ids[0]].shape,
        ]

    assert run(code)[1] == ["cuda", True, 66, False, 9, (9, 2), [4, 5, 6, 7], (4, 64)]
    for read in (
        lambda: bool(weight.sum() > 0),
        lambda: weight[weight > 0],
        lambda: weight.tolist(),
        lambda: torch.nonzero(weight),
        lambda: int(weight.sum().item()),
    ):
        with pytest.raises(DataNeeded):
            run(read)


def test_what_is_copied_to_the_host_is_not_in_the_gpus_memory() -> None:
    x = weights(64, 64)

    def code() -> list[str]:
        there = x * 2
        here = there.cpu()
        return [there.device.type, here.device.type, (here + 1).device.type, here.cuda().device.type]

    timeline, devices = run(code)
    assert devices == ["cuda", "cpu", "cpu", "cuda"]
    assert [e.nbytes for e in timeline.events if e.kind == ALLOC] == [64 * 64 * 4, 64 * 64 * 4]


def test_a_storage_resized_to_nothing_is_freed() -> None:
    tracker = Tracker()
    with tracker:
        x = torch.zeros(256)
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(1024)
        del x
    assert [(e.kind, e.nbytes) for e in tracker.timeline.events] == [(ALLOC, 1024), (FREE, 1024)] * 2


def test_modules_and_lines_are_known_in_backward_too() -> None:
    model, batch = gpt2()
    timeline = trace_timeline(model, batch, 2, Settings("fp32"), steps=(1,))
    gradients = [s for s, c in timeline.categories.items() if c == "gradients"]
    assert gradients
    assert all("transformer" in timeline.modules[s] or timeline.modules[s] == "lm_head" for s in gradients)
    stacks = {e.storage: timeline.stacks[e.stack] for e in timeline.events if e.kind == ALLOC}
    assert all(any("modeling_gpt2" in frame.file for frame in stacks[s]) for s in gradients)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_a_trace_equals_a_run_on_a_gpu(precision: str) -> None:
    """The same step on the card: the most it allocated, to the kernels' own temporaries."""
    from batchfit.trace.phases import peaks
    from batchfit.trace.step import Step

    model, batch = gpt2()
    settings = Settings(precision)
    traced = max(peaks(trace_timeline(model, batch, 64, settings)).values())
    there = model.cuda().train()
    step = Step(there, lambda m, b: m(**b), torch.optim.AdamW(there.parameters()), settings, Tracker())
    torch.cuda.reset_peak_memory_stats()
    step.run(lambda: {k: v.cuda() for k, v in batch(64).items()}, (1, 2))
    measured = torch.cuda.max_memory_allocated()
    assert traced == pytest.approx(measured, rel=0.05)


def test_a_linear_layer_is_one_product_each_way() -> None:
    model = nn.Linear(32, 16, bias=False)

    def batch(b: int) -> Tensor:
        return torch.zeros(b, 32)

    work = trace_timeline(model, batch, 4, Settings("fp32"), loss=lambda m, x: m(x).sum(), steps=(1, 1)).work
    assert work.forward_flops == 2 * 4 * 32 * 16
    # Inputs need no gradient.
    assert work.backward_flops == 2 * 4 * 32 * 16
    # Input, weight and result; back, the gradient of a sum (one number, expanded), input and the weight's gradient.
    assert work.products_bytes == 4 * (4 * 32 + 32 * 16 + 4 * 16) + 4 * (1 + 4 * 32 + 32 * 16)
    assert work.optimizer_kernels > 0
