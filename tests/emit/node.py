"""JavaScript answers for tests: one Node process for the whole run, asked in lines of JSON.

    values = evaluate(to_module([formula]), "formula", [[4, 8, 1], [1, 1, 0]])

gives for each list of arguments what the function returned, or a Thrown.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATIC = Path(__file__).resolve().parents[2] / "src/batchfit/web/static"

_SERVER = """
import { createInterface } from "node:readline";

const special = (key, value) =>
  typeof value === "number" && !Number.isFinite(value) ? { number: String(value) } : value;

for await (const line of createInterface({ input: process.stdin })) {
  const { path, name, calls } = JSON.parse(line);
  const results = [];
  try {
    const called = (await import(path))[name];
    for (const call of calls) {
      try {
        results.push({ value: called(...call) });
      } catch (error) {
        results.push({ error: { ...error, name: error.name, message: error.message } });
      }
    }
  } catch (error) {
    results.length = 0;
    results.push({ broken: String(error.stack) });
  }
  process.stdout.write(JSON.stringify(results, special) + "\\n");
}
"""


@dataclass(frozen=True)
class Thrown:
    """What JavaScript threw instead of giving a value: its name, its message and its other properties."""

    name: str
    message: str
    properties: dict[str, Any]


class Node:
    """A running Node and the folder that it imports modules from: a copy of the pages' own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="batchfit-node-"))
        for module in STATIC.glob("*.js"):
            shutil.copy(module, self.folder)
        (self.folder / "package.json").write_text('{"type": "module"}')
        (self.folder / "server.mjs").write_text(_SERVER)
        self.process = subprocess.Popen(
            ["node", str(self.folder / "server.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        atexit.register(self.close)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, path: Path, name: str, calls: Sequence[Sequence[object]]) -> list[Any]:
        question = json.dumps({"path": str(path), "name": name, "calls": calls}, allow_nan=False)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        results = json.loads(self.process.stdout.readline(), object_hook=_special, parse_int=_whole)
        for result in results:
            if "broken" in result:
                raise AssertionError(result["broken"])
        return [_result(result) for result in results]


def _whole(text: str) -> int | float:
    """JavaScript writes whole floats like integers; beyond 2^53 their last digits are not the number's own."""
    return int(text) if abs(int(text)) <= 2**53 else float(text)


def _special(found: dict[str, Any]) -> Any:
    return float(found["number"]) if found.keys() == {"number"} else found


def _result(result: dict[str, Any]) -> Any:
    if "error" not in result:
        return result.get("value")
    error = dict(result["error"])
    return Thrown(error.pop("name"), error.pop("message"), error)


@functools.cache
def node() -> Node:
    return Node()


def evaluate(js_module: str | Path, function: str, calls: Sequence[Sequence[object]]) -> list[Any]:
    """What the exported `function` of a module gives for each list of arguments.

    The module is given as its source or as the path of a file. Infinity and NaN come as floats.
    """
    running = node()
    if isinstance(js_module, Path):
        path = js_module
    else:
        path = running.folder / f"{hashlib.sha256(js_module.encode()).hexdigest()}.js"
        if not path.exists():
            path.write_text(js_module, encoding="utf-8")
    return running.ask(path, function, calls)
