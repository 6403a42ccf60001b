"""What an operator relies on: ids, the access log, figures, rates, time limits, and a clean way out."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from batchfit.calculator import Calculator
from batchfit.errors import BadInput
from batchfit.languages import languages
from batchfit.web import server
from batchfit.web.access import AccessLog
from batchfit.web.app import create_app
from batchfit.web.limits import Addresses, Rates
from batchfit.web.metrics import Metrics
from batchfit.web.server import Impatient
from batchfit.web.store import Store
from tests.web.html import parse
from tests.web.servers import served
from tests.web.test_app import PATH
from tests.web.tiny import CALCULATOR as TINY

ORIGIN = "http://batchfit.test"
ROOT = Path(__file__).parent.parent.parent


def an_app(*calculators: Calculator, **options: Any) -> ASGIApp:
    """The app with a small shelf, its pages in memory."""
    return create_app(calculators or None, origin=ORIGIN, **options)


def a_client(app: ASGIApp, address: str = "192.0.2.7") -> TestClient:
    return TestClient(app, base_url=ORIGIN, client=(address, 5000), follow_redirects=False)


# ---- Ids and the access log -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["7", "01J9ZK3V2Q-abc_DEF.~", "a" * 100, "2f0c/1+x="])
def test_an_id_that_a_request_has_stays_with_it(client: TestClient, given: str) -> None:
    assert client.get("/en/", headers={"X-Request-Id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", [None, "", "a b", "a" * 101, '"}\\n', "ä"])
def test_a_request_without_a_usable_id_gets_one(client: TestClient, given: str | None) -> None:
    headers = {} if given is None else {b"X-Request-Id": given.encode("latin-1")}
    for path in ("/en/", "/en/nothing", "/static/nothing", f"/en/{PATH}?{'x' * 3000}"):
        ids = {client.get(path, headers=headers).headers["x-request-id"] for _ in range(2)}
        assert len(ids) == 2
        assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_access_log_has_a_line_for_each_request_and_nothing_personal(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    client = a_client(an_app(TINY, log=AccessLog(file)))
    answers = [
        client.get(f"/en/{TINY.slug}?replicas=7", headers={"User-Agent": "Secret/1", "X-Request-Id": "abc"}),
        client.get(f"/en/{TINY.slug}"),
        client.get("/en/%22%0A%5C?secret"),
        client.post("/en/", content=b"secret"),
    ]
    noted = lines(file)
    assert (
        [each["status"] for each in noted] == [each.status_code for each in answers] == [200, 200, 404, 405]
    )
    assert [each["path"] for each in noted] == [f"/en/{TINY.slug}"] * 2 + ['/en/"\n\\', "/en/"]
    assert noted[0]["request_id"] == "abc"
    assert [each["method"] for each in noted] == ["GET"] * 3 + ["POST"]
    assert all(
        set(each) == {"time", "request_id", "method", "path", "status", "bytes", "ms"} for each in noted
    )
    assert all(datetime.fromisoformat(str(each["time"])).tzinfo for each in noted)
    assert [each["bytes"] for each in noted] == [int(each.headers["content-length"]) for each in answers]
    for personal in ("192.0.2.7", "replicas", "Secret", "secret"):
        assert personal not in file.read_text()


def test_queries_are_noted_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    a_client(an_app(TINY, log=AccessLog(file, queries=True))).get(f'/en/{TINY.slug}?replicas=7&"=ü')
    assert lines(file)[0]["query"] == "replicas=7&%22=%C3%BC"


def test_a_log_that_is_moved_away_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchfit.web.access._LOOK", 0.0)
    file, log = tmp_path / "access.log", AccessLog(tmp_path / "access.log")
    client = a_client(an_app(TINY, log=log))
    client.get("/en/")
    file.rename(tmp_path / "access.log.1")
    client.get("/de/")
    client.get("/fr/")
    log.close()
    assert [each["path"] for each in lines(tmp_path / "access.log.1")] == ["/en/"]
    assert [each["path"] for each in lines(file)] == ["/de/", "/fr/"]


# ---- The garbage collector ------------------------------------------------------------------------------------


#: In a process of its own, since what is put aside is put aside for a whole process. One is asked for all objects that
#: are looked at only once nothing else runs: tuples that are being made are among them.
_PUT_ASIDE = """
import gc, threading
from starlette.testclient import TestClient
from batchfit.web.app import create_app
from batchfit.web.collector import YOUNG, at_rest
from batchfit.web.model_catalogue import ModelCatalogue
from tests.web.tiny import CALCULATOR

