"""GPUMemNet's table of well-known models in training on an A100 40 GB, the whole device's memory.

Facts about the runs: itu-rad/GPUMemNet, Results_plotter_for_paper/data.csv and the programs in Test_Pipeline/models:
float32, Adam, torchvision's models and timm's Xception, images of 224 pixels, of 299 for Inception v3, which has no
auxiliary output. The card and its context are those of `gpumemnet`; workspaces of cuDNN are not counted.
"""

from __future__ import annotations

from typing import Any

from bench.accuracy.families.configs import needed
from bench.accuracy.families.gpumemnet import CONTEXT_BYTES
from bench.accuracy.question import CannotExpress, Question
from bench.accuracy.rows import Row

FAMILIES = ("gpumemnet_paper",)

#: What makes each model, and the side of its images.
_MODELS: dict[str, dict[str, Any]] = {
    "VGG-16": {"torchvision": "vgg16", "image": 224},
    "ResNet-50": {"torchvision": "resnet50", "image": 224},
    "Xception": {"timm": "xception", "image": 224},
    "MobileNetV2": {"torchvision": "mobilenet_v2", "image": 224},
    "EfficientNet-B0": {"torchvision": "efficientnet_b0", "image": 224},
    "Inception-v3": {"torchvision": "inception_v3", "image": 299},
}


def question(row: Row) -> Question:
    """What a row asks; see `bench.accuracy.families`."""
    if not row["image_size"]:
        raise CannotExpress("the sequence length is not published")
    if row["model"] not in _MODELS:
        raise CannotExpress("a model whose program is not published")
    return Question(
        trace={**_MODELS[row["model"]], "program": "imagenet"},
        group="float32, Adam, one GPU",
        measure="device",
        micro_batch=needed(row, "micro_batch"),
        beside_bytes=CONTEXT_BYTES,
        gpu="a100-40gb",
        era="timm-1.0",
        needs_era=True,
        assumptions=("cuDNN's workspaces are not counted",),
    )
