from __future__ import annotations

import pytest

from batchfit.errors import BadInput
from batchfit.trace.allocator_config import AllocatorConfig

MIB = 2**20


def test_everything_at_once() -> None:
    config = AllocatorConfig.parse(
        " max_split_size_mb:128, garbage_collection_threshold:0.8,expandable_segments:True,"
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],per_process_memory_fraction:0.95,"
        "pinned_use_background_threads:True"
    )
    assert config.max_split_size == 128 * MIB
    assert config.garbage_collection_threshold == 0.8
    assert config.expandable_segments
    assert config.per_process_memory_fraction == 0.95
    # 256 MiB is interval 8: all below and it itself 1, then 2, 4, and 8 for what is above.
    assert config.roundup_power2_divisions == (1,) * 9 + (2, 4) + (8,) * 5


def test_nothing_said_is_pytorchs_default() -> None:
    for text in ("", "  ", "backend:native", "expandable_segments:False"):
        assert AllocatorConfig.parse(text) == AllocatorConfig()


def test_a_larger_large_segment_also_bounds_the_rounding() -> None:
    config = AllocatorConfig.parse("large_segment_size_mb:64")
    assert config.large_segment_size == config.max_non_split_rounding == 64 * MIB
    with pytest.raises(BadInput, match="at least 64, for max_split_size_mb"):
        AllocatorConfig.parse("max_split_size_mb:63,large_segment_size_mb:64")


def test_the_environment_is_read_in_pytorchs_order() -> None:
    environ = {
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:64",
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32",
    }
    assert AllocatorConfig.from_environment(environ).max_split_size == 32 * MIB
    del environ["PYTORCH_CUDA_ALLOC_CONF"]
    assert AllocatorConfig.from_environment(environ).max_split_size == 64 * MIB
    assert AllocatorConfig.from_environment({}) == AllocatorConfig()
    with pytest.raises(BadInput, match=r"^PYTORCH_ALLOC_CONF: "):
        AllocatorConfig.from_environment({"PYTORCH_ALLOC_CONF": "max_split_size_mb:1"})


BAD = {
    "max_split_size_mb:19": "at least 20, for max_split_size_mb; you typed '19'",
    "max_split_size_mb:lots": "for max_split_size_mb; you typed 'lots'",
    "max_split_size_mb": "needs a value after max_split_size_mb: max_split_size_mb:VALUE",
    "max_split_size_mb:32,,": "knows no option ''",
    "max_non_split_rounding_mb:10": "at least 20, for max_non_split_rounding_mb; you typed '10'",
    "large_segment_size_mb:10": "at least 11, for large_segment_size_mb; you typed '10'",
    "expandable_segments:true": "needs True or False for expandable_segments; you typed 'true'",
    "garbage_collection_threshold:1.5": "between 0 and 1 for garbage_collection_threshold; you typed '1.5'",
    "garbage_collection_threshold:0": "between 0 and 1 for garbage_collection_threshold; you typed '0'",
    "garbage_collection_threshold:nan": "between 0 and 1 for garbage_collection_threshold; you typed 'nan'",
    "roundup_power2_divisions:3": "for the divisions of roundup_power2_divisions; you typed '3'",
    "roundup_power2_divisions:[300:2]": "for the intervals of roundup_power2_divisions; you typed '300'",
    "roundup_power2_divisions:[256:1,512:2": "needs as many ] as [",
    "roundup_power2_divisions:[256:1],[": "needs as many ] as [",
    "roundup_power2_divisions:[256]": "for the divisions of roundup_power2_divisions; you typed ''",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_named_and_restated(text: str) -> None:
    with pytest.raises(BadInput) as error:
        AllocatorConfig.parse(text)
    assert str(error.value).startswith("PYTORCH_ALLOC_CONF: ")
    assert BAD[text] in str(error.value)


def test_options_and_backends_that_are_not_modelled() -> None:
    with pytest.raises(
        BadInput, match="knows no option 'max_split_mb'; it knows backend, expandable_segments"
    ):
        AllocatorConfig.parse("max_split_mb:32")
    with pytest.raises(BadInput, match="must keep backend:native"):
        AllocatorConfig.parse("backend:cudaMallocAsync")


@pytest.mark.torch
@pytest.mark.parametrize(
    "text",
    [
        *BAD,
        "max_split_size_mb:32",
        "max_split_size_mb:32,",
        "roundup_power2_divisions:[>:0]",
        "roundup_power2_divisions:[1:2,64:4]",
    ],
)
def test_pytorch_itself_refuses_the_same(text: str) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_accelerator_setAllocatorSettings"):
        pytest.skip("this PyTorch cannot be asked without a GPU")

    def refused(parse: object) -> bool:
        try:
            parse(text)  # type: ignore[operator]
        except (ValueError, RuntimeError):
            return True
        return False

    try:
        assert refused(torch._C._accelerator_setAllocatorSettings) == refused(AllocatorConfig.parse)
    finally:
        torch._C._accelerator_setAllocatorSettings("")