def looked_at():
    return any(each is line for each in gc.get_objects())

models, read = ModelCatalogue(), threading.Event()
models.entries = models.entries[:2]
with at_rest() as put_aside:
    started = gc.get_freeze_count()
    models.warm(read.set)
    assert read.wait(120)
    line = models.profiles(models.entries[1].name)[0].phases["first_micro"][0]
    assert gc.get_threshold()[0] == YOUNG
    assert looked_at() and gc.get_freeze_count() <= started
    read.clear()
    models.warm(lambda: [put_aside(), read.set()])
    assert read.wait(120)
    assert not looked_at() and gc.get_freeze_count() > started > 10_000
put_aside()
assert looked_at() and gc.get_freeze_count() == 0 and gc.get_threshold()[0] != YOUNG

ModelCatalogue.warm = lambda models, then: then()
with TestClient(create_app((CALCULATOR,))) as client:
    assert client.get("/en/").status_code == 200
    assert gc.get_freeze_count() > 10_000
assert gc.get_freeze_count() == 0
"""


def test_what_is_there_for_good_is_put_aside_until_the_end() -> None:
    run = subprocess.run([sys.executable, "-c", _PUT_ASIDE], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# ---- Figures --------------------------------------------------------------------------------------------------


def test_figures_count_requests_by_route(tmp_path: Path) -> None:
    client = a_client(an_app(TINY, metrics=Metrics()))
    for path in (
        f"/en/{TINY.slug}",
        f"/de/{TINY.slug}?replicas=7",
        f"/de/{TINY.slug}?replicas=x",
        "/a/b/c",
        "/a/b/d",
    ):
        client.get(path)
    client.request("BREW", "/en/")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    figures = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    counts = {
        name: float(count) for name, count in figures.items() if name.startswith("batchfit_requests_total")
    }
    assert counts == {
        'batchfit_requests_total{method="GET",route="kept",status="200"}': 1,
        'batchfit_requests_total{method="GET",route="/{lang}/{slug}",status="200"}': 1,
        'batchfit_requests_total{method="GET",route="/{lang}/{slug}",status="422"}': 1,
        'batchfit_requests_total{method="GET",route="none",status="404"}': 2,
        'batchfit_requests_total{method="other",route="/{lang}/",status="405"}': 1,
    }
    assert float(figures['batchfit_request_seconds_count{route="none"}']) == 2
    assert "process_resident_memory_bytes" in figures


def test_figures_are_shown_only_where_that_is_asked_for(client: TestClient) -> None:
    assert client.get("/metrics").status_code in (404, 308)
    assert client.get("/metrics", follow_redirects=True).status_code == 404


# ---- Rates ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited_app() -> ASGIApp:
    return an_app(rates=Rates(answers="3/minute", feedback="none"))


@pytest.mark.parametrize("number", range(len(languages())))
def test_beyond_the_rate_there_is_a_page_that_says_when_to_come_again(
    limited_app: ASGIApp, number: int
) -> None:
    lang = languages()[number]
    client = a_client(limited_app, f"198.51.100.{number}")
    for _ in range(3):
        assert client.get(f"/{lang}/{PATH}?micro_batch=3").status_code == 200
    answer = client.get(f"/{lang}/{PATH}?micro_batch=3")
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    root = parse(answer.text)
    assert root.one("html").attributes["lang"] == lang
    title = root.one("h1").text
    assert (title == "Too many requests came from your network") == (lang == "en")
    advice = root.one("p", class_="purpose").text
    assert re.search(r"\b1\b|1(?=分|분)", advice), advice
    assert client.get(f"/{lang}/{PATH}.json").json() == {"errors": [{"message": title}]}
    # What is in memory costs nothing, and an answer there is for everyone else.
    assert client.get(f"/{lang}/{PATH}").status_code == 200
    assert client.get("/healthz.json").status_code == 200
    assert (
        a_client(limited_app, f"203.0.113.{number}").get(f"/{lang}/{PATH}?micro_batch=3").status_code == 200
    )


def test_one_may_come_again_when_told_and_not_before() -> None:
    client = a_client(an_app(TINY, rates=Rates(answers="2/2second", feedback="none")))
    path = f"/en/{TINY.slug}.json"
    assert [client.get(path).status_code for _ in range(3)] == [200, 200, 429]
    wait = int(client.get(path).headers["retry-after"])
    assert wait in (1, 2)
    time.sleep(wait - 0.9)
    assert client.get(path).status_code == 429
    time.sleep(0.95)
    assert client.get(path).status_code == 200


def test_an_address_is_only_counted_under_a_hash_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = Addresses()
    today = hashes.hashed("192.0.2.7")
    assert today == hashes.hashed("192.0.2.7") != hashes.hashed("192.0.2.8")
    assert today != Addresses().hashed("192.0.2.7")
    tomorrow = time.time() + 24 * 3600
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    assert today != hashes.hashed("192.0.2.7")
    assert "192.0.2.7" not in repr(vars(hashes))


def test_one_customer_s_network_is_one_address() -> None:
    hashed = Addresses().hashed
    assert hashed("2001:db8:1:2::1") == hashed("2001:db8:1:2:ffff::9") != hashed("2001:db8:1:3::1")
    assert hashed("::ffff:192.0.2.7") == hashed("192.0.2.7")
    assert hashed("fe80::1%eth0") == hashed("fe80::2")
    assert hashed("") != hashed("testclient")


@pytest.mark.parametrize("text", ["", "many", "0/minute", "-3/minute", "5 per blink", "None"])
def test_a_rate_that_is_none(text: str) -> None:
    with pytest.raises(
        BadInput, match="must be a rate such as 600/minute, 20/hour or 5/second, or none; you gave"
    ) as wrong:
        Rates(answers=text, feedback="none")
    assert wrong.value.field == "rate_limit"


@pytest.mark.parametrize(
    ("trusted", "statuses"), [((), [200, 200, 429]), (("--trusted-proxy", "127.0.0.0/8"), [200] * 3)]
)
def test_only_a_trusted_proxy_tells_addresses(
    tmp_path: Path, trusted: tuple[str, ...], statuses: list[int]
) -> None:
    options = ("--no-feedback", "--rate-limit", "2/minute", *trusted)
    with served(tmp_path, *options) as running, closing(running.connect()) as connection:
        found = []
        for number in range(3):
            headers = {"X-Forwarded-For": f"198.51.100.{number}", "X-Forwarded-Proto": "https"}
            connection.request("GET", f"/en/{PATH}?micro_batch=3", headers=headers)
            with connection.getresponse() as response:
                found.append(response.status)
                page = response.read().decode()
                if response.status == 200:
                    assert f'rel="canonical" href="{"https" if trusted else "http"}://127.0.0.1' in page
        assert found == statuses


# ---- Slow requests, and the end -------------------------------------------------------------------------------


@contextmanager
def impatient(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[tuple[str, int]]:
    """The app behind the server that gives requests' heads so many seconds."""
    monkeypatch.setattr(server, "LONGEST_HEAD", seconds)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            create_app([TINY]),
            http=Impatient,
            ws="none",
            lifespan="off",
            log_level="critical",
            timeout_keep_alive=30,
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [free]})
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield free.getsockname()
        finally:
            running.should_exit = True
            thread.join(10)


