"""The ledger names the lines that hold activation memory, and sums up to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from batchfit.levers import lever  # noqa: E402
from batchfit.profile import LedgerEntry, MemoryProfile  # noqa: E402
from batchfit.trace import trace  # noqa: E402

pytestmark = pytest.mark.torch

HERE = Path(__file__)
BATCH, TOKENS, WIDTH = "batch", 16, 32


class Net(nn.Module):
    """Two convolutions; what each line keeps for backward is known."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 4, 3, padding=1)
        self.head = nn.Linear(4, 10)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = torch.sigmoid(x)  # keeps its result
        x = self.second(x).mean((2, 3))
        return self.head(x)


def images(b: int) -> tuple[Any, Any]:
    return torch.zeros(b, 3, 16, 16), torch.zeros(b, dtype=torch.long)


def loss(model: nn.Module, batch: Any) -> Any:
    return F.cross_entropy(model(batch[0]), batch[1])


def line_of(text: str) -> str:
    """File and line of the first line of this file that has this text."""
    lines = HERE.read_text("utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if text in line)
    return f"{HERE}:{number}"


def entries(profile: MemoryProfile) -> dict[str, LedgerEntry]:
    return {entry.where: entry for entry in profile.ledger if entry.kind != "in backward"}


def llama(layers: int = 6, **config: Any) -> nn.Module:
    return transformers.LlamaForCausalLM(  # type: ignore[no-any-return]
        transformers.LlamaConfig(
            hidden_size=WIDTH, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
            num_hidden_layers=layers, vocab_size=2000, use_cache=False, bos_token_id=1, eos_token_id=2, **config
        )
    )  # fmt: skip


def text(b: int) -> dict[str, Any]:
    ids = torch.ones(b, TOKENS, dtype=torch.long)
    return {"input_ids": ids, "labels": ids.clone()}


def test_lines_of_a_persons_own_network() -> None:
    profile = trace(Net(), images, loss=loss, precision="fp32")
    found = entries(profile)
    kept = found[line_of("keeps its result")]
    assert kept.code == "x = torch.sigmoid(x)  # keeps its result"
    assert kept.bytes_per_sample == 8 * 16 * 16 * 4
    inputs = next(entry for entry in profile.ledger if entry.kind == "inputs")
    assert inputs.bytes_per_sample == 3 * 16 * 16 * 4 + 8
    assert sum(entry.bytes_per_sample for entry in profile.ledger) == profile.activation_per_sample


@pytest.mark.parametrize(
    "settings",
    [{}, {"checkpointing": "full"}, {"attention": "eager"}, {"precision": "bf16-mixed"}],
    ids=["plain", "checkpointing", "eager", "mixed"],
)
def test_it_sums_up_to_activation_memory_and_knows_no_parameters(settings: dict[str, Any]) -> None:
    model = llama()
    profile = trace(model, text, **settings)
    assert sum(entry.bytes_per_sample for entry in profile.ledger) == profile.activation_per_sample > 0
    # Of what does not grow with the batch only what activations are: no weight, gradient or state is in it.
    weights = sum(p.numel() for p in model.parameters()) * 2
    assert sum(entry.fixed_bytes for entry in profile.ledger) < weights / 10


def test_blocks_are_told_once_with_their_number() -> None:
    profile = trace(llama(layers=7), text)
    mlp = next(entry for entry in profile.ledger if entry.kind == "MLP")
    assert mlp.count == 7
    assert mlp.module == "model.layers.*.mlp"
    assert Path(mlp.where.rpartition(":")[0]).name == "modeling_llama.py"
    # Seven times the blocks of one model are seven times the bytes.
    smaller = trace(llama(layers=5), text)
    same = next(entry for entry in smaller.ledger if entry.where == mlp.where)
    assert same.bytes_per_sample * 7 == mlp.bytes_per_sample * 5


def test_a_storage_that_many_share_counts_once() -> None:
    class Sharing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            x = torch.sigmoid(self.layer(x))  # kept by three
            return (x * 2 + x.view(-1).sum() + x.t().sum()).sum()

    profile = trace(Sharing(), lambda b: (torch.zeros(b, WIDTH),), precision="fp32")
    assert entries(profile)[line_of("# kept by three")].bytes_per_sample == WIDTH * 4


def test_lines_are_of_the_models_own_code() -> None:
    files = {
        Path(entry.where.rpartition(":")[0]).name for entry in trace(llama(), text).ledger if entry.where
    }
    assert files <= {"modeling_llama.py"}


def test_attention_that_is_written_out_is_told_with_its_lever() -> None:
    profile = trace(llama(), text, attention="eager")
    attention = [entry for entry in profile.ledger if entry.kind == "attention"]
    assert {lever(entry, profile.settings) for entry in attention} == {
        "--attention flash: scores are never kept"
    }


def entry(kind: str, code: str = "x = f(x)", module: str = "layers.*.part") -> LedgerEntry:
    return LedgerEntry("model.py:1", code, module, kind, 1, 0, 1)


@pytest.mark.parametrize(
    ("given", "settings", "says"),
    [
        (entry("logits and loss", "logits = self.lm_head(x)"), {"loss": "full"}, "--loss fused"),
        (entry("logits and loss", "logits = self.lm_head(x)"), {"loss": "fused"}, None),
        (entry("in backward", "loss = f(logits=logits)", ""), {"loss": "full"}, "--loss fused"),
        (entry("logits and loss", "return F.cross_entropy(model(x), y)", ""), {"loss": "full"}, None),
        (entry("norm", "x = x.to(torch.float32)"), {"checkpointing": "none"}, "a fused norm"),
        (entry("MLP"), {"checkpointing": "none"}, "--checkpointing full"),
        (entry("MLP"), {"checkpointing": "full"}, None),
        (entry("MLP", module="head"), {"checkpointing": "none"}, None),
        (entry("attention", "k, v = cache.update(k, v)"), {"checkpointing": "none"}, "config.use_cache"),
        (entry("attention"), {"attention": "eager", "checkpointing": "full"}, "--attention flash"),
        (entry("inputs", ""), {"checkpointing": "none", "loss": "full"}, None),
    ],
)
def test_levers(given: LedgerEntry, settings: dict[str, Any], says: str | None) -> None:
    advice = lever(given, settings)
    assert advice is None if says is None else advice is not None and advice.startswith(says)
