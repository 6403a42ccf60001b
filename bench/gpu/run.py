"""Trains each configuration for three steps on this machine's GPU and holds what it took against its trace.

    PYTHONPATH=src:. python bench/gpu/run.py                  all of them, in less than eight minutes on one card
    PYTHONPATH=src:. python bench/gpu/run.py --only LoRA      those with this in their name
    PYTHONPATH=src:. python bench/gpu/run.py --traces-only    what the traces say, without a GPU

Results are kept as JSON in bench/gpu/results, named by the card, with the versions of everything that matters.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.gpu.compare import compared, predicted, table
from bench.gpu.configurations import CONFIGURATIONS, Configuration

HERE = Path(__file__).parent
RESULTS = HERE / "results"

#: Seconds for one configuration on the GPU, and for all.
ONE, ALL = 90, 460


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a configuration failed, 2 there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", metavar="TEXT", default="", help="configurations with this in their name")
    parser.add_argument("--traces-only", action="store_true", help="no GPU: what the traces say")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    asked = parser.parse_args(arguments)
    chosen = [c for c in CONFIGURATIONS if asked.only.lower() in c.name.lower()]
    if not chosen:
        parser.error(f"--only {asked.only}: no configuration has this in its name")
    if asked.traces_only:
        for configuration in chosen:
            print(f"{configuration.name:36} {json.dumps(predicted(configuration))}", flush=True)
        return 0
    card = _card()
    if card is None:
        print("no CUDA GPU is visible to PyTorch here; --traces-only works without one", file=sys.stderr)
        return 2
    runs = _runs(chosen)
    print(table(runs))
    _keep(asked.results, card, runs)
    return 1 if any("failed" in run for run in runs) else 0


def _runs(chosen: list[Configuration]) -> list[dict[str, Any]]:
    """The GPU first, so that its time is short: every measurement, then every trace."""
    begun, found = time.monotonic(), {}
    for number, configuration in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {configuration.name}", file=sys.stderr, flush=True)
        left = ALL - (time.monotonic() - begun)
        found[configuration.name] = _measured(configuration, min(ONE, left))
    return [_run(configuration, found[configuration.name]) for configuration in chosen]


def _run(configuration: Configuration, took: dict[str, Any]) -> dict[str, Any]:
    if "failed" in took:
        return {"name": configuration.name, **took}
    said = predicted(configuration)
    return {
        "name": configuration.name,
        "predicted": said,
        "measured": took,
        "errors": compared(said, took),
    }


def _measured(configuration: Configuration, seconds: float) -> dict[str, Any]:
    if seconds <= 0:
        return {"failed": f"no time left of {ALL} s"}
    command = [sys.executable, "-m", "bench.gpu.measure", configuration.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=HERE.parents[1],
                              env=os.environ | {"PYTHONPATH": "src:."})  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {seconds:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    took: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return took


def _card() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _keep(folder: Path, card: str, runs: list[dict[str, Any]]) -> None:
    """Written beside its place first, so that a run that is stopped leaves no half of one."""
    import torch

    from batchfit.trace.result import versions

    document = {
        "card": card,
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        "cuda": torch.version.cuda,
        "versions": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": runs,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', card.lower()).strip('-')}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
