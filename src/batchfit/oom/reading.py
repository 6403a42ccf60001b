"""From a pasted log to its out-of-memory messages: every wording that we have met."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from batchfit.errors import BadInput
from batchfit.oom.activity import with_traceback
from batchfit.oom.log import batch_settings, by_rank, excerpts
from batchfit.oom.message import Origin, OutOfMemory

LOOKED_FOR = (
    "PyTorch's 'out of memory. Tried to allocate ...' (CUDA, HIP, XPU, MPS), CUDA, cuBLAS, cuDNN, NCCL and "
    "bitsandbytes errors, JAX's RESOURCE_EXHAUSTED, TensorFlow's 'OOM when allocating tensor', and memory of the host"
)

#: How much of a log before a message belongs to its traceback, and after it to the message, in characters.
_BEFORE, _AFTER = 20_000, 3_000

# PyTorch counts in powers of two under either name: its format_size divides by 1024, and older MPS builds call
# the result GB.
_SCALE = {"": 1, "b": 1, "bytes": 1, "byte": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_SIZE = r"(\d[\d.,\s]*?)\s*(bytes|byte|[KMGTP]i?B|B\b)"


def read_oom(text: str) -> OutOfMemory:
    """The first message with numbers, else the first.

    Raises BadInput where the text holds none.
    """
    return read_log(text)[0]


def read_log(text: str) -> tuple[OutOfMemory, ...]:
    """Every out-of-memory message of a log, by rank; one that is printed twice counts once.

    Raises BadInput where there is none.
    """
    if not text.strip():
        raise BadInput("text", "is empty; looked for {kinds}", kinds=LOOKED_FOR)
    settings = batch_settings(text)
    found: list[OutOfMemory] = []
    for rank, stream in by_rank(excerpts(text)).items():
        found += [
            replace(
                message,
                rank=rank,
                micro_batch=settings.get("micro_batch"),
                accumulation_steps=settings.get("accumulation_steps"),
            )
            for message in _messages(stream)
        ]
    messages = _without_repeats(found)
    if not messages:
        raise BadInput("text", "has no out-of-memory message; looked for {kinds}", kinds=LOOKED_FOR)
    return messages


def _without_repeats(found: list[OutOfMemory]) -> tuple[OutOfMemory, ...]:
    """Messages that say different things. A log repeats an error in each `raise ... from` and in its summary; one
    that names its rank, and one with numbers, say more than one without."""
    ranked = {_numbers(message) for message in found if message.rank is not None}
    kept: dict[object, OutOfMemory] = {}
    for message in found:
        if message.rank is None and _numbers(message) in ranked:
            continue
        key = (_numbers(message), message.rank)
        kept[key] = max(kept.get(key, message), message, key=_detail)
    messages = list(kept.values())
    if any(_says_what(message) for message in messages):
        messages = [message for message in messages if _says_what(message)]
    return tuple(sorted(messages, key=lambda message: -1 if message.rank is None else message.rank))


def _says_what(message: OutOfMemory) -> bool:
    return message.requested is not None or message.overflow


def _numbers(message: OutOfMemory) -> tuple[object, ...]:
    return (
        message.origin,
        message.overflow,
        message.requested,
        message.capacity,
        message.free,
        message.allocated,
        message.process,
    )


def _detail(message: OutOfMemory) -> int:
    return sum(
        value is not None for value in (message.activity, message.where, message.unallocated, message.free)
    )


# --- the wordings ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wording:
    """How one kind of message begins, and how it is read from there."""

    begins: re.Pattern[str]
    read: Callable[[re.Match[str], str], OutOfMemory]


def _messages(stream: str) -> Iterator[OutOfMemory]:
    """The messages of one rank, in order. Each ends where the next begins."""
    starts = sorted(
        ((found, wording) for wording in _WORDINGS for found in wording.begins.finditer(stream)),
        key=lambda start: start[0].start(),
    )
    # Of two wordings that match at one place, the list's earlier one is the more exact.
    distinct: list[tuple[re.Match[str], _Wording]] = []
    for found, wording in starts:
        if not distinct or found.start() >= distinct[-1][0].end():
            distinct.append((found, wording))
    for index, (found, wording) in enumerate(distinct):
        end = distinct[index + 1][0].start() if index + 1 < len(distinct) else len(stream)
        after = stream[found.start() : min(end, found.start() + _AFTER)]
        message = wording.read(found, after)
        before = stream[max(0, found.start() - _BEFORE) : found.start()]
        yield with_traceback(replace(message, text=f"{before[-2000:]}{after}"), before)


def _size(number: str, unit: str) -> int | None:
    """Bytes. Numbers that a terminal has wrapped are put together again; one that is 2^63 or more is an unsigned
    underflow in the message (17179869184.00 GiB, where the driver hides other processes) and means unknown."""
    digits = re.sub(r"\s", "", number).replace(",", "").rstrip(".")
    scale = _SCALE[unit.lower() if unit.lower() in _SCALE else unit.lower()[0]]
    count = round(float(digits) * scale)
    return count if count < 2**63 else None


def _find(pattern: str, text: str) -> int | None:
    """The size in `text` where `pattern` has SIZE."""
    found = re.search(pattern.replace("SIZE", _SIZE).replace(" ", r"\s+"), text, re.IGNORECASE)
    return _size(found[1], found[2]) if found else None


def _pytorch(found: re.Match[str], text: str) -> OutOfMemory:
    """PyTorch's caching allocator, 1.0 to now: "(GPU 0; 15.90 GiB total capacity; 14.73 GiB already allocated; ..."
    and "GPU 0 has a total capacity of ... of which ... is free. ..."."""
    groups = found.groupdict()
    backend = (groups["backend"] or "").upper() or ("HIP" if "PYTORCH_HIP_ALLOC_CONF" in text else "CUDA")
    # Some Intel GPUs refuse any single block above 4 GB, whatever is free.
    one_block = bool(groups.get("block"))
    allocated = _find("SIZE (?:is )?(?:already )?allocated(?: by PyTorch)?", text)
    reserved = _find("SIZE reserved in total by PyTorch", text)
    # "cached", up to PyTorch 1.3, is what the allocator holds and no tensor uses.
    unallocated = _find("SIZE (?:is reserved by PyTorch but unallocated|cached)", text)
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(0, reserved - allocated)
    device = re.search(r"[GN]PU\s+(\d+)", text)
    setting = re.search(r"(PYTORCH_(?:\w+_)?ALLOC_CONF)", text)
    message = OutOfMemory(
        origin="pytorch",
        backend="XPU" if one_block else backend,
        text="",
        device=int(device[1]) if device else None,
        requested=_find("allocate SIZE", text),
        overflow="more than 1EB" in text,
        capacity=_find("total capaci?ty of SIZE", text) or _find("SIZE total capacity", text),
        free=_find("of which SIZE is free", text) if "of which" in text else _find("SIZE free", text),
        limit=4 * 2**30 if one_block else _find("SIZE allowed", text),
        allocated=allocated,
        unallocated=unallocated,
        private_pools=_find("SIZE allocated in private pools", text),
        process=_find("this process has SIZE memory in use", text),
        others=_processes(text),
        setting=setting[1] if setting else None,
    )
    return _own_process(message)


def _processes(text: str) -> tuple[tuple[int, int], ...]:
    listed = re.finditer(rf"Process\s+(\d+)\s+has\s+{_SIZE}\s+memory\s+in\s+use", text)
    sizes = ((int(found[1]), _size(found[2], found[3])) for found in listed)
    return tuple((pid, size) for pid, size in sizes if size is not None)


def _own_process(message: OutOfMemory) -> OutOfMemory:
    """In a container PyTorch does not know its own number and lists itself among the others: it is the smallest
    that can hold what PyTorch has reserved."""
    if message.process is not None or message.reserved is None:
        return message
    reserved = message.reserved
    candidates = [(size, pid) for pid, size in message.others if size >= reserved - 2**20]
    if not candidates:
        return message
    size, own = min(candidates)
    return replace(message, process=size, others=tuple(other for other in message.others if other[0] != own))


def _async_allocator(found: re.Match[str], text: str) -> OutOfMemory:
    """PyTorch with backend:cudaMallocAsync: "Currently allocated : 6.89 GiB", one figure a line."""
    return OutOfMemory(
        origin="pytorch",
        backend="CUDA",
        text="",
        device=int(found["device"]) if found["device"] else None,
        requested=_find(r"Requested\s*: SIZE", text),
        capacity=_find(r"Device limit\s*: SIZE", text),
        free=_find(r"Free \(according to CUDA\)\s*: SIZE", text),
        limit=_find(r"user-supplied memory fraction\)\s*: SIZE", text),
        allocated=_find(r"Currently allocated\s*: SIZE", text),
        unallocated=0,
    )


def _expandable_segments(found: re.Match[str], text: str) -> OutOfMemory:
    """The allocator's warning when a segment cannot grow; where compiled code fails, it is the only message."""
    return OutOfMemory(
        origin="pytorch",
        backend="CUDA",
        text="",
        device=int(found["device"]),
        requested=int(found["bytes"]),
        free=int(found["free"]),
        capacity=int(found["total"]),
    )


