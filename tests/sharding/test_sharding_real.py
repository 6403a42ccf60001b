"""What the arithmetic says of a replica against real FSDP2 and DDP models, traced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchfit.sharding import DDP, FSDP, shard

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.distributed.fsdp import MixedPrecisionPolicy  # noqa: E402

from tests.sharding import replicas  # noqa: E402
from tests.sharding.conftest import REPLICAS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("name", replicas.MODELS)
def test_fsdp(mesh: Any, name: str) -> None:
    build = replicas.MODELS[name]
    alone = replicas.profile(build)
    for micro_batch in (2, 8):
        timeline = replicas.train(build, micro_batch, replicas.fsdp(mesh))
        replicas.compare(shard(alone, FSDP(), REPLICAS), replicas.peaks(timeline), micro_batch)


@pytest.mark.parametrize("name", ["llama", "deep"])
def test_fsdp_that_keeps_blocks_gathered(mesh: Any, name: str) -> None:
    build = replicas.MODELS[name]
    predicted = shard(replicas.profile(build), FSDP(reshard_after_forward=False), REPLICAS)
    timeline = replicas.train(build, 4, replicas.fsdp(mesh, reshard_after_forward=False))
    replicas.compare(predicted, replicas.peaks(timeline), 4)


@pytest.mark.parametrize("name", ["llama", "deep"])
def test_fsdp_without_gradient_sync_keeps_whole_gradients(mesh: Any, name: str) -> None:
    build = replicas.MODELS[name]
    predicted = shard(replicas.profile(build), FSDP(gradient_sync=False), REPLICAS)
    real = replicas.peaks(replicas.train(build, 4, replicas.fsdp(mesh), replicas.last_only))
    # The prediction of the first micro-batch is for a step of one, which is reduced; here it is not.
    del real["first_micro"]
    replicas.compare(predicted, real, 4)


def test_fsdp_in_mixed_precision(mesh: Any) -> None:
    """Shards, reduction and optimizer in fp32, everything gathered and computed in bf16."""
    alone = replicas.profile(lambda: replicas.deep_llama().to(torch.bfloat16), precision="bf16")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    real = replicas.peaks(replicas.train(replicas.deep_llama, 4, replicas.fsdp(mesh, mp_policy=policy)))
    replicas.compare(
        shard(alone, FSDP(sharded_dtype="fp32", reduce_dtype="fp32"), REPLICAS), real, 4, within=0.01
    )


@pytest.fixture(scope="module")
def ddp_peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Peaks of one of two real processes over gloo, for "gradient_as_bucket_view gradient_sync"."""
    meeting = tmp_path_factory.mktemp("ddp") / "meeting"
    root = Path(__file__).parents[2]
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        "OMP_NUM_THREADS": "1",
    }
    commands = [
        [sys.executable, "-m", "tests.sharding.replicas", str(rank), str(meeting), "deep", "4"]
        for rank in (1, 0)
    ]
    other = subprocess.Popen(commands[0], cwd=root, env=environ, stdout=subprocess.DEVNULL)
    try:
        done = subprocess.run(commands[1], cwd=root, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        peaks: dict[str, dict[str, int]] = json.loads(done.stdout)
        return peaks
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(("view", "sync"), [(False, True), (False, False), (True, True), (True, False)])
def test_ddp(ddp_peaks: dict[str, dict[str, int]], view: bool, sync: bool) -> None:
    alone = replicas.profile(replicas.deep_llama)
    real = ddp_peaks[f"{view} {sync}"]
    if view and not sync:
        del real["first_micro"]
    exact = not view or sync
    replicas.compare(shard(alone, DDP(view, sync), 2), real, 4, within=1e-4 if exact else 0.01)
