"""Few of the blocks that repeat tell of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from batchfit.profile import MemoryProfile  # noqa: E402
from batchfit.trace import reserved, trace  # noqa: E402
from batchfit.trace.allocator import replay  # noqa: E402
from batchfit.trace.blocks import Run, runs_of  # noqa: E402
from batchfit.trace.fold import Growth, Repeat, fold, growth, unfolded  # noqa: E402
from batchfit.trace.job import prepare  # noqa: E402
from batchfit.trace.lengths import Lengths  # noqa: E402
from batchfit.trace.settings import Settings  # noqa: E402
from batchfit.trace.study import study  # noqa: E402
from batchfit.trace.timeline import ALLOC, FREE, MARK, Event, Mark, Timeline  # noqa: E402

pytestmark = pytest.mark.torch

TOKENS = 32
DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODER = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


def text(b: int) -> dict[str, Any]:
    ids = torch.ones(b, TOKENS, dtype=torch.long)
    return {"input_ids": ids, "labels": ids.clone()}


def image(b: int) -> dict[str, Any]:
    return {"pixel_values": torch.zeros(b, 3, 32, 32), "labels": torch.zeros(b, dtype=torch.long)}


def make(name: str) -> tuple[nn.Module, Callable[[int], dict[str, Any]]]:
    t = transformers
    makers: dict[str, Callable[[], nn.Module]] = {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**DECODER, num_hidden_layers=9)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**DECODER, num_hidden_layers=8)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(
                n_layer=8, n_embd=32, n_head=4, vocab_size=96, n_positions=64, bos_token_id=1, eos_token_id=2
            )
        ),
        # Full attention in the first layers, a window in the others: two runs in one list.
        "qwen2": lambda: t.Qwen2ForCausalLM(
            t.Qwen2Config(
                **DECODER,
                num_hidden_layers=20,
                use_sliding_window=True,
                max_window_layers=10,
                sliding_window=8,
            )
        ),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**DECODER, num_hidden_layers=7, head_dim=8)),
        # Windows and full attention by turns.
        "gemma2": lambda: t.Gemma2ForCausalLM(
            t.Gemma2Config(**DECODER, num_hidden_layers=15, head_dim=8, sliding_window=8)
        ),
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**ENCODER, num_hidden_layers=8, vocab_size=96)),
        "vit": lambda: t.ViTForImageClassification(
            t.ViTConfig(**ENCODER, num_hidden_layers=8, image_size=32, patch_size=8)
        ),
        # Two stacks of different depth, whose first blocks hold the positions of all.
        "t5": lambda: t.T5ForConditionalGeneration(
            t.T5Config(
                d_model=32,
                d_ff=64,
                num_heads=4,
                d_kv=8,
                num_layers=10,
                num_decoder_layers=12,
                vocab_size=96,
                decoder_start_token_id=0,
                pad_token_id=0,
            )
        ),
    }
    return makers[name](), image if name == "vit" else text


PERIODS = {"gemma2": 2}


def numbers(profile: MemoryProfile) -> dict[str, Any]:
    """What a fold must not change."""
    return {
        "model": profile.model,
        "states": profile.states,
        "compute": profile.compute,
        "peaks": {(b, a): profile.peak(b, a).allocated_bytes for b in (1, 2, 7, 64) for a in (1, 2)},
        "parts": {(b, a): profile.peak(b, a).parts for b in (1, 64) for a in (1, 2)},
        "per sample": profile.activation_per_sample,
        "reserved": profile.reserved,
        "ledger": sorted(
            (e.where, e.kind, e.bytes_per_sample, e.fixed_bytes, e.count) for e in profile.ledger
        ),
    }


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "gpt2", "qwen2", "qwen3", "gemma2", "bert", "vit", "t5"]
)
def test_a_folded_trace_is_the_whole_one(name: str) -> None:
    model, batch = make(name)
    folded, whole = (trace(model, batch, folding=folding) for folding in (True, False))
    assert any("a few were traced" in text for text in folded.assumptions)
    assert not any("traced" in text for text in whole.assumptions)
    assert numbers(folded) == numbers(whole)


def test_with_checkpointing_mixed_precision_and_clipping() -> None:
    model, batch = make("llama")
    folded, whole = (
        numbers(
            trace(
                model, batch, precision="bf16-mixed", checkpointing="full", max_grad_norm=1.0, folding=folding
            )
        )
        for folding in (True, False)
    )
    # Which of storages that are alike dies first is a guess, and may cost a segment of the small pool.
    for mine, real in zip(folded.pop("reserved"), whole.pop("reserved"), strict=True):
        assert abs(mine.reserved_bytes - real.reserved_bytes) <= 2 * 2**20
    assert folded == whole


def test_the_unfolded_timeline_is_the_traced_one_event_by_event() -> None:
    model, batch = make("llama")
    found = study(prepare(model, batch, Settings()), Lengths(), lambda what, done: None)
    base = found.pairs[0].small
    made = unfolded(base, found.fold).timeline([event.nbytes for event in base.events])
    traced = study(prepare(model, batch, Settings()), Lengths(), lambda what, done: None, folding=False)
    whole = traced.pairs[0].small
    assert [(e.kind, e.nbytes, made.categories.get(e.storage)) for e in made.events] == [
        (e.kind, e.nbytes, whole.categories.get(e.storage)) for e in whole.events
    ]
    assert replay(made.events).reserved_peak_bytes == replay(whole.events).reserved_peak_bytes


def test_the_cost_does_not_grow_with_the_depth() -> None:
    config = transformers.LlamaConfig(**DECODER, num_hidden_layers=60)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    found = study(prepare(model, text, Settings()), Lengths(), lambda what, done: None)
    assert max(index for repeat in found.fold.repeats for index in (repeat.stop,)) <= len(
        found.pairs[0].small.events
    )
    assert len(list(found.model.get_submodule("model.layers").children())) <= 3
    assert len(found.pairs[0].small.events) < 5000


def test_what_is_reserved_hardly_depends_on_the_depth_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {**DECODER, "hidden_size": 1024, "intermediate_size": 2816, "vocab_size": 8000}
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**wide, num_hidden_layers=80))
    few = trace(model, text)
    monkeypatch.setattr(reserved, "DEEPEST", 1000)
    for shallow, whole in zip(few.reserved, trace(model, text).reserved, strict=True):
        assert shallow.allocated_bytes == whole.allocated_bytes
        assert shallow.reserved_bytes == pytest.approx(whole.reserved_bytes, rel=0.01)


# ---- Which blocks are alike --------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int, wide: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width * (8 if wide else 4))
        self.outer = nn.Linear(width * (8 if wide else 4), width)

    def forward(self, x: Any) -> Any:
        return x + self.outer(torch.relu(self.inner(x)))


class Tower(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x.mean()


def vectors(b: int) -> tuple[Any]:
    return (torch.zeros(b, 16),)


def test_runs_of_one_kind_of_two_and_of_a_pattern() -> None:
    alike = Tower([Block(16) for _ in range(7)])
    assert runs_of(alike, 4) == [Run("blocks", 0, 1, 7)]
    every_second = Tower([Block(16, wide=i % 2 == 1) for i in range(11)])
    assert runs_of(every_second, 4) == [Run("blocks", 0, 2, 5)]
    two = Tower([Block(16, wide=i > 4) for i in range(10)])
    assert runs_of(two, 4) == [Run("blocks", 0, 1, 5), Run("blocks", 5, 1, 5)]
    assert runs_of(Tower([Block(16 + i) for i in range(8)]), 4) == []


def test_a_pattern_counts_for_more_than_the_blocks_in_it_that_are_alike() -> None:
    one_in_six = Tower([Block(16, wide=i % 6 == 5) for i in range(32)])
    assert runs_of(one_in_six, 5) == [Run("blocks", 0, 6, 5)]


def test_many_short_runs_are_traced_whole() -> None:
    """Each run costs traces of its own: here more than the blocks that it leaves out."""
    model = Several([Tower([Block(16) for _ in range(6)]) for _ in range(4)])
    assert len(runs_of(model, 5)) == 4
    assert trace(model, vectors).assumptions == trace(model, vectors, folding=False).assumptions
    model = Several([Tower([Block(16) for _ in range(30)]) for _ in range(2)])
    assert any("a few were traced" in text for text in trace(model, vectors).assumptions)


class Several(nn.Module):
    """Towers side by side."""

    def __init__(self, towers: list[nn.Module]) -> None:
        super().__init__()
        for number, tower in enumerate(towers):
            self.add_module(f"tower{number}", tower)

    def forward(self, x: Any) -> Any:
        return sum(tower(x) for tower in self.children())


def test_blocks_that_share_weights_are_not_folded() -> None:
    shared = Block(16)
    assert runs_of(Tower([shared] * 8), 4) == []
    tied = [Block(16) for _ in range(8)]
    for block in tied:
        block.inner.weight = tied[0].inner.weight
    assert runs_of(Tower(list(tied)), 4) == []


def test_frozen_blocks_are_unlike_trained_ones() -> None:
    model = Tower([Block(16) for _ in range(12)])
    for block in model.blocks[:6]:
        block.requires_grad_(False)
    assert runs_of(model, 4) == [Run("blocks", 0, 1, 6), Run("blocks", 6, 1, 6)]
    folded, whole = (trace(model, vectors, folding=folding) for folding in (True, False))
    assert numbers(folded) == numbers(whole)


def test_every_second_block_of_another_kind() -> None:
    model = Tower([Block(16, wide=i % 2 == 1) for i in range(12)])
    folded, whole = (trace(model, vectors, folding=folding) for folding in (True, False))
    assert any("a few were traced" in text for text in folded.assumptions)
    assert numbers(folded) == numbers(whole)
    assert [(unit.count, unit.parameters) for unit in folded.model.units if unit.parameters] == [
        (6, 2 * 16 * 64 + 64 + 16),
        (6, 2 * 16 * 128 + 128 + 16),
    ]


class Stacked(Tower):
    """Keeps every block's result until the end, where one operation takes them all: more blocks, more to stack."""

    def forward(self, x: Any) -> Any:
        kept = []
        for block in self.blocks:
            x = block(x)
            kept.append(x)
        return torch.stack(kept).mean()