@pytest.mark.parametrize("begun", [b"", b"GET /en/ HT", b"GET /en/ HTTP/1.1\r\nHost: a\r\nX: "])
def test_a_head_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    with impatient(monkeypatch, 0.4) as address, socket.create_connection(address, timeout=5) as connection:
        connection.sendall(begun)
        asked = time.monotonic()
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert 0.2 < time.monotonic() - asked < 3
        assert connection.recv(1000) == b""


def test_a_head_in_drops_is_given_up_even_after_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with impatient(monkeypatch, 0.5) as address, socket.create_connection(address, timeout=5) as connection:
        whole = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        connection.sendall(whole)
        assert b"200 OK" in connection.recv(10_000)
        time.sleep(0.8)  # a connection may rest between requests
        connection.sendall(whole)
        assert b"200 OK" in connection.recv(10_000)
        connection.settimeout(0.1)
        for drop in b"GET /en/ HTTP/1.1\r\nHost: batchfit.test":
            connection.sendall(bytes([drop]))
            with suppress(TimeoutError):
                assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
                break
        else:
            pytest.fail("drop after drop was taken")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_finished_before_the_server_leaves(
    tmp_path: Path, sent: signal.Signals
) -> None:
    body = json.dumps({"helpful": "yes", "page": "plan", "text": "on my way"}).encode()
    with served(tmp_path) as running, closing(running.connect()) as connection:
        connection.putrequest("POST", "/en/feedback.json")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:20])
        time.sleep(0.3)
        running.process.send_signal(sent)
        deadline = time.monotonic() + 10
        while refused(running.port) is False:
            assert time.monotonic() < deadline, "the server goes on taking connections"
            time.sleep(0.05)
        assert running.process.poll() is None
        connection.send(body[20:])
        with connection.getresponse() as response:
            assert response.status == 201
        assert running.process.wait(20) == 0
        assert "Traceback" not in running.complaints.read_text()
    store = Store(f"sqlite:///{tmp_path / 'data' / 'feedback.db'}")
    assert [each.text for each in store.between(None, None)] == ["on my way"]
    store.close()
    # What a database that was closed properly leaves behind is one file.
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["feedback.db"]


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


