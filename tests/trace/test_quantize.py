"""Base weights in 4 and 8 bits: their sizes, what a step with them holds, and published QLoRA runs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

from batchfit.errors import BadInput
from batchfit.trace import Settings
from batchfit.trace.adapters import Lora, add_lora
from batchfit.trace.job import prepare
from batchfit.trace.model_units import describe
from batchfit.trace.phases import peaks
from batchfit.trace.protocol import model_loss
from batchfit.trace.quantize import QUANTIZERS, Linear4bit, prepare_for_training, quantize
from batchfit.trace.quantized_linear import QuantizedLinear, unpacked_size
from batchfit.trace.timeline import Timeline
from tests.trace.same import on_cpu, sizes, two_micro_batches, without_data

pytestmark = pytest.mark.torch

GIB = 2**30

TOKENS = torch.zeros(2, 16, dtype=torch.long)
BATCH = {"input_ids": TOKENS, "labels": TOKENS}


def llama(*, tied: bool = False) -> nn.Module:
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=500,
        tie_word_embeddings=tied,
    )
    model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    return model


def storages(layer: nn.Module) -> int:
    return sum(t.untyped_storage().nbytes() for t in (*layer.parameters(), *layer.buffers()))


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        # 4 bits a weight, 4 bytes per 64 of them, a table of 16 float32
        ("nf4", 4096 * 11008 // 2 + 4 * 4096 * 11008 // 64 + 64),
        # 4 bits a weight, 1 byte per 64, 4 per 64 * 256; tables of 16 and 256, an offset
        (
            "nf4-double",
            4096 * 11008 // 2 + 4096 * 11008 // 64 + 4 * 4096 * 11008 // 64 // 256 + 64 + 1024 + 4,
        ),
        # 1 byte a weight, 4 a row
        ("int8", 4096 * 11008 + 4 * 11008),
    ],
)
def test_sizes_are_as_documented(scheme: str, expected: int) -> None:
    layer = nn.Linear(4096, 11008, bias=False, dtype=torch.bfloat16, device="meta")
    assert storages(QUANTIZERS[scheme](layer)) == expected


def test_bitsandbytes_keeps_weights_of_the_same_sizes() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    weight = torch.randn(257, 129, dtype=torch.bfloat16)
    layer = nn.Linear(129, 257, bias=False, dtype=torch.bfloat16)
    for scheme, nested in (("nf4", False), ("nf4-double", True)):
        packed, state = bitsandbytes.functional.quantize_4bit(
            weight, quant_type="nf4", compress_statistics=nested
        )
        theirs = [packed, state.absmax, state.code]
        if nested:
            theirs += [state.state2.absmax, state.state2.code, state.offset]
        assert storages(QUANTIZERS[scheme](layer)) == sum(t.untyped_storage().nbytes() for t in theirs)
    rows, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.half())
    assert storages(QUANTIZERS["int8"](layer)) == rows.nbytes + scales.nbytes


def test_linear_layers_of_a_class_of_their_own_are_quantised() -> None:
    from transformers import FalconConfig

    config = FalconConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    # Falcon's are named after it: attention's two and the two of the layers between, in each block.
    assert len(quantize(model, "nf4")) == 2 * 4
    assert not quantizable(model)


def quantizable(model: nn.Module) -> list[str]:
    return [
        path
        for path, m in model.named_modules()
        if isinstance(m, nn.Linear) and not isinstance(m, QuantizedLinear) and path != "lm_head"
    ]


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_norms_and_output_layer_stay(tied: bool) -> None:
    with torch.device("meta"):
        model = llama(tied=tied)
    replaced = quantize(model, "nf4")
    assert len(replaced) == 2 * 7
    kept = {name for name, p in model.named_parameters() if p.dtype is torch.bfloat16}
    assert {name.split(".")[-2] for name in kept} == {
        "embed_tokens",
        "input_layernorm",
        "post_attention_layernorm",
        "norm",
    } | (set() if tied else {"lm_head"})


def test_transposed_layers_of_gpt2_are_quantised_too() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=100))  # type: ignore[no-untyped-call]
    quantize(model, "nf4")
    layer = model.get_submodule("transformer.h.0.mlp.c_fc")
    assert isinstance(layer, QuantizedLinear)
    assert (layer.in_features, layer.out_features) == (64, 256)


@pytest.mark.parametrize(
    ("scheme", "lora"),
    [
        *((scheme, Lora(4, ("all-linear",), dropout=0.1)) for scheme in QUANTIZERS),
        *((scheme, Lora(4, ("q_proj",), dora=True)) for scheme in ("nf4", "nf4-double", "int8")),
    ],
)
def test_a_step_without_data_allocates_what_one_with_data_does(scheme: str, lora: Lora) -> None:
    def make() -> nn.Module:
        model = llama()
        device = next(model.parameters()).device
        quantize(model, scheme)
        return add_lora(model, lora).to_empty(device=device)

    assert sizes(without_data(make, BATCH, two_micro_batches)) == sizes(
        on_cpu(make, BATCH, two_micro_batches)
    )


def one_layer(scheme: str, rows: int) -> Timeline:
    """A step of a quantised layer of 1024 x 4096 whose input needs a gradient."""

    def make() -> nn.Module:
        return QUANTIZERS[scheme](nn.Linear(1024, 4096, bias=False, dtype=torch.bfloat16))

    def train(layer: nn.Module, batch: Any, tracker: Any) -> None:
        tracker.mark("forward", 0, 0)
        out = layer(batch.requires_grad_())
        tracker.mark("backward", 0, 0)
        out.backward(out.detach())

    return without_data(make, torch.zeros(rows, 1024, dtype=torch.bfloat16), train, "cuda:0")


@pytest.mark.parametrize("scheme", ["nf4", "nf4-double"])
def test_forward_and_backward_hold_a_16_bit_copy_of_the_weight_for_a_while(scheme: str) -> None:
    born = [(e.kind, e.nbytes) for e in one_layer(scheme, 8).events if e.nbytes == 2 * 1024 * 4096]
    assert born == [(1, 8388608), (0, 8388608)] * 2


def test_int8_keeps_its_input_until_the_graph_is_gone() -> None:
    timeline = one_layer("int8", 8)
    birth = next(e for e in timeline.events if e.kind == 1 and e.nbytes == 8 * 4096 * 4)
    assert birth  # the 32-bit product
    with torch.device("meta"):
        layer = QUANTIZERS["int8"](nn.Linear(16, 16, dtype=torch.bfloat16))
    x = torch.zeros(4, 16, dtype=torch.bfloat16, device="meta", requires_grad=True)
    out = layer(x)
    assert out.grad_fn.kept.shape == (4, 16)


def test_kbit_preparation_brings_the_rest_to_float32() -> None:
    with torch.device("meta"):
        model = llama()
    quantize(model, "nf4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers renamed what PEFT calls
        prepare_for_training(model, checkpointing=False)
    assert {p.dtype for p in model.parameters()} == {torch.uint8, torch.float32}
    assert not any(p.requires_grad for p in model.parameters())


def test_quantised_dora_dequantises_the_weight_for_its_norm() -> None:
    with torch.device("meta"):
        model = llama()
    quantize(model, "nf4")
    model = add_lora(model, Lora(4, ("q_proj",), dora=True))
    magnitudes = [p for name, p in model.named_parameters() if "magnitude" in name]
    assert [p.shape for p in magnitudes] == [(128,)] * 2


def test_unknown_scheme_says_which_there_are() -> None:
    with pytest.raises(
        BadInput, match=r"^quantize: must be one of nf4, nf4-double, int8, .*gptq.*; you typed 'int3'$"
    ):
        quantize(llama(), "int3")


def test_model_with_nothing_to_quantise_is_told() -> None:
    with pytest.raises(
        BadInput, match=r"^quantize: needs linear layers besides the output layer; Linear has none$"
    ):
        quantize(nn.Linear(2, 2), "nf4")


def test_quantised_weights_alone_cannot_be_trained() -> None:
    with pytest.raises(BadInput, match=r"^quantize: needs adapters to train \(lora\); you gave 'nf4' alone$"):
        Settings(quantize="nf4")


def test_packed_weights_count_as_the_numbers_they_stand_for() -> None:
    with torch.device("meta"):
        model = llama()
    plain = describe(model, "plain")
    quantize(model, "nf4")
    packed = describe(model, "packed")
    assert packed.parameters == plain.parameters
    assert sum(u.count * u.weights_bytes for u in packed.units) < sum(
        u.count * u.weights_bytes for u in plain.units
    )


def test_packed_weights_hold_two_a_byte_even_where_they_are_odd() -> None:
    assert Linear4bit(nn.Linear(3, 3, bias=False)).weight.numel() == 5


def mistral_7b() -> nn.Module:
    """mistralai/Mistral-7B-v0.1 with the adapters of the published runs, from its published numbers."""
    config = MistralConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=32000,
        sliding_window=None,
    )
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    return model


#: foundation-model-stack's benchmarks on one A100: 4096 tokens a sample, all layers checkpointed, LoRA r=16 with
#: dropout on q, k, v and o; states between steps and the most allocated, in GiB, for batches of 4 and of 8.
PUBLISHED = {None: (13.657, 24.871, 36.082), "nf4-double": (4.011, 15.249, 26.461)}


def loss_of_transformers_4_48(logits: torch.Tensor, labels: torch.Tensor, **others: Any) -> torch.Tensor:
    """Those runs had transformers 4.48: float32 logits, and a copy of them without the last token. The model's forward
    holds the 16-bit logits meanwhile; with these three and the logarithms of softmax, forward is where the peak is."""
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    return functional.cross_entropy(shifted.view(-1, logits.size(-1)), labels[..., 1:].reshape(-1))


@pytest.mark.parametrize("quantized", PUBLISHED)
def test_published_runs_of_mistral_7b(quantized: str | None) -> None:
    states, *published = PUBLISHED[quantized]
    settings = Settings(
        lora=Lora(16, ("q_proj", "k_proj", "v_proj", "o_proj"), alpha=16, dropout=0.1),
        quantize=quantized,
        checkpointing="full",
        max_grad_norm=1.0,
    )

    def make_batch(count: int) -> dict[str, torch.Tensor]:
        tokens = torch.zeros(count, 4096, dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens}

    def loss(model: nn.Module, batch: Any) -> Any:
        # QLoRA ran under autocast over 16-bit weights, LoRA without.
        with torch.autocast("cuda", torch.bfloat16, enabled=quantized is not None):
            return model_loss(model, batch)

    job = prepare(mistral_7b(), make_batch, settings, loss)
    job.model.get_base_model().loss_function = loss_of_transformers_4_48  # type: ignore[operator]
    for batch, expected in zip((4, 8), published, strict=True):
        timeline = job.timeline(batch, (1, 1))
        assert max(peaks(timeline).values()) / GIB == pytest.approx(expected, rel=0.0005)
        *_, (_, between_steps) = timeline.live()
        assert between_steps / GIB == pytest.approx(states, rel=0.0005)


def test_gptq_packs_eight_weights_an_int32() -> None:
    # qweight, qzeros, float16 scales, and each input feature's group: 128 to a group, or all of them in one
    packed, inputs = 4096 * 11008 // 2, 11008
    layer = nn.Linear(inputs, 4096, bias=False, device="meta", dtype=torch.float16)
    groups = inputs // 128
    assert storages(QUANTIZERS["gptq-4bit"](layer)) == packed + groups * 4096 * (0.5 + 2) + 4 * inputs
    whole = QUANTIZERS["gptq-4bit-per-channel"](layer)
    assert storages(whole) == packed + 4096 * (0.5 + 2) + 4 * inputs
    assert unpacked_size(whole.weight) == 4096 * inputs


def test_gptq_leaves_what_it_cannot_pack() -> None:
    """8 outputs make no whole int32s of 32 columns: a router of experts."""
    router, last = nn.Linear(64, 8, bias=False), nn.Linear(64, 64, bias=False)
    assert quantize(nn.Sequential(nn.Linear(64, 64), router, last), "gptq-4bit") == ["0"]


@pytest.mark.parametrize("scheme", ["gptq-4bit", "gptq-4bit-per-channel"])
def test_gptq_products_hold_no_input(scheme: str) -> None:
    """Only the packed weight is needed for backward: what the product saves is nothing."""
    layer = QUANTIZERS[scheme](nn.Linear(256, 512, dtype=torch.float16))
    x = torch.ones(3, 256, dtype=torch.float16, requires_grad=True)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        out = layer(x)
    assert out.shape == (3, 512)
    assert not saved
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_adapters_over_gptq_are_pefts_own() -> None:
    model = llama()
    model.half()
    quantize(model, "gptq-4bit")
    adapted = add_lora(model, Lora(rank=4, targets=("q_proj",)))
    layer = adapted.base_model.model.model.layers[0].self_attn.q_proj  # type: ignore[union-attr,index]
    assert type(layer).__module__ == "peft.tuners.lora.gptq"
    assert layer.lora_A["default"].weight.dtype is torch.float32


def test_magnitudes_over_gptq_are_refused() -> None:
    model = llama()
    quantize(model, "gptq-4bit")
    with pytest.raises(BadInput, match="dora: is not to be had over gptq-4bit"):
        add_lora(model, Lora(4, ("q_proj",), dora=True))


def test_a_published_gptq_run() -> None:
    """Llama-2-70B in 4 bits (TheBloke's, one group a column), rank 16 on attention, fp16, full checkpointing, on one
    A100: states of 33.642 GiB are published (fms-acceleration, scripts/benchmarks/refs/a100_80gb.csv)."""
    config = LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=4096,
    )
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.float16)  # type: ignore[no-untyped-call]
        quantize(model, "gptq-4bit-per-channel")
        adapted = add_lora(model, Lora(rank=16, targets=("q_proj", "k_proj", "v_proj", "o_proj")))
    trained = sum(p.numel() * 4 for p in adapted.parameters() if p.requires_grad)
    assert storages(adapted) + 2 * trained == pytest.approx(33.642 * GIB, rel=1e-3)
