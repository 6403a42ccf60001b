"""What the numbers of an out-of-memory message mean, in words."""

from __future__ import annotations

from dataclasses import dataclass

from batchfit.oom.message import OutOfMemory
from batchfit.units import format_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the GPU's memory at the moment of the error, in bytes."""

    name: str
    size: int
    explanation: str

    def as_json(self) -> dict[str, object]:
        """The part as data."""
        return {"name": self.name, "bytes": self.size, "explanation": self.explanation}


def parts(oom: OutOfMemory) -> tuple[Part, ...]:
    """Who holds what, from this process's tensors to what is free. Parts that the message does not tell are left
    out; for MPS the whole is the limit, else the GPU."""
    found = []
    if oom.allocated is not None:
        graphs = f"; {format_bytes(oom.private_pools)} of it for CUDA graphs" if oom.private_pools else ""
        found.append(Part("allocated", oom.allocated, f"tensors that are alive{graphs}"))
    if oom.unallocated:
        found.append(Part("unallocated", oom.unallocated, _cache(oom)))
    if oom.context:
        found.append(
            Part(
                "context", oom.context, "this process's driver context, loaded kernels, communication buffers"
            )
        )
    if oom.outside:
        found.append(Part("outside", oom.outside, "this process, outside PyTorch's allocator"))
    if oom.elsewhere:
        found.append(Part("elsewhere", oom.elsewhere, _elsewhere(oom)))
    if oom.free is not None:
        found.append(Part("free", oom.free, "as the driver says"))
    return tuple(found)


def _cache(oom: OutOfMemory) -> str:
    kept = "reserved by PyTorch, in no tensor"
    if oom.fragmented:
        return f"{kept}: enough for the request, but in pieces too small for it (fragmentation)"
    if oom.limited or oom.requested is None:
        return kept
    if oom.unallocated is not None and oom.unallocated >= oom.requested:
        return f"{kept}: little enough to be rounding"
    return f"{kept}: less than the request, so fragmentation is not the cause"


def _elsewhere(oom: OutOfMemory) -> str:
    if oom.others:
        count = len(oom.others)
        return f"{count} other process{'es' if count > 1 else ''} on this GPU"
    if oom.process is None:
        return "this process's driver context, and other processes"
    return "other processes, which the message does not list"


def card(oom: OutOfMemory) -> str:
    """The GPU in a few words: "GPU 0 (NVIDIA GeForce RTX 3090)"."""
    if oom.backend == "MPS":
        sizes = sorted({gpu.marketed_gb for gpu in oom.gpus()})
        return f"this Mac of {sizes[0]} GB" if len(sizes) == 1 else "this Mac"
    place = "The GPU" if oom.device is None else f"GPU {oom.device}"
    gpus = oom.gpus()
    if not gpus:
        return place
    if len(gpus) > 3:
        return f"{place} (a card of {gpus[0].marketed_gb} GB)"
    *first, last = (gpu.name.removeprefix(f"{gpu.vendor} ").removeprefix("GeForce ") for gpu in gpus)
    names = f"{', '.join(first)} or {last}" if first else last
    return f"{place} ({names})"


_LIBRARIES = {
    "cuda": "The CUDA driver",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "bitsandbytes": "bitsandbytes",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
}


def sentence(oom: OutOfMemory) -> str:
    """The message in one sentence: what was asked for, and why it was not there."""
    if oom.origin == "host" and oom.requested is None:
        return "A process was killed: most often because the computer's own memory ran out, not the GPU's."
    if oom.origin == "host":
        asked = f" when {format_bytes(oom.requested)} were asked for" if oom.requested else ""
        return f"The computer's own memory ran out{asked}, not the GPU's."
    if oom.overflow:
        return "The request is larger than any computer's memory: a wrong shape or size, not a full GPU."
    doing = _doing(oom)
    if oom.requested is None:
        return f"{_LIBRARIES[oom.origin]} found no GPU memory left{doing}; the message has no numbers."
    asked = format_bytes(oom.requested)
    if oom.capacity is None and oom.limit is None:
        return f"{_LIBRARIES[oom.origin]} asked for {asked} of GPU memory{doing} and did not get it."
    return f"{_cause(oom, asked, doing)}."


def _doing(oom: OutOfMemory) -> str:
    words = {
        "model load": "while the model was being loaded",
        "forward": "in the forward pass",
        "backward": "in the backward pass",
        "optimizer step": "in the optimizer step",
        "gradient clipping": "while gradients were being clipped",
        "evaluation": "during evaluation",
        "sharding": "while parameters were being gathered or synchronised",
    }
    return f" {words[oom.activity]}" if oom.activity in words else ""


def _cause(oom: OutOfMemory, asked: str, doing: str) -> str:
    """The sentence for a message with numbers, from the most telling cause to the plain one."""
    if oom.limited and oom.limit is not None:
        limit = format_bytes(oom.limit)
        if oom.backend == "MPS":
            return (
                f"PyTorch reached its limit of {limit} on {card(oom)}{doing}, and {asked} more were asked for"
            )
        if oom.impossible:
            return f"One request of {asked}{doing} is larger than the {limit} that {card(oom)} allows at once"
        free = f", although {format_bytes(oom.free)} of {card(oom)} are free" if oom.free else ""
        return f"This process reached its limit of {limit}{doing}{free}"
    assert oom.capacity is not None
    capacity = format_bytes(oom.capacity)
    if oom.impossible:
        return f"One request of {asked}{doing} is larger than all of {card(oom)}, which has {capacity}"
    ran_out = f"{card(oom)} ran out of memory{doing}: {asked} were asked for"
    if oom.free is None:
        return f"{ran_out}, of {capacity} in all"
    free = format_bytes(oom.free)
    if oom.refused_with_room:
        return f"{card(oom)} refused {asked}{doing}, although it reports {free} free of {capacity}"
    if oom.fragmented and oom.unallocated is not None:
        unused = format_bytes(oom.unallocated)
        return f"{ran_out}, {free} were free, and {unused} lay unused in PyTorch's own cache, in pieces too small"
    short = oom.short_by or 0
    missing = f"{format_bytes(short)} too few" if short > 0 else "too few once the driver rounds up"
    return f"{ran_out} and {free} of {capacity} were free, {missing}"


def notes(oom: OutOfMemory) -> tuple[str, ...]:
    """What a person may wonder about in the numbers."""
    found = []
    if oom.spilled and oom.allocated is not None and oom.capacity is not None:
        found.append(
            f"More is allocated ({format_bytes(oom.allocated)}) than the GPU has: Windows moved part of it into the "
            "computer's own memory."
        )
    if oom.refused_with_room:
        found.append(
            "The driver counts free memory in all pieces together. It can still refuse: another process took it for "
            "a moment, the system keeps a part for the display, or no piece is large enough."
        )
    if oom.capacity is not None and not oom.gpus() and oom.backend in ("CUDA", "HIP", "XPU"):
        found.append(
            f"No card of the catalogue reports {format_bytes(oom.capacity)}: a slice of one (MIG), a virtual GPU, or "
            "one that is not in it."
        )
    return tuple(found)
