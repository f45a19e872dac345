"""The load's client counts what the service says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from ds_jax.benchmark import http_load
from ds_jax.benchmark.http_load import Found, Target
from ds_jax.errors import ConfigError
from tests.serving.running import Running, chat, running


def measured(work: Coroutine[Any, Any, Any], found: Found) -> dict[str, Any]:
    start = time.perf_counter()
    asyncio.run(work)
    return http_load.figures(found, time.perf_counter() - start, 1.0)


def target(server: Running, **fields: Any) -> Target:
    return Target.of(server.url, "any", chat("[[@12]]", max_tokens=12, **fields))


def test_streams_are_counted_by_their_tokens() -> None:
    async def work() -> None:
        await asyncio.gather(*[http_load.stream(asked, found) for _ in range(5)])

    found = Found()
    with running() as server:
        asked = target(server, stream=True, stream_options={"include_usage": True})
        told = measured(work(), found)
    assert (told["tokens"], told["lost_streams"], told["statuses"]) == (60, 0, {"200": 5})
    assert told["service_us_per_token"] == pytest.approx(1e6 / 60, abs=0.1)
    assert len(found.gaps) >= 5


def test_whole_answers_refusals_and_lost_connections_are_told_apart() -> None:
    async def work() -> None:
        await http_load.keep_asking(asked, time.perf_counter() + 0.2, found)
        await http_load.ask_once(wrong, found)

    found = Found()
    with running() as server:
        asked = target(server)
        wrong = Target.of(server.url, "any", {**chat("hi"), "model": "none"})
        told = measured(work(), found)
    asyncio.run(http_load.ask_once(asked, found))  # nobody is there any more
    assert told["statuses"].keys() == {"200", "404"}
    assert found.statuses[0] == 1
    with pytest.raises(ConfigError, match="http"):
        Target.of("localhost", "any", {})
