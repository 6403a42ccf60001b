"""Models of timm, where it is installed: see `timm_benchmark` for how to make such an environment."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

import pytest

from batchfit.trace.run import trace
from tests.trace.timm_benchmark import SAID_TO_FIT, Benchmark, Published, published

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("timm") is None,
        reason="timm is not installed; it needs an environment of its own (tests/trace/timm_benchmark.py)",
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


#: Rows of the benchmark of many kinds, convolutions and attention, in both memory formats.
CHECKED = (
    "cait_xxs36_384",
    "convnext_small",
    "deit3_small_patch16_384",
    "densenet201",
    "efficientnet_b3",
    "mixer_l32_224",
    "resnext101_32x4d",
    "swin_base_patch4_window7_224",
    "xcit_tiny_24_p8_224",
    "seresnext26ts",
    "wide_resnet101_2",
)
ROWS = [row for row in published() if row.model in CHECKED]


@cache
def benchmark(row: Published) -> Benchmark:
    return Benchmark(row)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_batch_that_ran_fits(row: Published) -> None:
    assert benchmark(row).replay(row.ran).out_of_memory is None


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_next_batch_that_failed_does_not(row: Published, request: pytest.FixtureRequest) -> None:
    if row.model in SAID_TO_FIT:
        request.applymarker(pytest.mark.xfail(reason="what cuDNN takes is not modelled", strict=True))
    assert benchmark(row).replay(row.failed).out_of_memory is not None
