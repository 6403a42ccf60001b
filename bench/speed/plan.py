"""How fast planning is: a whole process from a saved profile, and candidates scored per second.

Run it with the interpreter that batchfit is installed in: .venv/bin/python bench/speed/plan.py

The process's processor time is taken in turns with the floor it cannot go below, an interpreter that imports click
and numpy and reads the profiles' text, and the ratio is taken pair by pair. Scoring is timed at one size and at twice
it, to see that its cost is linear; its floor is numpy going over as many numbers once for each column of the scores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from batchfit.gpus import find_gpu  # noqa: E402
from batchfit.planning.options import options  # noqa: E402
from batchfit.planning.rank import Scores  # noqa: E402
from batchfit.planning.request import Request  # noqa: E402
from batchfit.planning.search import best_first, search  # noqa: E402
from batchfit.planning.target import Target  # noqa: E402
from tests.planning.decoder import SMALL, decoder  # noqa: E402

#: What is asked of it: milliseconds of the process, candidates per second and core.
MOST_MILLISECONDS, LEAST_PER_SECOND = 250.0, 1e6


def process_seconds(arguments: list[str]) -> float:
    """Processor seconds of one process, which on an idle machine are its wall seconds."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    if status:
        raise SystemExit(f"{arguments} failed")
    return usage.ru_utime + usage.ru_stime


def measure_process(runs: int) -> bool:
    """Prints the whole process beside its floor; whether the median is fast enough."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}.json" for name in ("none", "full")]
        for path, checkpointing in zip(paths, ("none", "full"), strict=True):
            decoder(checkpointing=checkpointing).save(path)
        floor = ["-c", f"import click, numpy, json; [json.load(open(path)) for path in {paths!r}]"]
        asked = ["--batch", "256", "--seq-len", "4096", "--gpu", "h100-80gb", "--gpus", "8", "--json"]
        command = ["-m", "batchfit", "plan", *paths, *asked]
        process_seconds(floor), process_seconds(command)
        pairs = [(process_seconds(floor), process_seconds(command)) for _ in range(runs)]
    ratios = sorted(whole / bare for bare, whole in pairs)
    taken = statistics.median(whole for _, whole in pairs) * 1000
    print(f"floor (imports)   {statistics.median(bare for bare, _ in pairs) * 1000:7.1f} ms")
    print(f"batchfit plan     {taken:7.1f} ms   at most {MOST_MILLISECONDS:.0f}")
    print(
        f"ratio             {statistics.median(ratios):7.2f}    pair by pair, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    )
    return taken <= MOST_MILLISECONDS


def scored(batch: int) -> tuple[int, float, Scores]:
    """Candidates and processor seconds of scoring and ranking every way to come near `batch`."""
    target = Target(batch, batch * 4 // 5, batch * 6 // 5)
    request = Request(target=target, gpu=find_gpu("h100-80gb"), gpus=8, replicas=8, seq_len=512)
    found = options([decoder(SMALL)], request)
    begun = time.process_time()
    scores = search(found, request)
    best_first(scores, found)
    return len(scores), time.process_time() - begun, scores


def measure_scoring(runs: int) -> bool:
    """Prints candidates per second and core at two sizes; whether they are enough and the cost is linear."""
    rates = {}
    for batch in (1_000_000, 2_000_000):
        trials = [scored(batch) for _ in range(runs)]
        count, seconds = trials[0][0], min(trial[1] for trial in trials)
        rates[batch] = count / seconds
        columns = [getattr(trials[0][2], name) for name in ("micro_batch", "drift", "peak_bytes", "seconds")]
        begun = time.process_time()
        for column in columns:
            np.add(column, 1)
        floor = time.process_time() - begun
        print(
            f"{count:9,} candidates {seconds:6.2f} s, {rates[batch]:11,.0f} per second; floor {floor:.3f} s"
        )
    first, second = rates.values()
    print(f"rate at twice the batch over rate at once: {second / first:.2f} (1 is linear)")
    return min(rates.values()) >= LEAST_PER_SECOND and second / first > 0.6


def main() -> int:
    """Prints both; exit status 1 where a limit is missed."""
    options_ = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options_.add_argument(
        "--runs", type=int, default=9, help="pairs of processes, after one that is not counted"
    )
    runs = options_.parse_args().runs
    fine = measure_process(runs)
    return int(not (measure_scoring(max(2, runs // 3)) and fine))


if __name__ == "__main__":
    sys.exit(main())
