"""Small real models, trained for two optimizer steps under the tracker: alone, under FSDP2 and under DDP."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from batchfit.profile import Affinity, Compute, MemoryProfile, Provenance, States
from batchfit.trace.checkpointing import repeated_blocks
from batchfit.trace.model_units import describe
from batchfit.trace.phases import phase_of
from batchfit.trace.surface import envelopes
from batchfit.trace.timeline import MARK, Timeline
from batchfit.trace.tracker import Tracker

SEQ_LEN = 32
MICROS = (1, 2)


class LocalTracker(Tracker):
    """Sees the tensors a replica holds: a DTensor first runs its own dispatch, on its local shard."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)


def llama(
    vocabulary: int = 2048, width: int = 128, layers: int = 4, checkpointing: bool = False
) -> nn.Module:
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=vocabulary,
        max_position_embeddings=SEQ_LEN,
        use_cache=False,
    )
    model: nn.Module = LlamaForCausalLM(config)
    if checkpointing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    return model


def deep_llama() -> nn.Module:
    """Blocks far larger than the embeddings: the peak of backward is inside them."""
    return llama(vocabulary=128, width=192)


def gpt2() -> nn.Module:
    config = GPT2Config(
        n_embd=128, n_layer=3, n_head=4, vocab_size=1024, n_positions=SEQ_LEN, use_cache=False
    )
    return GPT2LMHeadModel(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": llama,
    "deep": deep_llama,
    "checkpointed": lambda: llama(vocabulary=128, width=192, checkpointing=True),
    "gpt2": gpt2,
}


def train(
    build: Callable[[], nn.Module],
    micro_batch: int,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
    sync: Callable[[nn.Module, bool], Any] = lambda model, last: contextlib.nullcontext(),
) -> Timeline:
    """The timeline of two optimizer steps, the second of two micro-batches.

    `wrap` makes a replica of the model; `sync` is entered around each micro-batch and told whether it is the last.
    """
    model = build()
    model.train()
    tracker = LocalTracker()
    with tracker:
        if wrap.__name__ == "sharded":
            model = wrap(model)
        for path, parameter in model.named_parameters():
            tracker.adopt(_local(parameter), "weights", path.rpartition(".")[0])
        for path, buffer in model.named_buffers():
            tracker.adopt(buffer, "buffers", path.rpartition(".")[0])
        tracker.paths.know(model)
        with tracker.categorised("buffers"):
            replica = model if wrap.__name__ == "sharded" else wrap(model)
        optimizer = torch.optim.AdamW(replica.parameters())
        for step, micros in enumerate(MICROS):
            _step(replica, optimizer, tracker, micro_batch, step, micros, sync)
        tracker.mark("end", len(MICROS) - 1)
        tracker.close()
    return tracker.timeline


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tracker: Tracker,
    micro_batch: int,
    step: int,
    micros: int,
    sync: Callable[[nn.Module, bool], Any],
) -> None:
    tracker.mark("begin", step)
    for micro in range(micros):
        with sync(model, micro == micros - 1):
            tracker.mark("forward", step, micro)
            ids = torch.zeros(micro_batch, SEQ_LEN, dtype=torch.long)
            loss = model(input_ids=ids, labels=ids).loss / micros
            tracker.mark("backward", step, micro)
            loss.backward()
            del loss
        for parameter in model.parameters():
            if parameter.grad is not None:
                tracker.label(_local(parameter.grad), "gradients")
    tracker.mark("optimizer", step)
    optimizer.step()
    tracker.mark("zero_grad", step)
    optimizer.zero_grad()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def profile(build: Callable[[], nn.Module], precision: str = "fp32") -> MemoryProfile:
    """The profile of the model alone, from micro-batches of 2 and 3."""
    phases = envelopes(train(build, 2), train(build, 3), 2, 3)
    described = describe(build(), "small")
    weights = sum(u.count * u.weights_bytes for u in described.units)
    return MemoryProfile(
        model=described,
        settings={"precision": precision},
        states=States(weights, weights, 2 * weights, 0),
        phases=phases,
        reserved=(),
        compute=Compute((0,), (0,), (0,), ((0,), (0,)), ((0,), (0,)), 0, 0, 0, 0),
        ledger=(),
        seq_len=None,
        affinity=Affinity((2, 3), None, None, True),
        assumptions=(),
        provenance=Provenance("traced", {}, 0, ""),
    )


def peaks(timeline: Timeline) -> dict[str, int]:
    """The most bytes alive in each phase of the last optimizer step."""
    found: dict[str, int] = {}
    phase = None
    for event, alive in timeline.live():
        if event.kind == MARK:
            mark = timeline.marks[event.stack]
            phase = phase_of(mark) if mark.step == len(MICROS) - 1 else None
        if phase is not None:
            found[phase] = max(alive, found.get(phase, 0))
    return found


def compare(predicted: MemoryProfile, real: dict[str, int], micro_batch: int, within: float = 0.006) -> None:
    """What is off is what rounding to 512 bytes adds to the small shards of small models.

    In the optimizer step Adam's step counters come to it: one per parameter, which are not sharded, and which
    on a GPU would be on the CPU.
    """
    for phase, measured in real.items():
        said = max(line.at(micro_batch) for line in predicted.phases[phase])
        off = within if phase != "optimizer_step" else max(within, 0.015)
        assert abs(said / measured - 1) < off, (phase, said, measured)


def fsdp(mesh: Any, **settings: Any) -> Callable[[nn.Module], nn.Module]:
    """Wraps each block and the whole, as `accelerate` and torchtitan do."""

    def sharded(model: nn.Module) -> nn.Module:
        for block in repeated_blocks(model):
            fully_shard(block, mesh=mesh, **settings)
        fully_shard(model, mesh=mesh, **settings)
        return model

    return sharded


@contextlib.contextmanager
def last_only(model: nn.Module, last: bool) -> Any:
    """Gradients are reduced in the last micro-batch only."""
    if isinstance(model, DistributedDataParallel):
        with contextlib.nullcontext() if last else model.no_sync():
            yield
        return
    model.set_requires_gradient_sync(last)  # type: ignore[operator]
    yield


def ddp_process(rank: int, meeting: str, model: str, micro_batch: int) -> dict[str, dict[str, int]]:
    """One of two real processes: the peaks of each way to run DDP."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    results = {}
    for view in (False, True):
        for sync in (True, False):
            timeline = train(
                MODELS[model],
                micro_batch,
                lambda m, view=view: DistributedDataParallel(m, gradient_as_bucket_view=view),  # type: ignore[misc]
                last_only if not sync else lambda m, last: contextlib.nullcontext(),
            )
            results[f"{view} {sync}"] = peaks(timeline)
    dist.destroy_process_group()
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    outcome = ddp_process(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
    if sys.argv[1] == "0":
        print(json.dumps(outcome))
    sys.stdout.flush()
    os._exit(0)
