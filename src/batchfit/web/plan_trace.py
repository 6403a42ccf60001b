"""Traces for the planner's page, where the server is started to allow them: each in a process of its own, a few at a
time, that ends when its time or memory is up or nobody waits for it any more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import batchfit
from batchfit.errors import BadInput

#: Wall seconds that a trace may take, processor seconds, and bytes of address space, of which PyTorch alone maps some.
MOST_SECONDS, MOST_BYTES = 180, 12 << 30
#: Traces at a time: each takes a core.
AT_ONCE = 2
#: The longest line that is read of a trace: a model's profiles.
_LONGEST_LINE = 16 << 20

#: What a trace sees of the server's environment: where programs and modules are, nothing else.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class Step:
    """How far a trace is, from 0 to 1; at the end its profiles, as data."""

    done: float
    what: str = ""
    profiles: tuple[dict[str, Any], ...] = ()


class Tracer:
    """Traces configs. `allowed` is False where the server was not started to do it."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self._running = 0

    async def trace(self, config: Mapping[str, Any]) -> AsyncGenerator[Step, None]:
        """The steps of a trace. Raises BadInput on "own" where the config cannot be traced, or not now."""
        if not self.allowed:
            raise BadInput("own", "cannot be traced here: this server was not started with --allow-trace")
        if self._running >= AT_ONCE:
            raise BadInput(
                "own",
                "cannot be traced now: {limit} traces are running; try again in a minute",
                limit=AT_ONCE,
            )
        self._running += 1
        try:
            async with aclosing(_traced(config)) as steps:
                async for step in steps:
                    yield step
        finally:
            self._running -= 1


async def _traced(config: Mapping[str, Any]) -> AsyncGenerator[Step, None]:
    with tempfile.TemporaryDirectory(prefix="batchfit-trace-") as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "batchfit.web.trace_worker",
            str(MOST_SECONDS),
            str(MOST_BYTES),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env=_environment(folder),
            limit=_LONGEST_LINE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(MOST_SECONDS), aclosing(_steps(process, config)) as steps:
                async for step in steps:
                    yield step
        except TimeoutError:
            raise BadInput("own", "took more than {limit} seconds to trace", limit=MOST_SECONDS) from None
        finally:
            await _end(process)


async def _steps(
    process: asyncio.subprocess.Process, config: Mapping[str, Any]
) -> AsyncGenerator[Step, None]:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(config).encode())
        await process.stdin.drain()
    process.stdin.close()
    while line := await process.stdout.readline():
        said = json.loads(line)
        if "error" in said:
            raise BadInput(
                "own", "cannot be traced: {reason}", reason=f"{said['field']} {said['error']}"[:2000]
            )
        if "profiles" in said:
            yield Step(1.0, profiles=tuple(said["profiles"]))
            return
        yield Step(said["done"], said["what"])
    raise BadInput(
        "own", "could not be traced: the trace ended without an answer, for want of memory or time"
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the process with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()


def _environment(folder: str) -> dict[str, str]:
    """As little as the trace needs; libraries keep off the network and write into a folder that goes with it."""
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    places = [str(Path(batchfit.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in places if place)
    return kept | {
        "HOME": folder,
        "TMPDIR": folder,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
