"""Small real models of libraries, with batches and the losses they compute: what the trace is held against."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Batch = Callable[[int], Any]


def gpt2() -> tuple[nn.Module, Batch]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=101, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    return GPT2LMHeadModel(config), tokens(101, 24)


def llama() -> tuple[nn.Module, Batch]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=101,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config), tokens(101, 24)


def bert() -> tuple[nn.Module, Batch]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=101, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )

    def batch(b: int) -> dict[str, torch.Tensor]:
        # The last sample is shorter, so the mask is a real one.
        mask = torch.ones(b, 20, dtype=torch.long)
        mask[-1, 12:] = 0
        ids = torch.ones(b, 20, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.zeros(b, dtype=torch.long)}

    return BertForSequenceClassification(config), batch


def vit() -> tuple[nn.Module, Batch]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return ViTForImageClassification(config), images(32)


def resnet() -> tuple[nn.Module, Batch]:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2])
    return ResNetForImageClassification(config), images(32)


def lora() -> tuple[nn.Module, Batch]:
    from peft import LoraConfig, get_peft_model

    model, batch = llama()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted: nn.Module = get_peft_model(
            model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
        )
    return adapted, batch


def text(b: int, s: int) -> dict[str, torch.Tensor]:
    """A batch of samples of s tokens, with labels."""
    ids = torch.ones(b, s, dtype=torch.long)
    return {"input_ids": ids, "labels": ids.clone()}


def tokens(vocabulary: int, length: int) -> Batch:
    """Batches of token ids that are their own labels."""

    def batch(b: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(b * length).reshape(b, length) % vocabulary
        return {"input_ids": ids, "labels": ids.clone()}

    return batch


def images(size: int) -> Batch:
    """Batches of square images in three colours, all of class 0."""
    return lambda b: {
        "pixel_values": torch.zeros(b, 3, size, size),
        "labels": torch.zeros(b, dtype=torch.long),
    }


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert, "vit": vit, "resnet": resnet, "lora": lora}
