"""The FSDP2 script runs on two processes, and its accumulated step is the step of the whole batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from batchfit import frameworks
from batchfit.settings import TrainingSettings

pytestmark = pytest.mark.torch

#: Takes one step of SGD at rate 1 by the script, and one by plain PyTorch on all samples of both replicas.
#: The labels of some tokens are ignored, in another number in each micro-batch.
COMPARE = """
import copy
import sys

import fsdp2_train as script
import torch
import torch.distributed as dist
import torch.nn.functional as F

script.REDUCE_EVERY_MICRO_BATCH = sys.argv[1] == "every"
dist.init_process_group("gloo")
torch.manual_seed(0)
whole, vocabulary = script.load_model()
sharded = script.shard(copy.deepcopy(whole))
tokens = torch.randint(vocabulary, (2, script.ACCUMULATION_STEPS, script.MICRO_BATCH, script.SEQ_LEN + 1))
labels = tokens[..., 1:].clone()
for replica in range(2):
    for step in range(script.ACCUMULATION_STEPS):
        labels[replica, step, :, 1 + 3 * step + 5 * replica :] = script.IGNORED
mine = dist.get_rank()
window = [(tokens[mine, step, :, :-1], labels[mine, step]) for step in range(script.ACCUMULATION_STEPS)]
loss = script.train_step(sharded, torch.optim.SGD(sharded.parameters(), lr=1.0), window)

logits = whole(tokens[..., :-1].flatten(0, 2)).flatten(0, 1)
expected = F.cross_entropy(logits, labels.flatten(), ignore_index=script.IGNORED)
expected.backward()
torch.optim.SGD(whole.parameters(), lr=1.0).step()
assert abs(loss - expected.item()) < 1e-5, (loss, expected.item())
trained = {name.replace("_checkpoint_wrapped_module.", ""): p for name, p in sharded.named_parameters()}
for name, parameter in whole.named_parameters():
    torch.testing.assert_close(trained[name].full_tensor(), parameter, rtol=1e-5, atol=1e-6)
dist.barrier()
print("equal")
dist.destroy_process_group()
"""


def torchrun(folder: Path, *command: str) -> str:
    """The output of two processes on the CPU."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = subprocess.run([*launcher, *command], cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def written(folder: Path, **said: str) -> TrainingSettings:
    settings = TrainingSettings(micro_batch=2, accumulation_steps=3, replicas=2, seq_len=32, **said)  # type: ignore[arg-type]
    (folder / "fsdp2_train.py").write_text(frameworks.emit("fsdp2", settings).text)
    return settings


@pytest.mark.parametrize(
    ("checkpointing", "when"), [("none", "every"), ("full", "last"), ("selective", "every")]
)
def test_the_accumulated_step_is_the_whole_batchs(tmp_path: Path, checkpointing: str, when: str) -> None:
    """Whether gradients are reduced after every micro-batch or after the last one."""
    written(tmp_path, precision="fp32", checkpointing=checkpointing, sharding="fsdp")
    (tmp_path / "compare.py").write_text(COMPARE)
    assert torchrun(tmp_path, "compare.py", when).count("equal") == 2


@pytest.mark.parametrize(
    ("precision", "optimizer", "sharding"),
    [
        ("bf16-mixed", "adamw-fused", "fsdp"),
        ("bf16", "momentum", "zero2"),
        ("fp16-mixed", "adam", "zero3"),
    ],
)
def test_the_script_trains_as_it_is(tmp_path: Path, precision: str, optimizer: str, sharding: str) -> None:
    written(tmp_path, precision=precision, optimizer=optimizer, checkpointing="full", sharding=sharding)
    lines = torchrun(tmp_path, "fsdp2_train.py").splitlines()
    losses = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("step ")]
    assert len(losses) == 3
    assert all(5 < loss < 9 for loss in losses)  # about the logarithm of the stand-in's 1000 words


def test_a_named_model_is_loaded_sharded_and_adapted(tmp_path: Path) -> None:
    """A real architecture, in a small size, from a folder; with adapters and blocks recomputed."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("peft")
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    settings = TrainingSettings(
        micro_batch=2,
        accumulation_steps=2,
        replicas=2,
        seq_len=16,
        precision="bf16",
        optimizer="adamw",
        checkpointing="full",
        attention="sdpa",
        sharding="fsdp",
        lora_rank=4,
        lora_targets=("q_proj", "v_proj"),
        model="model",
    )
    (tmp_path / "fsdp2_train.py").write_text(frameworks.emit("fsdp2", settings).text)
    assert torchrun(tmp_path, "fsdp2_train.py").count("step ") == 3
