"""Server-sent events to one client, and the pulse that keeps all of them honest.

Decides when a silent stream gets a comment, and when a client reads too slowly. Never decides what
an event says. In: bytes of events. Out: an answer in pieces, of which a bounded part waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ds_jax.serving.exchange import Exchange, Header

COMMENT = b": keep-alive\n\n"
_HEADERS: list[Header] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy in front must not collect events
]


class EventStream:
    """One stream. Methods mutate it.

    Args:
      backlog: events that wait for the client inside the server.
    """

    def __init__(self, exchange: Exchange, pulse: Pulse, backlog: Callable[[], int]):
        self.exchange = exchange
        self.backlog = backlog
        self.began = False
        self.last = pulse.clock()  # when something was sent
        self.busy_since: float | None = None  # when a write began that has not ended
        self._pulse = pulse
        self._lock = asyncio.Lock()  # a comment must not go into the middle of an event

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Sends whole events; waits while the client does not read."""
        async with self._lock:
            self.busy_since = self.last = self._pulse.clock()
            try:
                if not self.began:
                    self.began = True
                    await self.exchange.begin(200, _HEADERS)
                await self.exchange.write(data, last=last)
            finally:
                self.busy_since = None

    async def comment(self) -> None:
        """Sends a sign of life, unless something is being sent or the stream has ended."""
        if self.busy_since is None and not self.exchange.ended:
            await self.write(COMMENT)

    def __enter__(self) -> EventStream:
        self._pulse.streams.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._pulse.streams.discard(self)


class Pulse:
    """Looks at all streams now and then. `beat` mutates them.

    Args:
      keep_alive_s: silence after which a comment is sent.
      slow_reader_s: how long one write may take.
      max_backlog: events that may wait for a client.
      on_slow: called for every client that is cut off.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        keep_alive_s: float,
        slow_reader_s: float,
        max_backlog: int,
        on_slow: Callable[[], None] = lambda: None,
    ):
        self.clock = clock
        self.streams: set[EventStream] = set()
        self._keep_alive_s = keep_alive_s
        self._slow_reader_s = slow_reader_s
        self._max_backlog = max_backlog
        self._on_slow = on_slow
        self._comments: set[asyncio.Task[None]] = set()

    def beat(self) -> None:
        """One look at every stream."""
        now = self.clock()
        for stream in list(self.streams):
            busy = stream.busy_since
            if busy is not None:
                late = now - busy > self._slow_reader_s
                if late or stream.backlog() > self._max_backlog:
                    self._on_slow()
                    stream.exchange.cut()
            elif now - stream.last >= self._keep_alive_s:
                task = asyncio.ensure_future(stream.comment())
                self._comments.add(task)
                task.add_done_callback(self._comments.discard)

    async def run(self) -> None:
        """Beats until it is cancelled."""
        interval = min(1.0, self._keep_alive_s / 4, self._slow_reader_s / 4)
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(interval)
                self.beat()


def event(name: str | None, data: str) -> bytes:
    """One event; `data` is JSON and so has no line break."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {data}\n\n".encode(errors="replace")
