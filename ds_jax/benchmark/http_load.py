"""Load on a running service, from one process.

python -m ds_jax.benchmark.http_load --url=http://127.0.0.1:8000 --mode=requests --clients=32
python -m ds_jax.benchmark.http_load --mode=streams --clients=1000 --max_tokens=200
python -m ds_jax.benchmark.http_load --mode=open --rate=500 --seconds=60

Decides how requests arrive and what is measured. Never imports the service. In: a URL. Out: figures
as JSON.

| mode | arrival | figures |
|---|---|---|
| `requests` | each client asks again as soon as it has its answer | requests/s, latency |
| `streams` | every client opens one stream at once | tokens/s, gaps between events, lost streams |
| `open` | at random (Poisson) times, come what may | goodput, refusals and their latency |
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import pathlib
import random
import time
import urllib.parse
from collections.abc import Coroutine
from typing import Any, cast

from absl import flags

from ds_jax import command
from ds_jax.errors import ConfigError

_FLAGS = flags.FlagValues()  # of this program alone: who imports it gets no flags
_URL = flags.DEFINE_string("url", "http://127.0.0.1:8000", "The service.", flag_values=_FLAGS)
_MODE = flags.DEFINE_enum(
    "mode", "requests", ["requests", "streams", "open"], "How to load it.", flag_values=_FLAGS
)
_CLIENTS = flags.DEFINE_integer(
    "clients", 32, "requests, streams: clients.", lower_bound=1, flag_values=_FLAGS
)
_SECONDS = flags.DEFINE_float(
    "seconds", 10.0, "requests, open: duration.", lower_bound=0.1, flag_values=_FLAGS
)
_RATE = flags.DEFINE_float(
    "rate", 100.0, "open: requests a second.", lower_bound=0.1, flag_values=_FLAGS
)
_MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens", 8, "Of each answer.", lower_bound=1, flag_values=_FLAGS
)
_MODEL = flags.DEFINE_string("model", "tiny", "Name of the model.", flag_values=_FLAGS)
_KEY = flags.DEFINE_string("key", "any", "API key.", flag_values=_FLAGS)
_PID = flags.DEFINE_integer(
    "pid", None, "Process of the service: its processor time is told.", flag_values=_FLAGS
)
_DEADLINE_S = flags.DEFINE_float("deadline_s", None, "open: of each request.", flag_values=_FLAGS)
_SEED = flags.DEFINE_integer("seed", 0, "open: of the times.", flag_values=_FLAGS)

PATH = "/v1/chat/completions"


@dataclasses.dataclass(slots=True)
class Found:
    """What the clients have seen; times in seconds."""

    statuses: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    latencies: dict[int, list[float]] = dataclasses.field(default_factory=dict)
    gaps: list[float] = dataclasses.field(default_factory=list)
    tokens: int = 0
    lost: int = 0

    def add(self, status: int, latency_s: float) -> None:
        """Counts an answer. Mutates the record."""
        self.statuses[status] += 1
        self.latencies.setdefault(status, []).append(latency_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and what they say."""

    host: str
    port: int
    head: bytes
    body: bytes

    @classmethod
    def of(cls, url: str, key: str, body: dict[str, Any]) -> Target:
        """Raises ConfigError for an address that is no http URL."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ConfigError(f"--url={url}: give an address such as http://127.0.0.1:8000")
        data = json.dumps(body).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        return cls(parts.hostname, parts.port or 80, head.encode(), data)

    async def connect(self) -> Client:
        """A new connection."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Client, self.host, self.port)
        return client


class Client(asyncio.Protocol):
    """One connection, read with as little work as possible. Methods mutate it.

    The client shares the machine with the service: what it costs, the service cannot use.
    """

    def __init__(self) -> None:
        self.events = 0  # with a token, of the stream that is read
        self.gaps: list[float] = []
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._held = b""
        self._streams = False
        self._last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed; an answer that was not complete is what has come of it."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._held)

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        if self._streams:
            tokens = data.count(b'"finish_reason":null')
            if tokens:
                now = time.perf_counter()
                if self.events:
                    self.gaps.append(now - self._last)
                self.events += tokens
                self._last = now
            self._held = (self._held + data)[-4096:]
            complete = self._held.endswith(b"0\r\n\r\n")
        else:
            self._held += data
            complete = _is_whole(self._held)
        if complete and self._answer is not None and not self._answer.done():
            self._answer.set_result(self._held)

    async def ask(self, target: Target, *, streams: bool = False) -> tuple[int, bytes]:
        """Sends the request; returns the answer's status and its (last) bytes; status 0: lost."""
        self._answer = asyncio.get_running_loop().create_future()
        self._held, self._streams, self.events = b"", streams, 0
        assert self._transport is not None, "it is open"
        self._transport.write(target.head + target.body)
        answer = await self._answer
        if streams:
            return (200 if b"data: [DONE]" in answer else 0), answer
        return (int(answer[9:12]) if _is_whole(answer) else 0), answer

    def close(self) -> None:
        """Ends it."""
        if self._transport is not None:
            self._transport.close()