def _mps(found: re.Match[str], text: str) -> OutOfMemory:
    """PyTorch on Apple: "MPS backend out of memory (MPS allocated: ..., other allocations: ..., max allowed: ...)"."""
    return OutOfMemory(
        origin="pytorch",
        backend="MPS",
        text="",
        requested=_find("Tried to allocate SIZE", text),
        limit=_find("max allowed: SIZE", text),
        allocated=_find("MPS allocated: SIZE", text),
        outside=_find("other allocations: SIZE", text),
        setting="PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    )


def _exact_bytes(origin: Origin, backend: str) -> Callable[[re.Match[str], str], OutOfMemory]:
    """Messages that give the request in bytes and nothing else."""

    def read(found: re.Match[str], text: str) -> OutOfMemory:
        groups = found.groupdict()
        number = groups.get("bytes")
        size = int(number.replace(",", "")) if number else None
        if size is None and groups.get("size"):
            size = _find("SIZE", groups["size"])
        return OutOfMemory(origin=origin, backend=backend, text="", requested=size)

    return read


_DTYPE_BYTES = {
    "float": 4,
    "float32": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "double": 8,
    "int32": 4,
    "int64": 8,
}


def _tensorflow(found: re.Match[str], text: str) -> OutOfMemory:
    """ "OOM when allocating tensor with shape[64,2016,9,9] and type float on .../device:GPU:0": the size follows."""
    shape = [int(side) for side in found["shape"].split(",") if side]
    each = _DTYPE_BYTES.get(found["dtype"])
    return OutOfMemory(
        origin="host" if found["place"] == "CPU" else "tensorflow",
        backend="CPU" if found["place"] == "CPU" else "CUDA",
        text="",
        device=int(found["device"]),
        requested=prod(shape) * each if each else None,
    )


def _wording(pattern: str, read: Callable[[re.Match[str], str], OutOfMemory]) -> _Wording:
    return _Wording(re.compile(pattern, re.IGNORECASE | re.VERBOSE), read)


_WORDINGS = (
    _wording(r"MPS\ backend\ out\ of\ memory", _mps),
    _wording(r"Allocation\ on\ device\ (?P<device>\d*)\s+would\ exceed\ allowed\ memory", _async_allocator),
    _wording(
        r"""(?: (?:(?P<backend>CUDA|HIP|XPU|NPU)\s+)? out\s+of\s+(?:the\s+)?memory[.!]?\s+
              | (?P<block>Current\s+platform\s+can\s+NOT\s+allocate\s+memory\s+block)[^!]*!\s+ )?
            Tried\s+to\s+allocate\s+
            (?: more\s+than\s+1EB | \d[\d.,\s]*? \s* (?:bytes|[KMGTP]i?B) )
            (?= \.? \s* \(?[GN]PU | \s+memory )""",
        _pytorch,
    ),
    _wording(
        r"(?P<backend>CUDA|HIP|XPU|NPU)\s+out\s+of\s+(?:the\s+)?memory\.\s+Tried\s+to\s+allocate\s+\d[\d.,]*\s*(?:bytes|[KMGTP]i?B)",
        _pytorch,
    ),
    _wording(
        r"expandable_segments:\ memory\ mapping\ failed\ with\ OOM\ on\ device\ (?P<device>\d+)\s+"
        r"while\ trying\ to\ map\s+(?P<bytes>\d+)\ bytes\s+\(free:\ (?P<free>\d+),\s+total:\ (?P<total>\d+)\)",
        _expandable_segments,
    ),
    _wording(
        r"OOM\ when\ allocating\ tensor\ with\ shape\s*\[(?P<shape>[\d,\s]*)\]\s+and\ type\ (?P<dtype>\w+)"
        r"\s+on\s+\S*?device:(?P<place>GPU|CPU):(?P<device>\d+)",
        _tensorflow,
    ),
    _wording(
        r"failed\ to\ allocate\s+[\d.]+[KMGT]i?B?\s+\((?P<bytes>\d+)\ bytes\)\ from\ device",
        _exact_bytes("tensorflow", "CUDA"),
    ),
    _wording(
        r"RESOURCE[_ ]EXHAUSTED:[^\n]{0,80}?(?:while\ trying\ to\ allocate|allocating)\s+(?P<bytes>\d+)\ bytes",
        _exact_bytes("jax", "CUDA"),
    ),
    _wording(r"RESOURCE[_ ]EXHAUSTED", _exact_bytes("jax", "CUDA")),
    _wording(
        r"Failed\ to\ CUDA\ (?:calloc|malloc)(?:\ async)?\s+(?P<bytes>\d+)\ bytes",
        _exact_bytes("nccl", "CUDA"),
    ),
    _wording(r"NCCL\ WARN\ Cuda\ failure\ (?:\d+\ )?'out\ of\ memory'", _exact_bytes("nccl", "CUDA")),
    _wording(r"Last\ error:\s+Cuda\ failure\ (?:\d+\ )?'out\ of\ memory'", _exact_bytes("nccl", "CUDA")),
    _wording(r"CUBLAS_STATUS_ALLOC_FAILED", _exact_bytes("cublas", "CUDA")),
    _wording(r"CUDNN_STATUS_ALLOC_FAILED", _exact_bytes("cudnn", "CUDA")),
    _wording(r"Error\ out\ of\ memory\ at\ line\ \d+\ in\ file\ \S+", _exact_bytes("bitsandbytes", "CUDA")),
    _wording(
        r"(?:DefaultCPUAllocator:\ (?:can't\ allocate|not\ enough)\ memory:|not\ enough\ memory:)"
        r"\s+you\ tried\ to\ allocate\s+(?:(?P<bytes>\d+)\ bytes|(?P<size>[\d.]+\s*[KMGT]i?B))",
        _exact_bytes("host", "CPU"),
    ),
    _wording(
        r"DataLoader\ worker\ \(pid(?:\(s\))?\s+[\d,\s]+\)\ is\ killed\ by\ signal:\ Killed"
        r"|Out\ of\ memory:\ Killed\ process\ \d+|memory\ allocation\ of\ (?P<bytes>\d+)\ bytes\ failed"
        r"|exit\s?code\s*[:=]?\s*-9\b|Signal\ 9\ \(SIGKILL\)|signal\ SIGKILL|<Signals\.SIGKILL:\ 9>",
        _exact_bytes("host", "CPU"),
    ),
    _wording(
        r"CUDA\ (?:driver\ )?error:\ out\ of\ memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|cuda\ runtime\ err(?:or)?\s*\(2\)\s*:\s*out\ of\ memory|HIP\ error:\ out\ of\ memory",
        _exact_bytes("cuda", "CUDA"),
    ),
    _wording(r"torch(?:\.cuda)?\.OutOfMemoryError(?![\s\S]{0,400}allocat)", _exact_bytes("pytorch", "CUDA")),
)
