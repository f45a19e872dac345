"""Clients that lie, stall, vanish or come too often, and an engine that breaks."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from ds_jax.serving.mock import MockEngine
from tests.serving.running import Running, chat, eventually, running, script

ROOT = pathlib.Path(__file__).parents[2]
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(
        header_timeout_s=0.4, body_timeout_s=0.4, max_body_bytes=20_000, slow_reader_s=0.4
    ) as found:
        yield found


def head(length: int | None, *, more: str = "") -> bytes:
    size = "" if length is None else f"content-length: {length}\r\n"
    return (
        f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"{size}{more}\r\n"
    ).encode()


def reply(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = b""
    while more := connection.recv(65536):
        data += more
    return data


def error_of(data: bytes) -> Any:
    return json.loads(data.partition(b"\r\n\r\n")[2])["error"]


def test_a_client_killed_in_a_stream_ends_its_sequence(server: Running) -> None:
    before = server.engine.aborted
    body = json.dumps(chat("[[@4000]]", stream=True, max_tokens=4000)).encode()
    connection = server.connect()
    connection.sendall(head(len(body)) + body)
    assert b"200 OK" in connection.recv(4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    connection.close()
    eventually(lambda: server.engine.aborted == before + 1)
    assert server.engine.stats()["running"] == 0
    eventually(lambda: server.service.gate.admission.running == 0)


def test_a_client_that_does_not_wait_for_a_whole_answer_ends_its_sequence(server: Running) -> None:
    before = server.engine.aborted
    body = json.dumps(chat("[[@4000]]", max_tokens=4000)).encode()
    with server.connect() as connection:
        connection.sendall(head(len(body)) + body)
        eventually(lambda: server.engine.stats()["running"] == 1)
    eventually(lambda: server.engine.aborted == before + 1)
    eventually(lambda: server.service.in_flight == 0)


def test_a_client_that_does_not_read_is_cut_off(server: Running) -> None:
    before = server.engine.aborted
    body = json.dumps(chat("[[@7000]]", stream=True, max_tokens=7000, n=4)).encode()
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head(len(body)) + body)
        eventually(lambda: server.engine.aborted == before + 4, 20)
    text = server.http.get("/metrics").text
    assert re.search(r"ds_jax:slow_readers_cut_total\{.*\} [1-9]", text)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat", head(5)[:-2]])
def test_a_head_that_does_not_come_closes_the_connection(server: Running, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        assert reply(connection) == b""


def test_a_body_that_does_not_come_is_a_408(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(head(500) + b'{"model":')
        data = reply(connection)
    assert data.startswith(b"HTTP/1.1 408")
    assert "content-length" in error_of(data)["message"]


def test_a_body_longer_than_it_says_is_cut_there(server: Running) -> None:
    body = json.dumps(chat("hi")).encode()
    with server.connect() as connection:
        connection.sendall(head(len(body) - 1, more="connection: close\r\n") + body)
        data = reply(connection)
    assert data.startswith(b"HTTP/1.1 400")
    assert server.http.get("/health").status_code == 200


def test_a_large_body_is_refused_before_it_is_read(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(head(10**12))
        data = reply(connection)
    assert data.startswith(b"HTTP/1.1 413")


def test_a_large_body_without_length_is_refused(server: Running) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    answer = server.http.post(PATH, content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "EOF"),
        (b"{", "EOF"),
        (b"[1]", "object"),
        (b'{"model":"tiny","messages":[{"role":"user","content":"\xff\xfe"}]}', "JSON"),
        (b'{"model":"tiny","messages":[{"role":"user","content":"\\ud800"}]}', "JSON"),
        (b'{"a":' * 3000, "JSON"),
        (b"[" * 19_000, "JSON"),
        (b'{"model":NaN}', "JSON"),
        (b'{"model":1e999}', "JSON"),
    ],
)
def test_bodies_that_are_no_requests(server: Running, body: bytes, word: str) -> None:
    answer = server.http.post(PATH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_kinds_of_bodies_are_refused(server: Running, headers: dict[str, str]) -> None:
    answer = server.http.post(PATH, content=b"{}", headers=headers)
    assert answer.status_code == 415


def test_a_wrong_method_is_told_the_right_ones(server: Running) -> None:
    for path, allowed in ((PATH, "POST"), ("/v1/models", "GET, HEAD"), ("/health", "GET, HEAD")):
        answer = server.http.request("PATCH", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_methods_and_paths_that_are_not_there(server: Running) -> None:
    assert server.http.get(PATH).status_code == 405
    assert server.http.put("/health").status_code == 405
    answer = server.http.get("/nothing/here")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"


def test_foreign_pages_and_names_are_refused_without_keys(server: Running) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        answer = server.http.post(PATH, json=chat("hi"), headers=headers)
        assert answer.status_code == 403
    same = {"origin": server.url}
    assert server.http.post(PATH, json=chat("hi"), headers=same).status_code == 200


def test_many_silent_connections_are_closed_and_disturb_nobody(server: Running) -> None:
    connections = [server.connect() for _ in range(300)]
    assert server.http.post(PATH, json=chat("hi")).status_code == 200
    for connection in connections:
        assert connection.recv(1) == b""
        connection.close()


def test_request_ids_and_traces_come_back(server: Running) -> None:
    answer = server.http.get("/health", headers={"x-request-id": "my-id.1"})
    assert answer.headers["x-request-id"] == "my-id.1"
    answer = server.http.get("/health", headers={"x-request-id": "bad id\t<script>"})
    assert answer.headers["x-request-id"].startswith("req_")


# A broken engine ----------------------------------------------------------------------------------


def test_a_failed_engine_is_replaced_and_its_requests_are_told() -> None:
    seen = threading.Event()

    def restart() -> MockEngine:
        assert seen.wait(30)
        return MockEngine(script)

    with running(restart=restart, step_s=0.01) as server:
        answers: dict[str, Any] = {}

        def ask(name: str, **fields: Any) -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                body = chat("[[@500]]", max_tokens=500, **fields)
                answers[name] = client.post(PATH, json=body)

        threads = [
            threading.Thread(target=ask, args=("whole",)),
            threading.Thread(target=ask, args=("stream",), kwargs={"stream": True}),
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: server.engine.stats()["running"] == 2)
        time.sleep(0.1)
        broken = server.engine
        server.call(broken.fail)
        assert server.http.get("/ready").status_code == 503
        seen.set()
        for thread in threads:
            thread.join()
        assert answers["whole"].status_code == 500
        assert answers["whole"].json()["error"]["code"] == "engine_error"
        assert answers["stream"].status_code == 200
        lines = answers["stream"].text.strip().splitlines()
        assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "engine_error"
        assert "[DONE]" not in answers["stream"].text
        eventually(lambda: server.http.get("/ready").status_code == 200)
        assert server.engine is not broken
        assert server.http.post(PATH, json=chat("hi")).status_code == 200
        assert re.search(
            r"ds_jax:engine_restarts_total\{.*\} 1.0", server.http.get("/metrics").text
        )


def test_requests_while_the_engine_is_down_are_told_to_come_back() -> None:
    release = threading.Event()

    def slow_restart() -> Any:
        release.wait(10)
        raise RuntimeError("no device")

    with running(restart=slow_restart) as server:
        server.call(server.engine.fail)
        eventually(lambda: server.http.get("/ready").status_code == 503)
        answer = server.http.post(PATH, json=chat("hi"))
        release.set()
        assert answer.status_code == 503
        assert answer.headers["retry-after-ms"] == "2000"
        assert server.http.get("/health").status_code == 200


# Waiting and being sent away ----------------------------------------------------------------------


@contextlib.contextmanager
def busy(server: Running, count: int) -> Iterator[None]:
    """The engine has `count` long streams to do, running or waiting."""
    stop = threading.Event()

    def hold() -> None:
        with (
            httpx.Client(base_url=server.url, timeout=60) as client,
            client.stream("POST", PATH, json=chat("[[@7000]]", max_tokens=7000, stream=True)),
        ):
            stop.wait(30)

    threads = [threading.Thread(target=hold) for _ in range(count)]
    for thread in threads:
        thread.start()
    gate = server.service.gate.admission  # a request counts as in flight before it has its place
    eventually(lambda: gate.running + gate.num_waiting == count)
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_stream_that_waits_gets_comments_and_then_its_answer() -> None:
    with running(max_running=1, keep_alive_s=0.05, step_s=0.02) as server:
        lines: list[str] = []

        def wait() -> None:
            body = chat("hi", stream=True)
            with (
                httpx.Client(base_url=server.url, timeout=30) as client,
                client.stream("POST", PATH, json=body) as answer,
            ):
                lines.extend(answer.iter_lines())

        thread = threading.Thread(target=wait)
        with busy(server, 1):
            thread.start()
            eventually(lambda: server.service.gate.admission.num_waiting == 1)
            time.sleep(0.3)
        thread.join()
        assert lines[0] == ": keep-alive"
        assert lines.count(": keep-alive") >= 2
        assert lines[-2] == "data: [DONE]"


def test_a_waiting_client_that_leaves_gives_its_place_up() -> None:
    with running(max_running=1) as server, busy(server, 1):
        body = json.dumps(chat("hi")).encode()
        with server.connect() as connection:
            connection.sendall(head(len(body)) + body)
            eventually(lambda: server.service.gate.admission.num_waiting == 1)
        eventually(lambda: server.service.gate.admission.num_waiting == 0)
        assert server.engine.stats()["waiting"] == 0


def test_a_full_queue_answers_429_with_advice() -> None:
    with running(max_running=1, max_waiting=1, keep_alive_s=0.05) as server, busy(server, 2):
        answer = server.http.post(PATH, json=chat("hi"))
        assert answer.status_code == 429
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
        assert int(answer.headers["retry-after-ms"]) >= 1
        assert int(answer.headers["retry-after"]) >= 1
        claude = server.http.post(
            "/v1/messages",
            json={"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
        )
        assert claude.status_code == 429
        assert claude.json()["error"]["type"] == "rate_limit_error"
        text = server.http.get("/metrics").text
        assert re.search(r'vllm:admission_rejections_total\{.*reason="queue_full"\} 2.0', text)


def test_the_sdk_comes_back_when_it_is_told_to() -> None:
    with running(max_running=1, max_waiting=1, keep_alive_s=0.05, step_s=0.005) as server:
        server.service.gate.admission.hold_s = 0.05
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=5) as client:
            with busy(server, 2), pytest.raises(openai.RateLimitError):
                client.with_options(max_retries=1).chat.completions.create(**chat("hi"))
            answer = client.chat.completions.create(**chat("hi"))
        assert answer.choices[0].message.content == "Hello world."


def test_a_deadline_that_cannot_be_met_is_refused_at_once() -> None:
    with running(max_running=1, keep_alive_s=0.05) as server, busy(server, 1):
        server.service.gate.admission.hold_s = 100.0
        answer = server.http.post(PATH, json=chat("hi", deadline_s=1.5))
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "deadline"
        assert int(answer.headers["retry-after"]) == 99


# The end ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(log: pathlib.Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process of its own over the mock, and its address."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "ds_jax.serving", "--mock", "--port=0", *flags],
            stderr=out,
            stdout=out,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        eventually(lambda: b"listening on" in log.read_bytes(), 60)
        found = re.search(rb"listening on (\S+)", log.read_bytes())
        assert found is not None
        yield process, found[1].decode()
    finally:
        process.kill()
        process.wait()


def test_sigterm_under_load_loses_nothing(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    flags = ("--mock_step_s=0.02", "--mock_tokens=60", "--max_sequences=32")
    with served(log, *flags) as (process, url):
        ends: list[str] = []

        def stream() -> None:
            with httpx.Client(base_url=url, timeout=60) as client:
                ends.append(client.post(PATH, json=chat("hi", stream=True)).text)

        threads = [threading.Thread(target=stream) for _ in range(20)]
        with httpx.Client(base_url=url, timeout=30) as client:
            for thread in threads:
                thread.start()
            eventually(lambda: client.get("/load").json()["running"] == 20, 30)
            process.send_signal(signal.SIGTERM)
            eventually(lambda: client.get("/ready").status_code == 503)
            late = client.post(PATH, json=chat("hi"))
            assert late.status_code == 503
            assert "retry-after" in late.headers
        for thread in threads:
            thread.join()
        assert process.wait(30) == 0, log.read_text()
        assert len(ends) == 20
        assert all(end.endswith("data: [DONE]\n\n") for end in ends)
        lines = [json.loads(line) for line in log.read_text().splitlines() if line[0] == "{"]
        done = [line for line in lines if line.get("completion_tokens") == 60]
        assert len(done) == 20


def test_ten_thousand_idle_connections_disturb_nobody(tmp_path: pathlib.Path) -> None:
    count = 10_000
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = before[1] if before[1] != resource.RLIM_INFINITY else 2**20
    assert most >= count + 500, f"at most {most} open files: raise the hard limit (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], count + 500), before[1]))
    flags = (f"--max_connections={count + 1}", "--header_timeout_s=600")
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        process, url = stack.enter_context(served(tmp_path / "log", *flags))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=60))
        empty = resident_bytes(process.pid)
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        idle = [
            stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(count)
        ]
        answer = client.post(PATH, json=chat("hi"))
        assert answer.status_code == 200
        with socket.create_connection(address, timeout=30) as one_more:
            assert reply(one_more).startswith(b"HTTP/1.1 503")
        grown = resident_bytes(process.pid) - empty
        assert grown < count * 20_000, f"{grown / count:.0f} bytes a connection"
        for connection in idle:
            connection.close()
        assert client.get("/health").status_code == 200
        with socket.create_connection(address, timeout=30) as one_more:
            one_more.sendall(
                b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            )
            assert reply(one_more).startswith(b"HTTP/1.1 200")


def resident_bytes(pid: int) -> int:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_requests_beyond_the_drain_timeout_are_told() -> None:
    with running(step_s=0.02, drain_timeout_s=0.2) as server:
        texts: list[str] = []

        def stream() -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                body = chat("[[@2000]]", max_tokens=2000, stream=True)
                texts.append(client.post(PATH, json=body).text)

        thread = threading.Thread(target=stream)
        thread.start()
        eventually(lambda: server.engine.stats()["running"] == 1)
        time.sleep(0.1)
        server.call(server.server.begin_drain, "test")
        thread.join(15)
        assert '"error"' in texts[0].splitlines()[-2]
        assert "[DONE]" not in texts[0]