def _is_whole(answer: bytes) -> bool:
    at = answer.find(b"\r\n\r\n")
    if at < 0:
        return False
    length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return len(answer) - at - 4 >= int(length or b"0")


async def keep_asking(target: Target, end: float, found: Found) -> None:
    """One client, until the time is over."""
    client = await target.connect()
    while (start := time.perf_counter()) < end:
        status, _ = await client.ask(target)
        found.add(status, time.perf_counter() - start)
        if not status:
            break
    client.close()


async def ask_once(target: Target, found: Found) -> None:
    """One client with one request."""
    start, status = time.perf_counter(), 0
    with contextlib.suppress(OSError):
        client = await target.connect()
        status, _ = await client.ask(target)
        client.close()
    found.add(status, time.perf_counter() - start)


async def stream(target: Target, found: Found) -> None:
    """One client with one stream; takes the times of what comes, and its tokens from its end."""
    client = await target.connect()
    start = time.perf_counter()
    status, answer = await client.ask(target, streams=True)
    client.close()
    found.gaps += client.gaps
    found.tokens += int(answer.rpartition(b'"completion_tokens":')[2].partition(b",")[0] or b"0")
    found.lost += status != 200
    found.add(status, time.perf_counter() - start)


async def load(mode: str) -> dict[str, Any]:
    """Runs one mode; returns its figures."""
    streamed = mode == "streams"
    body: dict[str, Any] = {
        "model": _MODEL.value,
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": _MAX_TOKENS.value,
        "stream": streamed,
    }
    if streamed:
        body["stream_options"] = {"include_usage": True}
    if _DEADLINE_S.value is not None:
        body["deadline_s"] = _DEADLINE_S.value
    target, found = Target.of(_URL.value, _KEY.value, body), Found()
    cpu, start = _processor_s(), time.perf_counter()
    if mode == "requests":
        end = start + _SECONDS.value
        tasks = [keep_asking(target, end, found) for _ in range(_CLIENTS.value)]
        await asyncio.gather(*tasks)
    elif streamed:
        await asyncio.gather(*[stream(target, found) for _ in range(_CLIENTS.value)])
    else:
        rng, sent = random.Random(_SEED.value), []
        at = start
        while at < start + _SECONDS.value:
            at += rng.expovariate(_RATE.value)
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            sent.append(asyncio.ensure_future(ask_once(target, found)))
        await asyncio.gather(*sent)
    return figures(found, time.perf_counter() - start, _processor_s() - cpu)


def figures(found: Found, wall_s: float, processor_s: float) -> dict[str, Any]:
    """The summary of a run."""
    good = found.statuses[200]
    summary: dict[str, Any] = {
        "seconds": round(wall_s, 2),
        "statuses": {str(k): v for k, v in sorted(found.statuses.items())},
        "good_per_s": round(good / wall_s, 1),
        "latency_ms": {str(k): quantiles(v) for k, v in sorted(found.latencies.items())},
    }
    if found.tokens:
        summary["tokens"] = found.tokens
        summary["tokens_per_s"] = round(found.tokens / wall_s, 1)
        summary["gap_ms"] = quantiles(found.gaps)
        summary["lost_streams"] = found.lost
    if processor_s:
        summary["service_processor_s"] = round(processor_s, 2)
        if found.tokens:
            summary["service_us_per_token"] = round(processor_s / found.tokens * 1e6, 1)
        elif good:
            summary["service_us_per_request"] = round(
                processor_s / sum(found.statuses.values()) * 1e6, 1
            )
    return summary


def quantiles(values: list[float]) -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(values)
    return {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 2)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
    }


def _processor_s() -> float:
    """Processor time of the service so far; 0 where it is not asked for."""
    if _PID.value is None:
        return 0.0
    fields = pathlib.Path(f"/proc/{_PID.value}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main(arguments: list[str]) -> None:
    """Runs what the flags say."""
    if arguments:
        raise ConfigError(f"unexpected argument {arguments[0]!r}; settings are flags")
    try:
        found = _run(load(_MODE.value))
    except ConnectionError as error:
        raise ConfigError(f"--url={_URL.value}: no service answers there ({error})") from None
    print(json.dumps(found, indent=2))


def _run(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    try:
        import uvloop
    except ImportError:  # the loop of the standard library does, with more work
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    command.adopt(_FLAGS)
    command.start("ds_jax.benchmark.http_load", main)