class Pyramid(Tower):
    """What block i does depends on how many there are."""

    def forward(self, x: Any) -> Any:
        for index, block in enumerate(self.blocks):
            x = block(x.repeat(2, 1) if index == len(self.blocks) - 2 else x)
            if index % len(self.blocks) == 0:
                x = x.exp()
            if len(self.blocks) % 2:
                x = x.sin()
        return x.mean()


def test_an_operation_that_takes_the_results_of_all_blocks_grows_with_them() -> None:
    model = Stacked([Block(16) for _ in range(9)])
    folded, whole = (trace(model, vectors, folding=folding) for folding in (True, False))
    assert numbers(folded) == numbers(whole)


def test_folding_is_refused_and_said_where_a_block_changes_what_others_do() -> None:
    model = Pyramid([Block(16) for _ in range(9)])
    folded, whole = (trace(model, vectors, folding=folding) for folding in (True, False))
    assert any("All of blocks (9 blocks) were traced" in text for text in folded.assumptions)
    assert numbers(folded) == numbers(whole)


def test_the_model_is_left_as_it_was() -> None:
    model, batch = make("qwen2")
    before = str(model), dict(vars(model.config)), [id(p) for p in model.parameters()]
    trace(model, batch)
    assert before == (str(model), dict(vars(model.config)), [id(p) for p in model.parameters()])


