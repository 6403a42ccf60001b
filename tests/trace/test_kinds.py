"""Activations are told apart by the kind of layer that made them, whatever a model calls its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from batchfit.palette import KINDS  # noqa: E402
from batchfit.profile import MemoryProfile  # noqa: E402
from batchfit.trace import Lora, trace  # noqa: E402
from batchfit.trace.gpu import Gpu  # noqa: E402
from batchfit.trace.job import prepare  # noqa: E402
from batchfit.trace.kinds import Kinds  # noqa: E402
from batchfit.trace.settings import Settings  # noqa: E402
from tests.trace import models  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, TOKENS, WORDS = 32, 16, 50


def _written_out(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v


class Heads(nn.Module):
    """Attention without a telling name: the scores written out, or in one function."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.inward = nn.Linear(WIDTH, 3 * WIDTH)
        self.outward = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        q, k, v = self.inward(x).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        attend = F.scaled_dot_product_attention if self.fused else _written_out
        out = attend(q, k, v)
        return self.outward(out.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    """A block whose parts have names that say nothing. Its sums are the residual stream."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.a, self.b = nn.LayerNorm(WIDTH), Heads(fused)
        self.c, self.d = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU())
        self.e, self.f = nn.Linear(64, WIDTH), nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        x = x + self.b(self.a(x))
        return x + self.f(self.e(self.d(self.c(x))))


class Unnamed(nn.Module):
    """A language model of such blocks."""

    def __init__(self, fused: bool = True, layers: int = 3) -> None:
        super().__init__()
        self.u = nn.Embedding(WORDS, WIDTH)
        self.v = nn.Dropout(0.1)
        self.w = nn.ModuleList(Layer(fused) for _ in range(layers))
        self.x, self.y = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Any) -> Any:
        x = self.v(self.u(ids))
        for layer in self.w:
            x = layer(x)
        return self.y(self.x(x))


class Preceded(nn.Module):
    """A norm and whatever comes behind it, as some transformers wrap both."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), inner

    def forward(self, x: Any) -> Any:
        return x + self.inner(self.norm(x))


class PreNorm(Preceded):
    """The same, called a norm."""


class Paired(nn.Module):
    """Blocks that are lists of an attention and a feed-forward network."""

    def __init__(self, wrapped: type[nn.Module] = Preceded) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    wrapped(Heads(fused=True)),
                    wrapped(nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))),
                ]
            )
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Any) -> Any:
        for pair in self.layers.children():
            for part in pair.children():
                x = part(x)
        return self.head(x)


