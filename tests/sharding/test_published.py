"""Published runs of sharded training on real GPUs, as the arithmetic says them."""

from __future__ import annotations

import pytest

from batchfit.sharding import FSDP, shard

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.torch

GIB = 2**30


def test_mistral_7b_on_two_gpus() -> None:
    """foundation-model-stack/fms-acceleration, scripts/benchmarks/refs/a100_80gb.csv: Mistral-7B, full checkpointing,
    sequences of 4096, micro-batch 2, FSDP over two A100. `torch.cuda.max_memory_allocated` was 33.738 GiB with
    weights in bf16 and 67.46 GiB with fp32 shards, and 26.994 and 53.971 GiB between steps.
    """
    from batchfit.trace import trace

    config = transformers.MistralConfig(use_cache=False)
    with torch.device("meta"):
        model = transformers.MistralForCausalLM(config)

    def batch(micro_batch: int) -> dict[str, object]:
        ids = torch.zeros(micro_batch, 4096, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}

    alone = trace(model, batch, precision="bf16", checkpointing="full", seq_len=4096)
    for sharding, peak, between in (
        (FSDP(), 33.738, 26.994),
        (FSDP(sharded_dtype="fp32", reduce_dtype="fp32"), 67.46, 53.971),
    ):
        replica = shard(alone, sharding, 2)
        assert replica.peak(2, 1, 4096).allocated_bytes / GIB == pytest.approx(peak, rel=0.001)
        assert replica.peak(2, 1, 4096).binding_phase == "optimizer_step"
        assert replica.states.total_bytes / GIB == pytest.approx(between, rel=0.001)
