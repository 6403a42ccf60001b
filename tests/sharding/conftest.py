"""Four replicas without a network, for the tests against real sharded models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

REPLICAS = 4


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    """Four replicas of which this process is the first; collectives do nothing."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=REPLICAS)
        yield init_device_mesh("cpu", (REPLICAS,))
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for one another cost more than these small models do."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
