"""How many pages a second one worker of batchfit serves, against a bare Starlette response of the same size: the floor
that the server underneath sets.

Run it with the interpreter that batchfit is installed in: .venv/bin/python bench/speed/serve.py
Both are served by uvicorn in processes of their own and asked by wrk over loopback, in turns, so that a machine that
drifts slows both; the ratio is taken pair by pair. batchfit runs as `batchfit serve` does, with feedback, rate
limits and the access log.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

#: What is asked: pages a second, as a share of the bare response's.
LEAST_RATIO = 0.60
PAGE = "/en/gradient-accumulation"

BARE = """
import sys, uvicorn
from pathlib import Path
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = Path(sys.argv[2]).read_bytes()
async def page(request):
    return Response(body, media_type="text/html")
app = Starlette(routes=[Route("/{path:path}", page)])
uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning", server_header=False)
"""


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it is, and its process."""

    address: str
    pid: int

    def cpu_seconds(self) -> float:
        """The time that its process has had a core for itself."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one measurement found."""

    pages_a_second: float
    cpu_a_page: float


@contextmanager
def running(*command: str, port: int, folder: Path) -> Iterator[Server]:
    """A server, once it answers."""
    environment = os.environ | {"BATCHFIT_DATA": str(folder)}
    with (folder / f"{port}.txt").open("w") as output:
        server = subprocess.Popen([sys.executable, *command], env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{PAGE}", timeout=5).close()
                break
            except OSError as error:
                if server.poll() is not None or time.monotonic() > deadline:
                    said = (folder / f"{port}.txt").read_text()
                    raise SystemExit(f"the server did not start: {error}\n{said}") from None
                time.sleep(0.1)
        yield Server(f"http://127.0.0.1:{port}", server.pid)
    finally:
        server.terminate()
        server.wait(30)


def measure(server: Server, seconds: int) -> Measured:
    """What wrk measures over 16 connections; every answer has to be a 200."""
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-H", "Accept-Encoding: gzip", server.address + PAGE]
    before = server.cpu_seconds()
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = server.cpu_seconds() - before
    if "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"{server.address} failed under load:\n{said}")
    rate = re.search(r"Requests/sec:\s*([\d.]+)", said)
    answered = re.search(r"(\d+) requests in", said)
    if not rate or not answered:
        raise SystemExit(f"wrk said:\n{said}")
    return Measured(float(rate[1]), used / int(answered[1]))


def page_sent(server: Server) -> bytes:
    """The page as it goes over the wire, compressed."""
    request = urllib.request.Request(server.address + PAGE, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        body: bytes = answer.read()
        return body


def main() -> int:
    """Prints the table; exit status 1 where the ratio is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--rounds", type=int, default=12, help="pairs of measurements, after one that is not counted"
    )
    options.add_argument("--seconds", type=int, default=1, help="how long each measurement takes")
    given = options.parse_args()
    if not shutil.which("wrk"):
        raise SystemExit("this needs wrk: apt-get install wrk")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        log = str(folder / "access.log")
        ours = stack.enter_context(
            running(
                "-m", "batchfit", "serve", "--port", str(port), "--access-log", log, port=port, folder=folder
            )
        )
        page = folder / "page"
        page.write_bytes(page_sent(ours))
        port = free_port()
        bare = stack.enter_context(running("-c", BARE, str(port), str(page), port=port, folder=folder))
        assert page_sent(bare) == page.read_bytes()
        measure(bare, given.seconds), measure(ours, given.seconds)
        pairs = [(measure(bare, given.seconds), measure(ours, given.seconds)) for _ in range(given.rounds)]
        size = page.stat().st_size
    ratios = sorted(mine.pages_a_second / floor.pages_a_second for floor, mine in pairs)
    median = statistics.median(ratios)
    for name, of, note in (
        ("bare Starlette", [floor for floor, _ in pairs], "(the floor)"),
        ("batchfit serve", [mine for _, mine in pairs], f"of {size:,} bytes, compressed"),
    ):
        rate = statistics.median(each.pages_a_second for each in of)
        cpu = statistics.median(each.cpu_a_page for each in of) * 1e6
        print(f"{name:18} {rate:8,.0f} pages/s {note:28} {cpu:5.0f} µs of a core each")
    spread = f"pair by pair, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    print(f"ratio              {median:8.2f}    {spread}; at least {LEAST_RATIO:.2f}")
    cpu_ratio = statistics.median(floor.cpu_a_page / mine.cpu_a_page for floor, mine in pairs)
    print(f"ratio of work      {cpu_ratio:8.2f}    which other programs on the machine do not change")
    return int(median < LEAST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
