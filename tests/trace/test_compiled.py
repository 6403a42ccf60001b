"""What torch.compile keeps and makes, on tensors without data, against PyTorch's own compiled runs."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from batchfit.errors import BadInput
from batchfit.trace import trace
from batchfit.trace.checkpointing import _selective
from batchfit.trace.compiled.fusion import base_of
from batchfit.trace.job import trace_timeline
from batchfit.trace.settings import Settings
from batchfit.trace.timeline import ALLOC, FREE, MARK, Timeline

BATCH, LENGTH, HIDDEN = 4, 256, 512

#: Bytes of the CPU's random state, which recomputation of attention takes with it; a GPU's is on the host.
RANDOM_STATE = torch.get_rng_state().numel()


class Block(nn.Module):
    """A block of a Llama: norms in float32, grouped keys and values, a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))
        self.kv = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.gate = (nn.Linear(HIDDEN, 1536, bias=False) for _ in range(2))
        self.down = nn.Linear(1536, HIDDEN, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN, eps=1e-5) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        inputs = self.norms[0](x)
        q = self.q(inputs).view(batch, length, 8, 64).transpose(1, 2)
        kv = self.kv(inputs).view(batch, length, 2, 4, 64)
        k, v = (part.repeat_interleave(2, 2).transpose(1, 2) for part in kv.unbind(2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(out.transpose(1, 2).reshape(batch, length, HIDDEN))
        inputs = self.norms[1](x)
        result: Tensor = x + self.down(F.silu(self.gate(inputs)) * self.up(inputs))
        return result


class Model(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.emb = nn.Embedding(100, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.emb(input_ids)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = x.sum()
        return result


def batch(size: int) -> dict[str, Tensor]:
    return {"input_ids": torch.zeros(size, LENGTH, dtype=torch.long)}


def traced(shown: str = "cpu", **settings: Any) -> Timeline:
    return trace_timeline(
        Model().bfloat16(),
        batch,
        BATCH,
        Settings(precision="bf16", **settings),
        loss=lambda model, inputs: model(**inputs),
        steps=(1,),
        shown=shown,
    )


def kept(timeline: Timeline, module: str) -> Counter[int]:
    """Bytes of what a module's forward left, by how often."""
    alive: dict[int, int] = {}
    for event in timeline.events:
        if event.kind == MARK and timeline.marks[event.stack].phase == "backward":
            break
        if event.kind == ALLOC and _is_activation_of(timeline, event.storage, module):
            alive[event.storage] = event.nbytes
        elif event.kind == FREE:
            alive.pop(event.storage, None)
    return Counter(alive.values())


def _is_activation_of(timeline: Timeline, storage: int, module: str) -> bool:
    within = timeline.modules.get(storage, "").startswith(module)
    return within and timeline.categories[storage] == "activations"


def saved_on_cpu(checkpointing: str) -> Counter[int]:
    """Bytes of what PyTorch's compiled blocks save on the CPU, but for weights."""
    model = Model().bfloat16()
    compiled = [torch.compile(_checkpointed(b, checkpointing), backend="aot_eager_decomp_partition")
                for b in model.layers]  # fmt: skip
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    x = model.emb(batch(BATCH)["input_ids"])
    for block in compiled:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            x = block(x)  # type: ignore[no-untyped-call]
    sizes = (t.untyped_storage().nbytes() for at, t in saved.items() if at not in weights)
    return Counter(size for size in sizes if size != RANDOM_STATE)


def _checkpointed(block: nn.Module, kind: str) -> Any:
    if kind == "none":
        return block
    options: dict[str, Any] = {"context_fn": _selective} if kind == "selective" else {}
    return lambda x: checkpoint(block, x, use_reentrant=False, preserve_rng_state=False, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("checkpointing", ["none", "full", "selective"])
def test_compiled_blocks_keep_what_pytorch_saves(checkpointing: str) -> None:
    torch._dynamo.reset()
    ours = kept(traced(compile="block", checkpointing=checkpointing), "layers.")
    # The first block's input is the embedding's.
    ours[BATCH * LENGTH * HIDDEN * 2] += 1
    assert +Counter({size: n for size, n in ours.items() if size > 64}) == saved_on_cpu(checkpointing)


def peaks(timeline: Timeline) -> dict[str, int]:
    """The highest of each phase, above what is alive when the first forward begins."""
    phase = ""
    found: dict[str, int] = {phase: 0}
    alive = base = 0
    for event in timeline.events:
        if event.kind == MARK:
            phase = timeline.marks[event.stack].phase
            base = alive if phase == "forward" else base
            found[phase] = alive - base
        else:
            alive += event.nbytes if event.kind == ALLOC else -event.nbytes
            found[phase] = max(found[phase], alive - base)
    return found


#: The same of a real run of these blocks on the CPU, compiled by Inductor of PyTorch 2.13 (torch.profiler's memory
#: events). In forward the CPU's attention kernel takes 193 KiB for itself.
INDUCTOR = {"forward": 36_979_712, "backward": 41_500_676}

#: Bytes of the token ids, which that run made before.
IDS = BATCH * LENGTH * 8


def test_peaks_are_those_of_kernels_that_inductor_writes() -> None:
    ours = peaks(traced(compile="block"))
    assert ours["backward"] - IDS == INDUCTOR["backward"]
    assert ours["forward"] - IDS == pytest.approx(INDUCTOR["forward"], rel=0.01)


def test_compiling_keeps_less_than_eager_and_leaves_nothing_behind() -> None:
    eager, compiled = traced(shown="cuda:0"), traced(shown="cuda:0", compile="block")
    activations = [sum(size * n for size, n in kept(t, "layers.").items()) for t in (eager, compiled)]
    assert activations[1] < activations[0]
    assert peaks(compiled)["optimizer"] == peaks(eager)["optimizer"]


def test_a_compiled_model_folds_and_is_affine_in_the_micro_batch() -> None:
    profile = trace(Model(6).bfloat16(), batch, loss=lambda model, inputs: model(**inputs), compile="block")
    whole = trace(
        Model(6).bfloat16(), batch, loss=lambda model, inputs: model(**inputs), compile="block", folding=False
    )
    assert any("a few were traced" in sentence for sentence in profile.assumptions)
    assert profile.peak(7, 2).allocated_bytes == whole.peak(7, 2).allocated_bytes
    assert profile.affinity.deviation == 0


def test_fused_kernels_are_counted_and_are_fewer() -> None:
    eager, compiled = traced(shown="cuda:0").work, traced(shown="cuda:0", compile="block").work
    assert 0 < compiled.kernels < eager.kernels
    assert 0 < compiled.other_bytes < eager.other_bytes
    assert compiled.forward_flops == eager.forward_flops
    assert compiled.backward_flops == eager.backward_flops


@pytest.mark.parametrize("checkpointing", ["none", "full", "selective"])
def test_a_model_of_transformers_compiles_with_checkpointing(checkpointing: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)

    def labelled(size: int) -> dict[str, Tensor]:
        ids = torch.ones(size, 64, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}

    eager, compiled = (
        trace(model, labelled, checkpointing=checkpointing, compile=c) for c in ("none", "block")
    )
    assert compiled.activation_per_sample <= eager.activation_per_sample
    assert compiled.affinity.deviation == 0


def test_results_that_are_views_are_parts_of_what_they_look_at() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    product = graph.call_function(torch.ops.aten.mm.default, (x, x))
    halves = graph.call_function(torch.ops.aten.split.Tensor, (product, 2))
    half = graph.call_function(operator.getitem, (halves, 1))
    assert base_of(half) is product


def test_a_whole_model_compiles_too() -> None:
    profile = trace(Model().bfloat16(), batch, loss=lambda model, inputs: model(**inputs), compile="whole")
    blocks = trace(Model().bfloat16(), batch, loss=lambda model, inputs: model(**inputs), compile="block")
    assert profile.activation_per_sample <= blocks.activation_per_sample


def test_what_cannot_be_compiled_is_said() -> None:
    with pytest.raises(BadInput, match="compile: must be one of none, block, whole; you gave 'all'"):
        Settings(compile="all")
    with pytest.raises(BadInput, match="compile: must be block with activation checkpointing"):
        Settings(compile="whole", checkpointing="full")
    with pytest.raises(BadInput, match="compile: block needs repeated blocks, and Linear has none"):
        trace(nn.Linear(2, 2), lambda size: torch.zeros(size, 2), compile="block")
