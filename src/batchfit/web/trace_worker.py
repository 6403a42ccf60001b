"""A process of its own that traces a config.json: `python -m batchfit.web.trace_worker SECONDS BYTES`, the config on
standard input.

Lines of JSON on standard output: {"done": 0.25, "what": "..."} on the way, then {"profiles": [...]} or
{"field": ..., "error": ...}. Only models of the installed libraries are made, from data; nothing is fetched.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

from batchfit.errors import BadInput

if TYPE_CHECKING:
    from batchfit.profile import MemoryProfile

#: What is traced, as for the catalogue: the ways of training that most people choose between.
PRECISIONS, CHECKPOINTING, RANK = ("bf16", "bf16-mixed"), ("none", "full"), 16
#: Lengths that the profiles hold for, in tokens, as far as the model reads so many.
SHORTEST, LONGEST = 256, 16_384
#: Files that libraries write at most.
_LARGEST_FILE = 1 << 26

#: What configs call the longest sequence that the model reads.
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")


def lengths_of(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """The range of lengths to trace a model of text for; None where a sample is no text of free length."""
    if "vocab_size" not in config or "max_source_positions" in config or "num_conv_pos_embeddings" in config:
        return None
    said = [config[name] for name in _CONTEXT if isinstance(config.get(name), int) and config[name] > 1]
    longest = min(LONGEST, *said) if said else LONGEST
    return min(SHORTEST, max(1, longest // 4)), longest


def limit(seconds: int, nbytes: int) -> None:
    """This process may take so much processor time and memory, and write little; beyond that it ends."""
    try:
        import resource
    except ImportError:  # not on Windows, where the parent's time limit alone holds
        return
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, nbytes),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


def work(config: Mapping[str, Any], out: TextIO) -> None:
    """Traces the config every way and writes what comes of it."""
    tell = _Teller(out)
    tell(0.0, "loading PyTorch")
    try:
        profiles = list(_traces(config, tell))
    except BadInput as wrong:
        tell.say({"field": wrong.field, "error": wrong.reason})
    except MemoryError:
        tell.say({"field": "model", "error": "takes more memory to trace than is allowed here"})
    else:
        tell.say({"profiles": [json.loads(profile.to_json()) for profile in profiles]})


def _traces(config: Mapping[str, Any], tell: _Teller) -> Iterator[MemoryProfile]:
    """The profiles of all ways; of those that a model cannot be trained in, such as adapters, none. Raises BadInput
    where it can be traced in none."""
    from batchfit.trace import Lora, trace

    ways = list(product((None, Lora(RANK)), PRECISIONS, CHECKPOINTING))
    refused: BadInput | None = None
    made = 0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        for index, (lora, precision, checkpointing) in enumerate(ways):
            adapters = "LoRA, " if lora else ""
            tell(index / len(ways), f"{adapters}{precision}, checkpointing {checkpointing}")
            try:
                yield trace(
                    str(path),
                    seq_len=lengths_of(config),
                    precision=precision,
                    checkpointing=checkpointing,
                    lora=lora,
                    name=_name(config),
                )
            except BadInput as wrong:
                refused = wrong
                continue
            made += 1
    if refused is not None and not made:
        raise refused


def _name(config: Mapping[str, Any]) -> str:
    """What to call the model: as the config does, else by its kind."""
    said = config.get("_name_or_path") or config.get("model_type") or config.get("_class_name")
    return str(said).rstrip("/").rpartition("/")[2][:80] or "model"


class _Teller:
    """Writes lines."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, done: float, what: str) -> None:
        self.say({"done": round(done, 3), "what": what})

    def say(self, data: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(data, separators=(",", ":")) + "\n")
        self._out.flush()


def main() -> None:
    """Reads the config, traces it, and keeps libraries' chatter off the answer."""
    seconds, nbytes = map(int, sys.argv[1:])
    limit(seconds, nbytes)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    work(json.load(sys.stdin), answers)


if __name__ == "__main__":
    main()
