"""Models of timm, where it is installed. It needs torchvision, and so a PyTorch that torchvision is built for: an
environment of its own (5.5 GB), `pip install torch==2.14.1 torchvision==0.29.1 timm transformers pytest click rich
numpy babel`. With `timm==0.6.7` the models are those that its benchmark of July 2022 measured."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

from batchfit.trace.run import trace
from bench.accuracy.families import figures, question
from bench.accuracy.question import Question
from bench.accuracy.rows import read
from bench.accuracy.timm_steps import answer

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("timm") is None,
        reason="timm is not installed; it needs an environment of its own",
    ),
    # Models are registered under names that are about to change.
    pytest.mark.filterwarnings("ignore"),
]

#: A model of each kind of architecture, small; the size of its images where that is not 224.
KINDS = {
    "resnet18": 224,
    "vit_tiny_patch16_224": 224,
    "convnext_atto": 224,
    "efficientnet_b1": 240,
    "swin_tiny_patch4_window7_224": 224,
    "mobilenetv3_small_050": 224,
    "inception_v3": 299,
    "hiera_tiny_224": 224,  # draws some of its weights again, until they are within bounds
    "vit_small_patch16_dinov3": 256,  # makes its positions' frequencies on the host
}


def timm() -> Any:
    return importlib.import_module("timm")


@pytest.mark.parametrize("name", [*KINDS])
def test_models_of_every_kind(name: str) -> None:
    if not timm().is_model(name):
        pytest.skip(f"timm {timm().__version__} has no {name}")
    profile = trace(f"timm:{name}", precision="fp16-mixed", optimizer="momentum")
    real = timm().create_model(name)
    assert profile.model.parameters == sum(p.numel() for p in real.parameters())
    assert profile.affinity.affine
    assert real.default_cfg["input_size"][-1] == KINDS[name]
    smaller = trace(
        f"timm:{name}", precision="fp16-mixed", optimizer="momentum", image=(3, KINDS[name], KINDS[name])
    )
    assert smaller.phases == profile.phases


def test_a_smaller_image_takes_less() -> None:
    whole, half = (trace("timm:resnet18", image=(3, size, size)).activation_per_sample for size in (224, 112))
    # But for its last layers, a quarter of the pixels takes a quarter of the memory.
    assert half / whole == pytest.approx(0.25, rel=0.05)


#: Models of timm's benchmark of many kinds, convolutions and attention, in either memory format.
CHECKED = (
    "cait_xxs36_384, contiguous",
    "convnext_small, channels_last",
    "densenet201, channels_last",
    "efficientnet_b3, channels_last",
    "mixer_l32_224, contiguous",
    "resnext101_32x4d, channels_last",
    "swin_base_patch4_window7_224, channels_last",
    "seresnext26ts, channels_last",
    "wide_resnet101_2, contiguous",
)


def brackets() -> dict[str, Question]:
    """What the newest files of the benchmark ask about these models: the batch that ran, and the next one."""
    asked = {}
    for row in figures(read()):
        name = f"{row['model']}, {'channels_last' if 'channels_last' in row['notes'] else 'contiguous'}"
        if row.id.endswith("/bracket") and "-pt112-" in row["url_or_path"] and name in CHECKED:
            asked[name] = question(row)
    assert len(asked) == len(CHECKED)
    return asked


@pytest.mark.parametrize("name", CHECKED)
def test_a_batch_that_ran_fits_and_the_next_one_does_not(name: str) -> None:
    ask = brackets()[name]
    assert ask.next_batch is not None
    replays = answer(ask.trace, (ask.micro_batch, ask.next_batch))["replays"]
    assert [found["fits"] for found in replays.values()] == [True, False]
