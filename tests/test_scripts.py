"""The two commands of the README on this checkout: what scripts/serve serves answers."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.browser
def test_serve_makes_its_environment_and_answers() -> None:
    port = free_port()
    server = subprocess.Popen(
        [ROOT / "scripts" / "serve", "--port", str(port)],
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        page = ""
        while not page and time.monotonic() < deadline and server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/en/gradient-accumulation") as answer:
                    page = answer.read().decode()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.3)
        assert "Gradient accumulation memory" in page, f"exit status {server.poll()}"
    finally:
        os.killpg(server.pid, signal.SIGINT)
        output, _ = server.communicate(timeout=20)
    assert "Traceback" not in output
    assert server.returncode in (0, 130, -signal.SIGINT), output
