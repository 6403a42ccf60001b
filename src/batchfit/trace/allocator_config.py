"""The settings of PyTorch's CUDA caching allocator: what `PYTORCH_ALLOC_CONF` says, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from batchfit.errors import BadInput
from batchfit.trace.timeline import BLOCK_BYTES

MIB = 2**20

#: Requests up to this size come from the small pool (c10 `kSmallSize`).
SMALL_REQUEST = 1 * MIB
#: What the small pool asks the device for (c10 `kSmallBuffer`).
SMALL_SEGMENT = 2 * MIB
#: Requests from this size on get a segment of their own (c10 `kMinLargeAlloc`)...
OWN_SEGMENT_REQUEST = 10 * MIB
#: ...rounded up to this (c10 `kRoundLarge`).
OWN_SEGMENT_ROUNDING = 2 * MIB

#: `roundup_power2_divisions` has one entry per power of two from 1 MiB on; the last also serves all above.
POWER2_INTERVALS = 16

#: The variables PyTorch reads, first found wins.
ENVIRONMENT = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

#: Options PyTorch knows that change no size on the device.
_WITHOUT_EFFECT = {
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "throw_on_cudamalloc_oom",
}
_MODELLED = {
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "roundup_power2_divisions",
}


@dataclass(frozen=True, slots=True)
class AllocatorConfig:
    """How the caching allocator is set. Sizes in bytes; the defaults are PyTorch's.

    Source: c10/core/AllocatorConfig.{h,cpp} and c10/cuda/CUDAAllocatorConfig.h (PyTorch 2.13), and the
    "Optimizing memory usage" section of PyTorch's CUDA semantics notes.
    """

    #: Blocks of this size and above are never split; None: all may be.
    max_split_size: int | None = None
    #: A cached block that may not be split serves a request only if it is less than this larger.
    max_non_split_rounding: int = 20 * MIB
    #: The segment for requests above 1 MiB and below 10 MiB, and the page of an expandable large segment.
    large_segment_size: int = 20 * MIB
    #: Divisions between two powers of two that sizes are rounded up to, per interval from 1 MiB; 0: none.
    roundup_power2_divisions: tuple[int, ...] = (0,) * POWER2_INTERVALS
    #: Share of the allowed memory above which old cached blocks are freed; 0: never.
    garbage_collection_threshold: float = 0.0
    #: Share of the device this process may reserve.
    per_process_memory_fraction: float = 1.0
    #: One growing segment per pool and stream, mapped page by page.
    expandable_segments: bool = False

    @classmethod
    def parse(cls, text: str, field: str = "PYTORCH_ALLOC_CONF") -> AllocatorConfig:
        """The settings in a string such as `expandable_segments:True,max_split_size_mb:128`.

        Raises BadInput, named `field`, for what PyTorch refuses, and for the backend `cudaMallocAsync`, whose
        rules are the driver's own.
        """
        options = _options(text, field)
        large = _mebibytes(options, "large_segment_size_mb", field, 11) or 20 * MIB
        floor = large // MIB
        return cls(
            max_split_size=_mebibytes(options, "max_split_size_mb", field, floor),
            max_non_split_rounding=_mebibytes(options, "max_non_split_rounding_mb", field, floor) or large,
            large_segment_size=large,
            roundup_power2_divisions=_divisions(options.get("roundup_power2_divisions", "[>:0]"), field),
            garbage_collection_threshold=_share(options, "garbage_collection_threshold", field, 0.0, False),
            per_process_memory_fraction=_share(options, "per_process_memory_fraction", field, 1.0, True),
            expandable_segments=_flag(options, "expandable_segments", field),
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> AllocatorConfig:
        """The settings a PyTorch process with these environment variables would run under."""
        for name in ENVIRONMENT:
            if name in environ:
                return cls.parse(environ[name], field=name)
        return cls()

    @property
    def rounds_to_power2(self) -> bool:
        """Whether any size is rounded by more than the 512 bytes all are."""
        return any(divisions > 1 for divisions in self.roundup_power2_divisions)

    def round_size(self, nbytes: int) -> int:
        """The bytes a request of `nbytes` asks its pool for.

        A multiple of 512; with `roundup_power2_divisions`, the next of the equal steps between the two
        powers of two around it (1200 bytes at 4 divisions: the steps are 1024, 1280, 1536, 1792, so 1280).
        """
        if nbytes < BLOCK_BYTES:
            return BLOCK_BYTES
        interval = min(max(nbytes.bit_length() - MIB.bit_length(), 0), POWER2_INTERVALS - 1)
        divisions = self.roundup_power2_divisions[interval]
        if divisions <= 1 or nbytes <= BLOCK_BYTES * divisions:
            return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES
        step = (1 << (nbytes.bit_length() - 1)) // divisions
        return -(-nbytes // step) * step

    def segment_size(self, size: int) -> int:
        """The bytes asked of the device when no cached block serves a (rounded) request of `size`."""
        if size <= SMALL_REQUEST:
            return SMALL_SEGMENT
        if size < OWN_SEGMENT_REQUEST:
            return self.large_segment_size
        return -(-size // OWN_SEGMENT_ROUNDING) * OWN_SEGMENT_ROUNDING


def _options(text: str, field: str) -> dict[str, str]:
    """`a:1,b:[x:1,>:2]` as {"a": "1", "b": "[x:1,>:2]"}."""
    options: dict[str, str] = {}
    settings = re.sub(r"\s", "", text).removesuffix(",")
    if settings.count("[") != settings.count("]"):
        raise BadInput(field, "needs as many ] as [; you typed {typed}", typed=repr(text))
    # Commas inside brackets belong to the value.
    for part in re.split(r",(?![^\[]*\])", settings) if settings else ():
        name, colon, value = part.partition(":")
        if name not in _MODELLED | _WITHOUT_EFFECT:
            allowed = ", ".join(sorted(_MODELLED | _WITHOUT_EFFECT))
            raise BadInput(
                field, "knows no option {typed}; it knows {allowed}", typed=repr(name), allowed=allowed
            )
        if not colon or not value:
            raise BadInput(field, "needs a value after {option}: {option}:VALUE", option=name)
        options[name] = value
    if options.get("backend", "native") != "native":
        raise BadInput(
            field,
            "must keep backend:native, the allocator that is modelled here; you typed {typed}",
            typed=repr(options["backend"]),
        )
    return options


def _mebibytes(options: Mapping[str, str], name: str, field: str, minimum: int) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) < minimum:
        raise BadInput(
            field,
            "needs a whole number of MiB, at least {minimum}, for {option}; you typed {typed}",
            minimum=minimum,
            option=name,
            typed=repr(value),
        )
    return int(value) * MIB


def _share(options: Mapping[str, str], name: str, field: str, default: float, one_allowed: bool) -> float:
    if name not in options:
        return default
    try:
        value = float(options[name])
    except ValueError:
        value = -1.0
    if 0 < value < 1 or (one_allowed and value == 1):
        return value
    raise BadInput(
        field,
        "needs a number between 0 and 1 for {option}; you typed {typed}",
        option=name,
        typed=repr(options[name]),
    )


def _flag(options: Mapping[str, str], name: str, field: str) -> bool:
    value = options.get(name, "False")
    if value not in ("True", "False"):
        raise BadInput(
            field, "needs True or False for {option}; you typed {typed}", option=name, typed=repr(value)
        )
    return value == "True"


def _divisions(text: str, field: str) -> tuple[int, ...]:
    """`4`, or `[256:1,512:2,1024:4,>:8]`: divisions per interval, whose lower end is given in MiB.

    The first entry also serves everything below it, `>` everything above the last; intervals left out in
    between are not rounded.
    """
    if not text.startswith("["):
        return (_power_of_two(text, "divisions", field, zero=False),) * POWER2_INTERVALS
    table = [0] * POWER2_INTERVALS
    last: int | None = None
    for entry in text[1:-1].split(","):
        boundary, _, value = entry.partition(":")
        divisions = _power_of_two(value, "divisions", field, zero=True)
        if boundary == ">":
            above = 0 if last is None else last + 1
            table[above:] = [divisions] * (POWER2_INTERVALS - above)
            continue
        megabytes = _power_of_two(boundary, "intervals", field, zero=False)
        index = min(megabytes.bit_length() - 1, POWER2_INTERVALS - 1)
        if last is None:
            table[:index] = [divisions] * index
        table[index] = divisions
        last = index
    return tuple(table)


def _power_of_two(text: str, what: str, field: str, *, zero: bool) -> int:
    value = int(text) if text.isdecimal() else -1
    if (value > 0 and value & (value - 1) == 0) or (zero and value == 0):
        return value
    raise BadInput(
        field,
        "needs powers of two for the {what} of roundup_power2_divisions; you typed {typed}",
        what=what,
        typed=repr(text),
    )
