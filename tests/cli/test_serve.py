"""`batchfit serve`, run as a person runs it."""

import signal
import socket
import subprocess
import sys
import time
import urllib.request

from click.testing import CliRunner

from batchfit.cli import cli


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def fetch(address: str) -> str:
    """The page at an address, once the server is up."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5) as response:
                return str(response.read().decode())
        except OSError:
            assert time.monotonic() < deadline, "the server did not answer"
            time.sleep(0.1)


def test_it_serves_until_interrupted() -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "batchfit",
        "serve",
        "--port",
        str(port),
        "--public-url",
        "https://fit.example",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            page = fetch(f"http://127.0.0.1:{port}/de/gradient-accumulation?activation_per_sample=0,75")
            assert "https://fit.example/de/gradient-accumulation" in page
            assert '<span class="number" data-number="1">3</span>' in page
        finally:
            server.send_signal(signal.SIGINT)
            _, complaints = server.communicate(timeout=20)
    assert "Traceback" not in complaints


def test_a_public_url_is_one() -> None:
    run = CliRunner().invoke(cli, ["serve", "--public-url", "fit.example"])
    assert run.exit_code == 2
    assert "--public-url" in run.output
    assert "you gave fit.example" in run.output
