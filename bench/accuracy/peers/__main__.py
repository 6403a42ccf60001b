"""Installs the tools where they are not, asks them all, and keeps what they say."""

from __future__ import annotations

import json
import subprocess
import sys

from batchfit.cache import cache_folder
from bench.accuracy import peers, report


def main() -> None:
    """See `bench.accuracy.peers`."""
    folder = cache_folder() / "peers"
    pins = peers.packages()
    stamp = folder / ".complete"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(pins):
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        subprocess.run([*command, "--upgrade", "--target", str(folder), *pins], check=True)
        stamp.write_text("\n".join(pins), encoding="utf-8")
    sys.path.append(str(folder))
    results = report.load()
    peers.KEPT.write_text(json.dumps(peers.compared(results), indent=1) + "\n", encoding="utf-8")
    report.write(results)
    print(peers.text(peers.load()))


if __name__ == "__main__":
    main()
