"""How long `batchfit calc` takes as a whole process, against a bare interpreter: the floor it cannot go below.

Run it with the interpreter that batchfit is installed in: .venv/bin/python bench/speed/startup.py
The two are run in turns, so that a machine that drifts slows both, and the ratio is taken pair by pair.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

#: What is asked of the command (the ratio to a bare interpreter, and the peak resident memory in bytes).
MOST_RATIO, MOST_BYTES = 8.0, 40 * 2**20


def run(arguments: list[str]) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of one process."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{arguments} failed: {process.stderr.read().decode() if process.stderr else ''}")
    if process.stderr:
        process.stderr.close()
    process.returncode = 0
    return seconds, usage.ru_maxrss * 1024


def main() -> int:
    """Prints the table; exit status 1 where a limit is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=15, help="pairs of runs, after one that is not counted")
    runs = options.parse_args().runs
    bare, calc = ["-c", "pass"], ["-m", "batchfit", "calc", "--json"]
    run(bare), run(calc)
    pairs = [(run(bare), run(calc)) for _ in range(runs)]
    ratios = sorted(c[0] / b[0] for b, c in pairs)
    median = statistics.median(ratios)
    peak = max(c[1] for _, c in pairs)
    print(f"bare interpreter   {statistics.median(b[0] for b, _ in pairs) * 1000:7.1f} ms (the floor)")
    print(f"batchfit calc      {statistics.median(c[0] for _, c in pairs) * 1000:7.1f} ms")
    print(
        f"ratio              {median:7.2f}    pair by pair, {ratios[0]:.2f} to {ratios[-1]:.2f}; at most {MOST_RATIO}"
    )
    print(f"peak memory        {peak / 2**20:7.1f} MiB   at most {MOST_BYTES / 2**20:.0f}")
    return int(median > MOST_RATIO or peak > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
