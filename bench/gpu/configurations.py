"""What is trained: small to large models of transformers, and the settings of their steps, in the words of a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from batchfit.trace import Lora, Training


@dataclass(frozen=True, slots=True)
class Configuration:
    """One run. `model` is a name of MODELS, the rest as `batchfit.trace` takes it."""

    name: str
    model: str
    micro_batch: int
    accumulation_steps: int = 1
    precision: str = "bf16"
    optimizer: str = "adamw"
    checkpointing: str = "none"
    attention: str = "sdpa"
    lora: int | None = None

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of `batchfit.trace`."""
        asked = asdict(self)
        for name in ("name", "model", "micro_batch", "accumulation_steps", "lora"):
            del asked[name]
        lora = None if self.lora is None else Lora(self.lora, ("q_proj", "v_proj"))
        return {**asked, "lora": lora, "micro_batches": (self.micro_batch,), "name": self.name}


def _decoder(hidden: int, layers: int, tokens: int, vocabulary: int = 32000) -> Training:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
        num_key_value_heads=hidden // 256,
        vocab_size=vocabulary,
        use_cache=False,
    )
    return Training(LlamaForCausalLM(config), _texts(tokens))


def _bert() -> Training:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    return Training(BertForSequenceClassification(config), _texts(512, "sample"))


def _vit() -> Training:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        num_labels=1000,  # type: ignore[call-arg]
    )
    return Training(ViTForImageClassification(config), _images)


def _resnet() -> Training:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(num_labels=1000)  # type: ignore[call-arg]
    return Training(ResNetForImageClassification(config), _images)


def _texts(tokens: int, labels: str = "token") -> Callable[[int], dict[str, Any]]:
    import torch

    def batch(count: int) -> dict[str, Any]:
        ids = torch.ones(count, tokens, dtype=torch.long)
        return {
            "input_ids": ids,
            "labels": ids.clone() if labels == "token" else torch.zeros(count, dtype=torch.long),
        }

    return batch


def _images(count: int) -> dict[str, Any]:
    import torch

    return {
        "pixel_values": torch.zeros(count, 3, 224, 224),
        "labels": torch.zeros(count, dtype=torch.long),
    }


MODELS: dict[str, Callable[[], Training]] = {
    "decoder-200m": lambda: _decoder(1024, 12, 1024),
    "decoder-1b": lambda: _decoder(2048, 22, 2048),
    "decoder-3b": lambda: _decoder(3072, 28, 2048),
    "bert-large": _bert,
    "vit-large": _vit,
    "resnet-50": _resnet,
}

CONFIGURATIONS = (
    Configuration("decoder, fp32", "decoder-200m", 4, precision="fp32"),
    Configuration("decoder, mixed precision", "decoder-200m", 8, precision="bf16-mixed"),
    Configuration("decoder, eager attention", "decoder-200m", 4, attention="eager"),
    Configuration("decoder, flash attention", "decoder-200m", 4, attention="flash"),
    Configuration("decoder 1B", "decoder-1b", 4),
    Configuration("decoder 1B, 2 steps", "decoder-1b", 4, 2),
    Configuration("decoder 1B, 4 steps", "decoder-1b", 4, 4),
    Configuration("decoder 1B, checkpointing", "decoder-1b", 16, checkpointing="full"),
    Configuration("decoder 1B, fused AdamW", "decoder-1b", 4, optimizer="adamw-fused"),
    Configuration("decoder 3B, checkpointing, 2 steps", "decoder-3b", 4, 2, checkpointing="full"),
    Configuration("decoder 3B, LoRA", "decoder-3b", 4, lora=16),
    Configuration("decoder 3B, LoRA, checkpointing", "decoder-3b", 8, checkpointing="full", lora=16),
    Configuration("BERT-large, mixed precision", "bert-large", 16, 2, precision="fp16-mixed"),
    Configuration("ViT-large", "vit-large", 64),
    Configuration("ViT-large, checkpointing", "vit-large", 128, checkpointing="full"),
    Configuration(
        "ResNet-50, mixed precision", "resnet-50", 128, precision="fp16-mixed", optimizer="momentum"
    ),
)