class Inline(nn.Module):
    """A block that attends itself: which of its linear layers are attention's, nothing tells."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        q = self.one(self.norm(x)).unsqueeze(1)
        return x + self.two(F.scaled_dot_product_attention(q, q, q).squeeze(1))


class Convolutional(nn.Module):
    """Convolutions, norms and activation functions in blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(2)
        )
        self.head = nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Functional(nn.Module):
    """A block whose own code calls functions without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return x + self.two(torch.sigmoid(self.one(x)))


def words(b: int) -> tuple[Any, Any]:
    return torch.zeros(b, TOKENS, dtype=torch.long), torch.zeros(b, TOKENS, dtype=torch.long)


def vectors(b: int) -> tuple[Any, Any]:
    return torch.zeros(b, TOKENS, WIDTH), torch.zeros(b, TOKENS, dtype=torch.long)


def images(b: int) -> tuple[Any, Any]:
    return torch.zeros(b, 3, 32, 32), torch.zeros(b, dtype=torch.long)


def loss(model: nn.Module, batch: Any) -> Any:
    out = model(batch[0])
    return F.cross_entropy(out.flatten(0, -2), batch[1].flatten())


def kinds_of(model: nn.Module, batch: Callable[[int], Any], own_loss: Any = loss) -> dict[str, set[str]]:
    """The kinds of what each module makes, "" for what is made outside of any."""
    job = prepare(model, batch, Settings(precision="fp32"), own_loss, Gpu())
    timeline = job.timeline(2)
    kinds = Kinds(job.model, timeline)
    found: dict[str, set[str]] = {}
    for storage, category in timeline.categories.items():
        if category == "activations":
            found.setdefault(timeline.modules.get(storage, ""), set()).add(kinds.of(storage))
    return found


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written out"])
def test_layers_are_told_by_what_they_do(fused: bool) -> None:
    found = kinds_of(Unnamed(fused), words)
    assert found == {
        "u": {"embedding"},
        "v": {"embedding"},
        **{
            f"w.{n}{part}": {kind}
            for n in range(3)
            for part, kind in {
                "": "residual stream",
                ".a": "norm",
                ".b": "attention",
                ".b.inward": "attention",
                ".b.outward": "attention",
                ".c": "norm",
                ".d.0": "MLP",
                ".d.1": "MLP",
                ".e": "MLP",
                ".f": "MLP",
            }.items()
        },
        "x": {"norm"},
        "y": {"logits and loss"},
        "": {"logits and loss"},
    }


@pytest.mark.parametrize("wrapped", [Preceded, PreNorm])
def test_blocks_that_are_lists(wrapped: type[nn.Module]) -> None:
    found = kinds_of(Paired(wrapped), vectors)
    assert found["layers.1.0.inner.inward"] == {"attention"}
    assert found["layers.1.0.norm"] == {"norm"}
    assert found["layers.1.1.inner.1"] == {"MLP"}
    assert found["head"] == {"logits and loss"}


def test_what_nothing_tells_is_other() -> None:
    model = nn.Sequential(Inline(), Inline(), nn.Linear(WIDTH, WORDS))
    found = kinds_of(model, vectors)
    assert found["0"] == found["0.one"] == found["0.two"] == {"other"}
    assert found["0.norm"] == {"norm"}


def test_convolutions_with_their_activation_functions() -> None:
    found = kinds_of(Convolutional(), images, lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))
    assert found["stem"] == found["blocks.1.0"] == found["blocks.1.2"] == {"convolution"}
    assert found["blocks.1.1"] == {"norm"}
    assert found["head"] == {"logits and loss"}


def test_functions_that_a_block_calls_are_told_from_its_sums() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), Functional(), Functional(), nn.Flatten(), nn.Linear(8192, 10))
    found = kinds_of(model, images, lambda net, batch: F.cross_entropy(net(batch[0]), batch[1]))
    assert found["1"] == found["2"] == {"convolution", "residual stream"}
    profile = trace(model, images, loss=lambda net, batch: F.cross_entropy(net(batch[0]), batch[1]))
    kinds = profile.peak(64).activations
    # Each block keeps its input, which is a sum but for the first, and the sigmoid's result.
    assert kinds["convolution"] > kinds["residual stream"] > 0


@pytest.mark.parametrize("make", [models.gpt2, models.llama, models.bert, models.vit])
def test_models_of_a_library(make: Callable[[], tuple[nn.Module, Any]]) -> None:
    model, batch = make()
    found = kinds_of(model, batch, lambda net, inputs: net(**inputs).loss)
    for path, kinds in found.items():
        names = path.lower()
        if "ln_" in names or "norm" in names:
            assert kinds == {"norm"}, path
        elif "attn" in names or "attention" in names:
            assert kinds == {"attention"}, path
        elif "mlp" in names or "intermediate" in names:
            assert kinds == {"MLP"}, path
        elif "head" in names or "classifier" in names:
            assert kinds == {"logits and loss"}, path
        else:
            assert kinds <= {"embedding", "residual stream", "logits and loss", "other", "MLP"}, path
    told = set().union(*found.values())
    assert {"attention", "MLP", "norm", "embedding", "logits and loss"} <= told <= set(KINDS)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"checkpointing": "full"},
        {"precision": "bf16-mixed"},
        {"attention": "eager"},
        {"lora": Lora(4)},
        {"seq_len": (8, 24)},
    ],
    ids=lambda settings: "-".join(settings) or "plain",
)
def test_kinds_sum_to_the_activations_of_every_line(settings: dict[str, Any]) -> None:
    model, _ = models.llama()

    def text(b: int, s: int = 16) -> Any:
        ids = torch.ones(b, s, dtype=torch.long)
        return {"input_ids": ids, "labels": ids.clone()}

    profile: MemoryProfile = trace(model, text, **settings)
    lengths = (8, 17, 24) if "seq_len" in settings else (None,)
    for line in (line for lines in profile.phases.values() for line in lines):
        for length in lengths:
            for micro_batch in (1, 3, 64):
                parts, kinds = line.parts_at(micro_batch, length), line.activations_at(micro_batch, length)
                assert sum(kinds.values()) == parts.get("activations", 0)
                assert all(nbytes > 0 for nbytes in kinds.values())
    assert MemoryProfile.from_json(profile.to_json()).phases == profile.phases


@pytest.mark.parametrize("compiled", ["block", "whole"])
def test_graphs_that_are_compiled_are_not_told_apart(compiled: str) -> None:
    model, batch = models.llama()
    profile = trace(model, batch, compile=compiled)
    assert all(not line.activations for lines in profile.phases.values() for line in lines)
    assert {entry.kind for entry in profile.ledger} <= {
        "in backward",
        "inputs",
        "embedding",
        "logits and loss",
        "norm",
        "other",
    }


def test_checkpointed_blocks_leave_the_residual_stream() -> None:
    model, batch = models.llama()
    kept = trace(model, batch, checkpointing="full").peak(8, 2).activations
    whole = trace(model, batch).peak(8, 2).activations
    assert kept["residual stream"] > whole.get("residual stream", 0)
    assert kept.get("MLP", 0) < whole["MLP"]