# ---- Timelines written by hand -----------------------------------------------------------------------------------


def by_hand(copies: int, total: int = 64) -> Timeline:
    """A block makes 100 bytes in forward and frees them in backward; one operation holds `total` for each block."""
    made = Timeline(marks=[Mark("forward", 0, 0), Mark("backward", 0, 0), Mark("end", 0, -1)], stacks=[()])
    made.events.append(Event(MARK, -1, 0, 0))
    for number in range(copies):
        made.events.append(Event(ALLOC, number, 100, 0))
    made.events.append(Event(ALLOC, copies, total * copies, 0))
    made.events.append(Event(MARK, -1, 0, 1))
    for number in reversed(range(copies)):
        made.events.append(Event(FREE, number, 100, 0))
    made.events.append(Event(MARK, -1, 0, 2))
    made.categories = dict.fromkeys(range(copies + 1), "activations")
    made.modules = {number: f"blocks.{number}" for number in range(copies)} | {copies: "head"}
    return made


def test_growth_and_fold_by_hand() -> None:
    grown = growth(by_hand(2), by_hand(3))
    assert grown is not None
    assert grown.repeats == (Repeat(2, 3, 1), Repeat(6, 7, 1))
    assert grown.stretched == {3: 4}
    whole = fold([(grown, 5)])
    assert whole is not None
    sizes = [event.nbytes for event in by_hand(2).events]
    sizes[3] = 7 * 64
    assert unfolded(by_hand(2), whole).events(sizes) == by_hand(7).events


def test_no_growth_where_the_addition_repeats_nothing() -> None:
    other = by_hand(2)
    other.events.insert(3, Event(ALLOC, 9, 4096, 0))
    other.categories[9] = "activations"
    assert growth(by_hand(2), other) is None


def test_folds_that_overlap_are_refused() -> None:
    grown = growth(by_hand(2), by_hand(3))
    assert grown is not None
    wide = Growth((Repeat(1, 3, 1),), {})
    assert fold([(grown, 2), (wide, 2)]) is None
    twice, once = fold([(grown, 2), (grown, 3)]), fold([(grown, 5)])
    assert twice is not None
    assert once is not None
    assert twice.repeats == once.repeats


def test_fewer_of_each_growth_in_proportion() -> None:
    deep, flat = Growth((Repeat(0, 2, 1), Repeat(8, 9, 6)), {}), Growth((Repeat(4, 6, 1),), {})
    whole = fold([(deep, 10), (flat, 5)])
    assert whole is not None
    assert whole.repeats == (Repeat(0, 2, 10), Repeat(4, 6, 5), Repeat(8, 9, 60))
    # A block's six storages end as often as six began.
    assert whole.at_most(32).repeats == (Repeat(0, 2, 5), Repeat(4, 6, 2), Repeat(8, 9, 30))
    assert whole.at_most(60) is whole
