"""How long `batchfit.trace` takes, against PyTorch's own MemTracker on fake tensors, and against what bounds it.

Run it with the interpreter that batchfit is installed in: .venv/bin/python bench/speed/trace.py
Each measurement is a process of its own, and the contenders run in turns. What is compared is CPU time of the traced
part, so neither imports nor whoever else uses the machine count; peak memory is that of the whole process.

    ours         batchfit.trace(config): five traces of two optimizer steps (three micro-batches) and the allocator's
                 replays, from the config to the profile
    MemTracker   torch.distributed._tools.mem_tracker under FakeTensorMode: one trace of two optimizer steps of one
                 micro-batch each, from the first step on (making the model is not counted)

The floor: importing torch and transformers, which a trace of a config cannot do without; and one pass through a
dispatch mode for every operation of the step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parents[2] / "tests" / "cases" / "configs"

#: What is asked: times faster than MemTracker; the largest model against the 8B one; peak resident memory in bytes.
LEAST = {"gpt2": 10.0, "llama-3.1-8b": 30.0}
MOST_APART, MOST_BYTES = 1.2, 700 * 2**20
TOKENS = 1024


def ours(name: str) -> dict[str, Any]:
    """One trace in this process, after the imports."""
    wall = time.perf_counter()
    import transformers  # noqa: F401

    import batchfit.trace as tracing

    imports = time.perf_counter() - wall
    path = str(CONFIGS / f"{name}.json")
    # What Python and PyTorch do once in a process, such as reading transformers' modules, belongs to the imports.
    tracing.trace(path, seq_len=64, folding=True)
    wall, cpu = time.perf_counter(), time.process_time()
    profile = tracing.trace(path, seq_len=TOKENS)
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "imports": imports,
        "kernels": 3 * profile.compute.kernels_per_micro_batch
        + 2 * profile.compute.kernels_per_optimizer_step,
    }


def mem_tracker(name: str) -> dict[str, Any]:
    """Two optimizer steps of two samples under MemTracker, on fake tensors."""
    import torch
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    data = json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))
    config = transformers.CONFIG_MAPPING[data["model_type"]].from_dict(data)
    config.use_cache = False
    torch.set_default_dtype(torch.bfloat16)
    with FakeTensorMode():
        model = getattr(transformers, data["architectures"][0])(config)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = torch.ones(2, TOKENS, dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        wall, cpu = time.perf_counter(), time.process_time()
        with tracker:
            for step in range(2):
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def dispatches() -> dict[str, Any]:
    """Seconds that the cheapest operation that makes a tensor without data takes, through a dispatch mode that does
    nothing."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Nothing(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    tensor = torch.empty(8, 8, device="meta")
    count = 20_000
    with torch.no_grad(), Nothing():  # type: ignore[no-untyped-call]
        for _ in range(100):
            torch.empty_like(tensor)
        cpu = time.process_time()
        for _ in range(count):
            torch.empty_like(tensor)
    return {"cpu": (time.process_time() - cpu) / count}


def measured(what: str, name: str) -> dict[str, Any]:
    """What one process measured, with its peak resident bytes."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--measure", what, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},
    )
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit(f"measuring {what} of {name} failed")
    return {**json.loads(text.splitlines()[-1]), "bytes": usage.ru_maxrss * 1024}


def main() -> int:
    """Prints the table; exit status 1 where a limit is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=3, help="times each is run")
    options.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.measure:
        what, name = asked.measure
        contenders = {"ours": ours, "mem_tracker": mem_tracker}
        print(json.dumps(dispatches() if what == "dispatches" else contenders[what](name)))
        return 0
    missed = False
    mine: dict[str, float] = {}
    peak = 0
    floor = measured("dispatches", "-")["cpu"]
    print(f"an operation through a dispatch mode: {floor * 1e6:.1f} us\n")
    print(
        "traced part, CPU seconds     ours   MemTracker   ratio   at least   peak MiB   imports s   floor s"
    )
    for name in ("gpt2", "llama-3.1-8b", "llama-3.1-405b"):
        pairs = []
        for _ in range(asked.runs):
            own = measured("ours", name)
            pairs.append((own, measured("mem_tracker", name) if name in LEAST else None))
        mine[name] = statistics.median(own["cpu"] for own, _ in pairs)
        largest = max(own["bytes"] for own, _ in pairs)
        peak = max(peak, largest)
        row = f"{name:24} {mine[name]:8.3f}"
        if name in LEAST:
            theirs = statistics.median(other["cpu"] for _, other in pairs if other)
            ratio = statistics.median(other["cpu"] / own["cpu"] for own, other in pairs if other)
            row += f"   {theirs:10.2f}   {ratio:5.1f}   {LEAST[name]:8.0f}"
            missed |= ratio < LEAST[name]
        else:
            row += " " * 37
        imports = statistics.median(own["imports"] for own, _ in pairs)
        kernels = pairs[0][0]["kernels"]
        print(f"{row}   {largest / 2**20:8.0f}   {imports:9.1f}   {kernels * floor:7.3f}")
    apart = mine["llama-3.1-405b"] / mine["llama-3.1-8b"]
    print(f"\n405B against 8B    {apart:5.2f}       at most {MOST_APART}")
    print(f"peak memory        {peak / 2**20:5.0f} MiB   at most {MOST_BYTES / 2**20:.0f}")
    print("The floor is that of one trace of all blocks; ours is five of two or three.")
    return int(missed or apart > MOST_APART or peak > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
