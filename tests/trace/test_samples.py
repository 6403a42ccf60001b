"""Samples that are not text alone: sound, spectra, images with their texts; and configs that need care."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from batchfit.errors import BadInput
from batchfit.trace import Lora
from batchfit.trace.blocks import runs_of
from batchfit.trace.build import twin
from batchfit.trace.gpu import Gpu
from batchfit.trace.inputs import Inputs, batches_for
from batchfit.trace.run import trace
from batchfit.trace.settings import Settings
from batchfit.trace.sources import open_source
from tests.trace.same import on_cpu, sizes, two_micro_batches, without_data

pytestmark = pytest.mark.torch

LAYERS = 12


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=96,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=24,
        max_target_positions=12,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return transformers.WhisperForConditionalGeneration(config)


def wav2vec2() -> nn.Module:
    config = transformers.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        conv_dim=[16] * 7,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        layerdrop=0.0,
        mask_time_prob=0.0,
        # The CPU's fused attention drops nothing.
        attention_dropout=0.0,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
    )
    return transformers.Wav2Vec2ForCTC(config)


def clip() -> nn.Module:
    text = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    config = transformers.CLIPConfig(
        projection_dim=16,
        text_config={**text, "num_hidden_layers": 2, "max_position_embeddings": 12},
        vision_config={**vision, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
    )
    return transformers.CLIPModel(config)


@pytest.mark.parametrize("make", [whisper, clip])
def test_samples_train_the_model_as_without_data(make: Callable[[], nn.Module]) -> None:
    batch = batches_for(make(), Inputs())(2)
    real = on_cpu(make, batch, two_micro_batches)
    assert sizes(without_data(make, batch, two_micro_batches)) == sizes(real)


def test_sound_and_its_letters_train_the_model() -> None:
    model = wav2vec2().train()
    batch = batches_for(model, Inputs())(2)
    loss = model(**batch).loss
    loss.backward()
    assert torch.isfinite(loss)
    profile = trace(wav2vec2(), batches_for(model, Inputs()))
    assert profile.affinity.affine
    # CTC's forward variables: for each of 499 frames twice the letters and one more, in 32 bits.
    assert profile.activation_per_sample > 499 * (2 * 128 + 1) * 4


def test_what_a_sample_is_made_of() -> None:
    heard = batches_for(whisper(), Inputs())(3)
    assert {name: tuple(t.shape) for name, t in heard.items()} == {
        "input_features": (3, 8, 48),
        "labels": (3, 12),
    }
    seen = batches_for(clip(), Inputs())(3)
    assert seen["input_ids"].shape == (3, 12)
    assert seen["pixel_values"].shape == (3, 3, 32, 32)
    assert batches_for(clip(), Inputs(image=(3, 64, 64)))(1)["pixel_values"].shape == (1, 3, 64, 64)


def test_a_model_without_a_loss_is_named() -> None:
    config = transformers.CLIPTextConfig(vocab_size=8, hidden_size=8, num_attention_heads=2)
    with pytest.raises(BadInput, match="CLIPTextModel is not a model of text, images or sound"):
        batches_for(transformers.CLIPTextModel(config), Inputs())


def test_folding_one_half_of_a_model_leaves_the_other_as_it_is() -> None:
    with torch.device("meta"):
        model: Any = whisper()
    runs = {run.path: run for run in runs_of(model, LAYERS)}
    shallow: Any = twin(model, Gpu().device, {runs["model.encoder.layers"]: 2})
    assert (len(shallow.model.encoder.layers), shallow.config.encoder_layers) == (2, 2)
    assert (len(shallow.model.decoder.layers), shallow.config.decoder_layers) == (LAYERS, LAYERS)


def test_folded_halves_are_the_whole_model() -> None:
    make = batches_for(whisper(), Inputs())
    whole, folded = (trace(whisper(), make, folding=folding) for folding in (False, True))
    assert any("a few were traced" in text for text in folded.assumptions)
    for micro_batch in (1, 2, 16):
        expected = whole.peak(micro_batch, 2).allocated_bytes
        assert folded.peak(micro_batch, 2).allocated_bytes == pytest.approx(expected, rel=0.001)


def test_adapters_on_a_model_that_hears() -> None:
    profile = trace(whisper(), batches_for(whisper(), Inputs()), lora=Lora(4, ("all-linear",)))
    assert 0 < profile.model.trainable_parameters < profile.model.parameters / 2


def test_lists_as_indices_keep_their_numbers() -> None:
    gpu = Gpu()
    with gpu.watched():
        ids = gpu.bring(torch.arange(10).reshape(2, 5))
        assert ids[:, [-1, 0]].tolist() == [[4, 0], [9, 5]]
        assert ids[[1]].tolist() == [[5, 6, 7, 8, 9]]


def test_what_is_filled_is_known() -> None:
    gpu = Gpu()
    with gpu.watched():
        unknown = gpu.bring(torch.zeros(2, 3))
        assert torch.ones_like(unknown, dtype=torch.long).sum(-1).tolist() == [3, 3]
        assert unknown.new_full((2,), 7, dtype=torch.long).tolist() == [7, 7]


@pytest.mark.parametrize(("tied", "times"), [(True, 1), (False, 2)])
def test_a_t5_has_its_output_layer_as_its_config_says(tmp_path: Path, tied: bool, times: int) -> None:
    config = {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": 1000,
        "d_model": 16,
        "d_ff": 32,
        "d_kv": 8,
        "num_layers": 2,
        "num_heads": 2,
        "tie_word_embeddings": tied,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    source: Any = open_source(str(path), Gpu(), Settings(), Inputs())
    of_vocabulary = [p for p in source.training.model.parameters() if 1000 in p.shape]
    assert len(of_vocabulary) == times


UNET = {
    "_class_name": "UNet2DConditionModel",
    "sample_size": 8,
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "block_out_channels": [32, 64],
    "layers_per_block": 1,
    "cross_attention_dim": 16,
    "attention_head_dim": 8,
}


def test_a_diffusion_model_by_its_config(tmp_path: Path) -> None:
    pytest.importorskip("diffusers", reason="the models are those of diffusers")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(UNET))
    kept, recomputed = (trace(str(path), checkpointing=kind) for kind in ("none", "full"))
    assert kept.affinity.affine
    assert recomputed.activation_per_sample < kept.activation_per_sample


def test_a_diffusion_model_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"_class_name": "StableCascadeUNet"}))
    with pytest.raises(BadInput, match=r"'StableCascadeUNet'.*known are UNet2DConditionModel"):
        trace(str(path))
