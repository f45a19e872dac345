"""The comparison's client reads a stream to its end, again and again."""

from __future__ import annotations

import json

from ds_jax.benchmark.http_cost import Connection
from tests.serving.running import running


def test_one_connection_reads_several_streams() -> None:
    body = {"model": "tiny", "prompt": "[[@20]]", "max_tokens": 20, "stream": True}
    with running() as server:
        client = Connection(server.port)
        firsts = [client.stream(json.dumps(body).encode()) for _ in range(3)]
        client.close()
        assert all(first > 0 for first in firsts)
        assert server.engine.stats()["requests_total"] == 3
