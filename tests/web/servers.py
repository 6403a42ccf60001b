"""Real servers in processes of their own: batchfit's, and PostgreSQL's in a folder that is thrown away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import batchfit

#: Where this batchfit is, from whatever folder a server is started.
SOURCES = Path(batchfit.__file__).parent.parent


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Serving:
    """A running `batchfit serve`."""

    process: subprocess.Popen[str]
    port: int
    complaints: Path

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> HTTPConnection:
        """A connection to it."""
        return HTTPConnection("127.0.0.1", self.port, timeout=30)

    def data(self, path: str) -> Any:
        """A JSON document that it answers with."""
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return json.load(response)

    def post(self, path: str, **fields: str) -> HTTPResponse:
        """What it answers to JSON."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(fields).encode(), headers)
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=10)
        return answer

    def stop(self, sent: int = signal.SIGTERM) -> int:
        """Sends a signal and waits: the exit status."""
        self.process.send_signal(sent)
        return self.process.wait(40)


@contextmanager
def served(folder: Path, *arguments: str, **environment: str) -> Iterator[Serving]:
    """`batchfit serve` on a free port, with its data in a folder; killed in the end if it still runs."""
    port = free_port()
    complaints = folder / f"stderr-{port}.txt"
    with complaints.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "batchfit", "serve", "--port", str(port), *arguments],
            env=os.environ
            | {"BATCHFIT_DATA": str(folder / "data"), "PYTHONPATH": str(SOURCES)}
            | environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )
    server = Serving(process, port, complaints)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                server.data("/healthz.json")
                break
            except OSError:
                assert process.poll() is None, complaints.read_text()
                assert time.monotonic() < deadline, f"the server did not answer: {complaints.read_text()}"
                time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait(10)


def postgres_binaries() -> Path | None:
    """The folder of Debian's PostgreSQL; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[4]))
    return found[-1].parent if found else None


class Postgres:
    """A PostgreSQL server of one's own: reached through a socket in its folder, by nobody else."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder = binaries, folder
        self._run("initdb", "--auth=trust", "--username=batchfit", "--no-sync", "-D", str(folder / "data"))

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://batchfit@/postgres?host={self._folder}"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}'"
        self._run(
            "pg_ctl", "start", "-w", "-o", options, "-D", str(self._folder / "data"), "-l", str(self._log)
        )

    def stop(self, how: str) -> None:
        """Stops it: "fast", or "immediate" as if it had crashed."""
        self._run("pg_ctl", "stop", "-w", "-m", how, "-D", str(self._folder / "data"))

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _run(self, program: str, *arguments: str) -> None:
        # PostgreSQL refuses to run as root.
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*user, str(self._binaries / program), *arguments]
        # Not through a pipe: the server that pg_ctl starts would hold it open.
        with (self._folder / f"{program}.txt").open("w+") as output:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/")
            output.seek(0)
            said = output.read()
        log = self._log.read_text() if self._log.exists() else ""
        assert done.returncode == 0, f"{program}: {said}\n{log}"


@contextmanager
def postgres(binaries: Path) -> Iterator[Postgres]:
    """A new server, running; gone in the end."""
    # The path of a socket is short: pytest's folders are too deep.
    folder = Path(tempfile.mkdtemp(prefix="batchfit-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        database = Postgres(binaries, folder)
        database.start()
        try:
            yield database
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                database.stop("immediate")
    finally:
        shutil.rmtree(folder)
