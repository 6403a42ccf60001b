"""Traces for many questions: each distinct one once, kept in a cache, in worker processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import local
from typing import Any

from batchfit.cache import cache_folder, versions
from bench.accuracy.eras import era_path, era_pins, era_torch
from bench.accuracy.question import Question

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A trace, the libraries it is made with (None: those installed), and the micro-batches asked about."""

    key: str
    era: str | None
    micro_batches: tuple[int, ...]

    def path(self) -> Path:
        """Where the answer is kept: under all that decides it, the tracer's own sources included."""
        era = self.era and [*era_pins(self.era), era_torch(self.era)]
        decides = [self.key, era, versions(), _sources()]
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
        return cache_folder() / "accuracy" / f"{digest}.json"


def wanted(questions: Iterable[Question]) -> list[Wanted]:
    """The distinct traces that questions need, each with all the micro-batches asked about."""
    asked: dict[tuple[str, str | None], set[int]] = defaultdict(set)
    for question in questions:
        batches = asked[question.key, question.era]
        batches.add(question.micro_batch)
        if question.next_batch is not None:
            batches.add(question.next_batch)
    return [Wanted(key, era, tuple(sorted(batches))) for (key, era), batches in asked.items()]


def answers(
    traces: Iterable[Wanted], processes: int, tell: Callable[[int, int], None]
) -> dict[tuple[str, str | None], dict[str, Any]]:
    """The answer to each trace, from the cache or from a worker. With no processes only what is kept is answered, and
    once it is interrupted what was done till then. `tell` is given how many are done, of how many.
    """
    traces = list(traces)
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    missing = []
    for trace in traces:
        kept = _kept(trace)
        if kept is None:
            missing.append(trace)
        else:
            found[trace.key, trace.era] = kept
    tell(len(found), len(traces))
    if not processes:
        return found
    with suppress(KeyboardInterrupt), _Workers(processes) as workers:
        for trace, answer in workers.run(missing):
            _keep(trace, answer)
            found[trace.key, trace.era] = answer
            tell(len(found), len(traces))
    return found


def _kept(trace: Wanted) -> dict[str, Any] | None:
    """The kept answer, where it knows all the micro-batches asked about."""
    try:
        kept = json.loads(trace.path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept["answer"] if set(trace.micro_batches) <= set(kept["micro_batches"]) else None


def _keep(trace: Wanted, answer: dict[str, Any]) -> None:
    path = trace.path()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
            json.dump({"micro_batches": trace.micro_batches, "answer": answer}, file)
        os.replace(file.name, path)


_digest: list[str] = []

#: Modules beside this one that only ask or tell. All others decide a trace.
_ASK_OR_TELL = {"__main__", "beside", "eras", "explain", "peers", "picture", "question", "report", "rows", "scoring",
                "summary", "throughput", "tracing"}  # fmt: skip


def _sources() -> str:
    """A digest of the sources that decide a trace."""
    if not _digest:
        files = sorted((ROOT / "src" / "batchfit" / "trace").rglob("*.py"))
        files += sorted(file for file in Path(__file__).parent.glob("*.py") if file.stem not in _ASK_OR_TELL)
        whole = b"".join(file.read_bytes() for file in files)
        _digest.append(hashlib.sha256(whole).hexdigest())
    return _digest[0]


class _Workers:
    """Worker processes, one for each thread and era, started when first needed and stopped at the end."""

    def __init__(self, processes: int) -> None:
        self._pool = ThreadPoolExecutor(processes)
        self._mine = local()
        self._all: list[subprocess.Popen[str]] = []

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.terminate()
            process.wait()

    def run(self, traces: Iterable[Wanted]) -> Iterator[tuple[Wanted, dict[str, Any]]]:
        """Each trace with its answer, as they come."""
        # One era after the other, so that a thread seldom starts a new process.
        ordered = sorted(traces, key=lambda trace: (trace.era or "", trace.key))
        futures = {self._pool.submit(self._answer, trace): trace for trace in ordered}
        for future in as_completed(futures):
            yield futures[future], future.result()

    def _answer(self, trace: Wanted) -> dict[str, Any]:
        process = self._process(trace.era)
        assert process.stdin is not None
        assert process.stdout is not None
        request = {
            "trace": json.loads(trace.key),
            "micro_batches": trace.micro_batches,
            "torch": trace.era and era_torch(trace.era),
        }
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._mine.process = None
            return {"error": f"the process that traced it ended with status {process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _process(self, era: str | None) -> subprocess.Popen[str]:
        if getattr(self._mine, "process", None) is not None and self._mine.era == era:
            return self._mine.process  # type: ignore[no-any-return]
        if getattr(self._mine, "process", None) is not None:
            self._mine.process.terminate()
        paths = [str(era_path(era))] if era else []
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, str(ROOT / "src"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.accuracy.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
            process_group=0,  # Ctrl-C is not for it: what it broke off would be taken for an answer
        )
        self._mine.process, self._mine.era = process, era
        self._all.append(process)
        return process
