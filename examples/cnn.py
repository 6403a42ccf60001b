"""A model of one's own for `batchfit trace examples/cnn.py:training`.

The function returns the model and how a micro-batch of b samples is made and trained on. It runs where tensors
have no data: nothing is computed, and a model of any size takes no memory.
"""

import torch
from torch import nn
from torch.nn import functional

from batchfit import Training


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.norm(self.first(images)))
        return images + self.second(hidden)


class Classifier(nn.Module):
    def __init__(self, channels: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(8)))
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.blocks(self.stem(images)).mean(dim=(2, 3))
        logits: torch.Tensor = self.head(features)
        return logits


def training() -> Training:
    """224 × 224 images in 1,000 classes."""
    return Training(
        Classifier(),
        make_batch=lambda b: (torch.randn(b, 3, 224, 224), torch.zeros(b, dtype=torch.long)),
        loss=lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]),
    )
