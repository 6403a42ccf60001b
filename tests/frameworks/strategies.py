"""Settings as a planner makes them, for tests that hold for any of them."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from batchfit.settings import (
    ATTENTION,
    CHECKPOINTING,
    OPTIMIZERS,
    PRECISIONS,
    QUANTIZE,
    SHARDING,
    TrainingSettings,
)

T = TypeVar("T")

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head", "Wqkv")
#: Names that a YAML, TOML or shell reader could take for something else.
MODELS = (
    "meta-llama/Llama-3.1-8B",
    "gpt2",
    "./weights/my model",
    "no",
    "1e5",
    'a "b": #c',
    "null",
    "名前/模型",
    "$HOME/x",
)

#: Settings of which every framework has something to say.
RICH = TrainingSettings(
    micro_batch=4,
    accumulation_steps=8,
    replicas=16,
    nodes=2,
    seq_len=4096,
    precision="fp16-mixed",
    optimizer="muon",
    checkpointing="selective",
    attention="flash",
    sharding="zero1",
    lora_rank=8,
    lora_targets=("gate_proj",),
    quantize="int8",
    model="gpt2",
)


def maybe(values: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | values


@st.composite
def planned(draw: st.DrawFn) -> TrainingSettings:
    """Any settings with the three factors of the batch."""
    nodes = draw(st.sampled_from([None, 1, 2, 4]))
    lora = draw(maybe(st.integers(1, 256)))
    targets = st.lists(st.sampled_from(MODULES), min_size=1, max_size=5, unique=True).map(tuple)
    return TrainingSettings(
        micro_batch=draw(st.integers(1, 64)),
        accumulation_steps=draw(st.integers(1, 512)),
        replicas=draw(st.integers(1, 64)) * (nodes or 1),
        nodes=nodes,
        seq_len=draw(maybe(st.integers(1, 131072))),
        precision=draw(maybe(st.sampled_from(PRECISIONS))),
        optimizer=draw(maybe(st.sampled_from(OPTIMIZERS))),
        checkpointing=draw(maybe(st.sampled_from(CHECKPOINTING))),
        attention=draw(maybe(st.sampled_from(ATTENTION))),
        sharding=draw(maybe(st.sampled_from(SHARDING))),
        lora_rank=lora,
        lora_targets=draw(maybe(st.just(("all-linear",)) | targets)) if lora else None,
        quantize=draw(maybe(st.sampled_from(QUANTIZE))),
        model=draw(maybe(st.sampled_from(MODELS))),
    )
