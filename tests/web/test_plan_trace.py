"""Traces on the server, where it allows them: real ones of a small model, and what keeps them within limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from batchfit.errors import BadInput
from batchfit.web import plan_trace
from batchfit.web.app import create_app
from batchfit.web.plan_trace import Step, Tracer
from batchfit.web.trace_worker import lengths_of
from tests.planning.decoder import SMALL, decoder
from tests.running import run
from tests.web.html import parse

pytest.importorskip("transformers")

TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "_name_or_path": "someone/tiny",
}
ASKED = {"gpu": "rtx-4090", "gpus": "1", "batch": "64", "from": "own"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = create_app(allow_trace=True)
    with TestClient(app, base_url="http://batchfit.test", follow_redirects=False) as client:
        yield client


def steps(config: dict[str, Any], tracer: Tracer | None = None) -> list[Step]:
    async def all_of_them() -> list[Step]:
        return [step async for step in (tracer or Tracer(allowed=True)).trace(config)]

    return run(all_of_them())


def test_a_config_is_traced_with_progress_and_planned_with(client: TestClient) -> None:
    offered = parse(client.post("/en/plan", data={**ASKED, "own": json.dumps(TINY)}).text)
    assert offered.one("button", name="trace").attributes["value"] == "now"
    response = client.post("/en/plan/trace", data={"own": json.dumps(TINY)})
    assert response.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in response.text.splitlines()]
    done = [line["done"] for line in lines if "done" in line]
    assert done == sorted(done)
    assert done[-1] == 1
    assert len(done) > 5
    profiles = json.loads(lines[-1]["own"])
    assert {each["settings"]["checkpointing"] for each in profiles} == {"none", "full"}
    planned = parse(client.post("/en/plan", data={**ASKED, "own": lines[-1]["own"]}).text)
    assert "of tiny at 1,024 tokens" in planned.one(data_sentence="").text


def test_without_a_script_the_form_waits_for_the_trace(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def traced(config: dict[str, Any]) -> AsyncGenerator[Step, None]:
        yield Step(0.5, "half")
        yield Step(1.0, profiles=(json.loads(decoder(replace(SMALL, name="tiny")).to_json()),))

    monkeypatch.setattr(plan_trace, "_traced", traced)
    root = parse(client.post("/de/plan", data={**ASKED, "own": json.dumps(TINY), "trace": "now"}).text)
    assert "tiny" in root.one(data_sentence="").text
    assert root.one("textarea", id="own")._raw().strip().startswith('[{"batchfit_profile":1')


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "of its own"}, "which transformers"),
        ({"architectures": ["OfItsOwn"]}, "names the architecture 'OfItsOwn'"),
        ({"hidden_size": "many"}, "cannot be traced"),
    ],
)
def test_what_cannot_be_traced_is_said(client: TestClient, changed: dict[str, Any], said: str) -> None:
    response = client.post("/en/plan/trace", data={"own": json.dumps(TINY | changed)})
    assert said in json.loads(response.text.splitlines()[-1])["error"]


def test_a_trace_takes_no_more_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_trace, "MOST_SECONDS", 1)
    begun = time.monotonic()
    with pytest.raises(BadInput, match="took more than 1 seconds|ended without an answer"):
        steps(TINY)
    assert time.monotonic() - begun < 10


def test_a_trace_takes_no_more_than_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_trace, "MOST_BYTES", 300 << 20)  # less than PyTorch maps
    with pytest.raises(BadInput, match="want of memory|more memory"):
        steps(TINY)


def test_few_run_at_a_time_and_whoever_leaves_ends_theirs() -> None:
    async def crowd() -> None:
        tracer = Tracer(allowed=True)
        running = [tracer.trace(TINY) for _ in range(plan_trace.AT_ONCE)]
        for each in running:
            assert (await anext(each)).what == "loading PyTorch"
        with pytest.raises(BadInput, match="traces are running"):
            await anext(tracer.trace(TINY))
        children = _children()
        assert len(children) == plan_trace.AT_ONCE
        for each in running:
            await each.aclose()
        assert not _children() & children
        again = tracer.trace(TINY)
        await anext(again)
        await again.aclose()

    run(crowd())


def _children() -> set[int]:
    """The traces that this process has started and that still run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"trace_worker" in command and fields[0] != "Z":
            found.add(int(folder.name))
    return found


def test_a_trace_sees_little_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    environment = plan_trace._environment(str(tmp_path))
    assert "DATABASE_PASSWORD" not in environment
    assert environment["HOME"] == str(tmp_path)
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_the_worker_s_limits_hold() -> None:
    code = "from batchfit.web.trace_worker import limit; limit(5, 200 << 20); b = bytearray(1 << 30)"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MemoryError" in failed.stderr


@pytest.mark.parametrize(
    ("config", "lengths"),
    [
        (TINY, (256, 1024)),
        ({"vocab_size": 1, "max_position_embeddings": 131072}, (256, 16384)),
        ({"vocab_size": 1, "n_positions": 512}, (128, 512)),
        ({"vocab_size": 1}, (256, 16384)),
        ({"image_size": 224}, None),
        ({"vocab_size": 1, "max_source_positions": 1500}, None),
    ],
)
def test_lengths_that_a_trace_is_for(config: dict[str, Any], lengths: tuple[int, int] | None) -> None:
    assert lengths_of(config) == lengths
