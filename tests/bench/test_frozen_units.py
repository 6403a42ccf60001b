"""Frozen units inside of reentrant checkpointing, against a real FullyShardedDataParallel."""

from __future__ import annotations

from typing import Any

import pytest

from batchfit.sharding import FSDP1, shard

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor, nn  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402
from transformers.modeling_outputs import CausalLMOutput  # noqa: E402

from bench.accuracy.frozen_units import hold_inputs_of_frozen_units  # noqa: E402
from tests.sharding import replicas  # noqa: E402
from tests.sharding.conftest import REPLICAS, mesh, one_thread  # noqa: E402, F401

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("mesh", "one_thread")]

WIDTH = 256


class Adapter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.adapter = Adapter()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.narrow(self.wide(x).relu()) + self.adapter(x)
        return out


class Net(nn.Module):
    """Blocks with frozen weights and an adapter each, all recomputed in backward, from outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(8))
        for name, parameter in self.named_parameters():
            parameter.requires_grad_("adapter" in name)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Any:
        x = self.embedding(input_ids).requires_grad_()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return CausalLMOutput(loss=x.mean())


def wrapped(model: nn.Module) -> nn.Module:
    units = ModuleWrapPolicy({Block, Adapter})
    return FullyShardedDataParallel(model, auto_wrap_policy=units, device_id=torch.device("cpu"))


wrapped.__name__ = "sharded"


def holding() -> nn.Module:
    model = Net()
    hold_inputs_of_frozen_units(model)
    return model


def test_every_block_leaves_its_input_and_the_gradient_of_it() -> None:
    micro_batch = 64
    real = replicas.peaks(replicas.train(Net, micro_batch, wrapped))
    del real["optimizer_step"]
    policy = FSDP1(backward_prefetch="none")
    replicas.compare(shard(replicas.profile(holding), policy, REPLICAS), real, micro_batch, 0.01)
    # Seven blocks have left their inputs and the gradients of these when the last begins; without the hooks they are
    # gone by then, and the first block is the highest.
    hidden = micro_batch * replicas.SEQ_LEN * WIDTH * 4
    bare = shard(replicas.profile(Net), policy, REPLICAS)
    for phase, measured in real.items():
        said = max(line.at(micro_batch) for line in bare.phases[phase])
        # One less: the first block holds what the mean's backward made.
        assert round((measured - said) / hidden) == 6
