"""What the service costs beside calling the pipeline, in one process.

python -m ds_jax.benchmark.http_cost --mesh=ep1

Decides what is compared: the same prompts and lengths, first through `Pipeline.events`, then over
HTTP, round by round in turn, so that a machine's moods hit both alike. Never judges. In: flags of
the model. Out: figures as JSON.

| figure | of |
|---|---|
| `first_token_ms` | one request at a time, from the call (the first byte sent) to the first token |
| `tokens_per_s` | `--clients` requests at once, tokens by the time of all |

The HTTP client is a raw socket in a thread of the same process: what it costs counts against the
service.
"""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from absl import flags

from ds_jax import command, model_flags
from ds_jax.errors import ConfigError
from ds_jax.records import SamplingParams

_FLAGS = flags.FlagValues()  # of this program alone: who imports it gets no flags
_ROUNDS = flags.DEFINE_integer(
    "rounds", 40, "Requests of each kind, one by one.", lower_bound=1, flag_values=_FLAGS
)
_LOADS = flags.DEFINE_integer(
    "loads", 3, "Times that all clients ask at once.", lower_bound=1, flag_values=_FLAGS
)
_CLIENTS = flags.DEFINE_integer(
    "clients", 8, "Requests at once.", lower_bound=1, flag_values=_FLAGS
)
_TOKENS = flags.DEFINE_integer(
    "tokens", 128, "Of each answer under load.", lower_bound=1, flag_values=_FLAGS
)
PROMPT = "What is 17 + 25?"


class Connection:
    """A client that keeps its connection. Methods mutate it."""

    def __init__(self, port: int):
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")

    def stream(self, body: bytes) -> float:
        """One streamed answer, to its end; returns the seconds to its first token."""
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        start, first = time.perf_counter(), 0.0
        self._socket.sendall(head.encode() + body)
        for line in self._lines:
            if line.startswith(b"data: ") and not first:
                first = time.perf_counter() - start
            if line == b"0\r\n":
                self._lines.readline()
                return first
        raise ConnectionError("the service has closed the connection")

    def close(self) -> None:
        """Ends it."""
        self._socket.close()


def compare(pipeline: Any, port: int) -> dict[str, Any]:
    """Both ways in turn, once without counting."""
    clients = [Connection(port) for _ in range(_CLIENTS.value)]
    short, long = _params(2), _params(_TOKENS.value)
    prompts = [PROMPT] * _CLIENTS.value
    direct_s, http_s = list[float](), list[float]()
    for number in range(_ROUNDS.value + 1):
        found = _first_token_s(pipeline, short), clients[0].stream(_body(2))
        if number:
            direct_s.append(found[0])
            http_s.append(found[1])
    direct, http = list[float](), list[float]()
    pool = ThreadPoolExecutor(_CLIENTS.value)

    def ask_all() -> None:
        list(pool.map(lambda client: client.stream(_body(_TOKENS.value)), clients))

    for number in range(_LOADS.value + 1):
        took = _seconds(lambda: pipeline.generate(prompts, long)), _seconds(ask_all)
        if number:
            direct.append(_CLIENTS.value * _TOKENS.value / took[0])
            http.append(_CLIENTS.value * _TOKENS.value / took[1])
    for client in clients:
        client.close()
    first = [statistics.median(values) * 1e3 for values in (direct_s, http_s)]
    speed = [statistics.median(values) for values in (direct, http)]
    return {
        "first_token_ms": {
            "pipeline": round(first[0], 2),
            "http": round(first[1], 2),
            "more": round(first[1] - first[0], 2),
        },
        "tokens_per_s": {
            "pipeline": round(speed[0], 1),
            "http": round(speed[1], 1),
            "less_percent": round(100 * (1 - speed[1] / speed[0]), 1),
        },
    }


def _params(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, ignore_eos=True, seq_seed=1)


def _body(tokens: int) -> bytes:
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": tokens, "stream": True}
    return json.dumps({**asked, "ignore_eos": True, "seed": 1}).encode()


def _first_token_s(pipeline: Any, params: SamplingParams) -> float:
    start, first = time.perf_counter(), 0.0
    for _ in pipeline.events(pipeline.requests([PROMPT], params)):
        first = first or time.perf_counter() - start
    return first


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main(arguments: list[str]) -> None:
    """Runs what the flags say."""
    if arguments:
        raise ConfigError(f"unexpected argument {arguments[0]!r}; settings are flags")
    from ds_jax.pipeline import Pipeline
    from ds_jax.serving import launch, server
    from ds_jax.serving.service import Service
    from ds_jax.serving.settings import Settings

    pipeline = Pipeline.from_checkpoint(**model_flags.options())
    service = Service(
        # connections wait while the pipeline has its turn, and while programs are made
        Settings(port=0, header_timeout_s=3600.0, idle_timeout_s=3600.0),
        launch.of_pipeline(pipeline),
        pipeline.engine,
        pipeline.restart,
    )
    running = server.Server(service)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    print(json.dumps(compare(pipeline, running.port), indent=2))
    running.should_exit = True
    thread.join()


if __name__ == "__main__":
    command.adopt(_FLAGS)
    command.start("ds_jax.benchmark.http_cost", main)