# ---- Under load -----------------------------------------------------------------------------------------------


def test_nothing_fails_under_load(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    expected = {
        f"/en/{PATH}": 200,
        "/ar/plan": 200,
        f"/de/{PATH}?micro_batch=3": 200,
        f"/ja/{PATH}.json?replicas=8": 200,
        f"/embed/fr/{PATH}": 200,
        "/en/plan.json?gpus=4": 200,
        f"/ko/{PATH}?micro_batch=x": 422,
        "/en/nothing": 404,
        "/openapi.json": 200,
    }
    found: Counter[tuple[str, int]] = Counter()
    over = time.monotonic() + 4

    def person(number: int) -> None:
        chosen = random.Random(number)
        with closing(running.connect()) as connection:
            while time.monotonic() < over:
                path = chosen.choice(list(expected))
                connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
                with connection.getresponse() as response:
                    response.read()
                found[path, response.status] += 1

    options = ("--rate-limit", "none", "--access-log", str(log), "--metrics")
    with served(tmp_path, *options) as running, ThreadPoolExecutor(8) as crowd:
        over = time.monotonic() + 4
        for done in [crowd.submit(person, number) for number in range(8)]:
            try:
                done.result()
            except (OSError, HTTPException) as error:
                pytest.fail(f"{error!r} after {found}: {running.complaints.read_text()}")
        assert running.stop() == 0
    assert {path for path, _ in found} == set(expected)
    assert dict(found.keys()) == expected
    noted = Counter(each["path"] for each in lines(log) if each["path"] != "/healthz.json")
    assert noted.total() == found.total()
    assert "Traceback" not in running.complaints.read_text()


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_the_load_test_runs() -> None:
    command = [sys.executable, "bench/speed/serve.py", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert re.search(r"^ratio +\d\.\d\d ", done.stdout, re.M), done.stdout + done.stderr
