"""Presets: true shapes of models and figures of cards, checked against what else is known of them."""

import pytest

from batchfit.decoder import shape_of
from batchfit.errors import BadInput
from batchfit.gpus import find_gpu
from batchfit.models import find_model
from batchfit.presets import Entry, cards, models
from batchfit.units import parse_bytes

FIGURES = (
    "layers",
    "hidden_size",
    "query_dim",
    "key_value_dim",
    "intermediate_size",
    "vocabulary",
    "parameters",
)
MODELS = models(where=None, **{name: name for name in FIGURES}).usable()
#: Their parameters include a vision tower, which is no part of the decoder's shape.
WITH_VISION = ("gemma-3-4b", "gemma-3-12b", "gemma-3-27b")


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_a_shape_makes_the_published_number_of_parameters(entry: Entry) -> None:
    """Every matrix, with one embedding where it is tied and two where it is not. What is left are vectors: norms and
    biases, and learned positions in GPT-2."""
    shape = {name: int(entry.values[name]) for name in FIGURES}
    mlp = (3 if entry.values["gated"] == "yes" else 2) * shape["intermediate_size"]
    attention = 2 * shape["query_dim"] + 2 * shape["key_value_dim"]
    layers = shape["layers"] * shape["hidden_size"] * (mlp + attention)
    embedding = shape["vocabulary"] * shape["hidden_size"]
    missing = [shape["parameters"] - layers - count * embedding for count in (1, 2)]
    if entry.name in WITH_VISION:
        assert missing[0] > 0
    else:
        assert any(0 <= left < 0.0075 * shape["parameters"] for left in missing), missing


def test_grouped_queries_and_gated_mlps_are_as_published() -> None:
    model = find_model("llama-3.1-8b")
    assert model
    shape = shape_of(model)
    assert shape
    assert (shape.query_dim, shape.key_value_dim, shape.gated, shape.separate) == (4096, 1024, True, True)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "bert-base", "resnet-50"])
def test_what_is_no_decoder_of_equal_layers_has_no_shape(name: str) -> None:
    model = find_model(name)
    assert model
    assert shape_of(model) is None


def test_an_entry_is_found_by_name_and_alias_and_else_a_near_one_is_named() -> None:
    preset = models(layers="layers")
    assert preset.texts(preset.find("META-LLAMA/Llama-3.1-8B")) == {"layers": "32"}
    with pytest.raises(BadInput, match="such as .*llama-3.1-8b.*; you typed llama-3.1-9b"):
        preset.find("llama-3.1-9b")


def test_only_entries_as_wanted_are_offered() -> None:
    separate = models(where={"separate": "yes"}, layers="layers")
    names = {entry.name for entry in separate.usable()}
    assert "llama-3.1-8b" in names
    assert "phi-4" not in names
    assert "phi-4" in {entry.name for entry in models(layers="layers").usable()}


def test_a_card_fills_in_its_published_figures() -> None:
    preset = cards(peak="peak_16bit", memory="memory", bandwidth="bandwidth")
    texts = preset.texts(preset.find("h100-80gb"))
    gpu = find_gpu("h100-80gb")
    assert gpu.peak_16bit
    assert float(texts["peak"]) * 1e12 == gpu.peak_16bit
    assert parse_bytes(texts["memory"]) == gpu.memory_bytes
    assert int(texts["bandwidth"]) * 10**9 == gpu.bandwidth
    assert all("memory" in entry.values for entry in preset.usable())
