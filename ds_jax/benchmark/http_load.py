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
import dataclasses
import json
import pathlib
import random
import time
import urllib.parse
from typing import Any

from absl import flags

from ds_jax import command
from ds_jax.errors import ConfigError

_URL = flags.DEFINE_string("url", "http://127.0.0.1:8000", "The service.")
_MODE = flags.DEFINE_enum("mode", "requests", ["requests", "streams", "open"], "How to load it.")
_CLIENTS = flags.DEFINE_integer("clients", 32, "requests, streams: clients.", lower_bound=1)
_SECONDS = flags.DEFINE_float("seconds", 10.0, "requests, open: duration.", lower_bound=0.1)
_RATE = flags.DEFINE_float("rate", 100.0, "open: requests a second.", lower_bound=0.1)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 8, "Of each answer.", lower_bound=1)
_MODEL = flags.DEFINE_string("model", "tiny", "Name of the model.")
_KEY = flags.DEFINE_string("key", "any", "API key.")
_PID = flags.DEFINE_integer("pid", None, "Process of the service: its processor time is told.")
_DEADLINE_S = flags.DEFINE_float("deadline_s", None, "open: of each request.")
_SEED = flags.DEFINE_integer("seed", 0, "open: of the times.")

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

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection."""
        return await asyncio.open_connection(self.host, self.port, limit=2**20)


async def ask(target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """One whole answer; returns its status."""
    writer.write(target.head + target.body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def keep_asking(target: Target, end: float, found: Found) -> None:
    """One client, until the time is over."""
    reader, writer = await target.connect()
    while (start := time.perf_counter()) < end:
        status = await ask(target, reader, writer)
        found.add(status, time.perf_counter() - start)
    writer.close()


async def ask_once(target: Target, found: Found) -> None:
    """One client with one request."""
    start = time.perf_counter()
    try:
        reader, writer = await target.connect()
        status = await ask(target, reader, writer)
        writer.close()
    except (OSError, asyncio.IncompleteReadError):
        status = 0
    found.add(status, time.perf_counter() - start)


async def stream(target: Target, found: Found) -> None:
    """One client with one stream; takes the times of events, and its tokens from its end."""
    reader, writer = await target.connect()
    start = time.perf_counter()
    writer.write(target.head + target.body)
    last, done = None, False
    while line := await reader.readline():
        if line.startswith(b"data: [DONE]"):
            done = True
        elif b'"finish_reason":null' in line and b'"role"' not in line:
            now = time.perf_counter()
            if last is not None:
                found.gaps.append(now - last)
            last = now
        elif b'"completion_tokens":' in line:
            found.tokens += int(line.partition(b'"completion_tokens":')[2].partition(b",")[0])
        elif line == b"0\r\n":
            break
    writer.close()
    found.lost += not done
    found.add(200 if done else 0, time.perf_counter() - start)


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
    print(json.dumps(asyncio.run(load(_MODE.value)), indent=2))


if __name__ == "__main__":
    command.start("ds_jax.benchmark.http_load", main)
