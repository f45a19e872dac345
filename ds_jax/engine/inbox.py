"""Events of one request, on their way to the coroutine that reads them.

Decides when the reader wakes up: with every delivery, or only with the end for one that wants the
whole. Never looks into a token. In: events, put on the reader's event loop. Out: batches.
"""

from __future__ import annotations

import asyncio
import collections

from ds_jax.records import TokenEvent


class Inbox:
    """Methods mutate it; all are called on one event loop."""

    __slots__ = ("_events", "_reader", "_wants_end", "ended")

    def __init__(self) -> None:
        self.ended = False  # the last event was taken out, or nobody wants it
        self._events: collections.deque[TokenEvent] = collections.deque()
        self._reader: asyncio.Future[None] | None = None
        self._wants_end = False

    def __len__(self) -> int:
        """Events that wait to be read."""
        return len(self._events)

    def put(self, event: TokenEvent) -> None:
        """One more event."""
        self._events.append(event)
        reader = self._reader
        if reader is not None and (not self._wants_end or event.finish_reason is not None):
            self._reader = None
            if not reader.done():
                reader.set_result(None)

    async def batch(self) -> list[TokenEvent]:
        """Every event that is there, at least one; empty behind the last one."""
        if not self._events and not self.ended:  # spelled out: it happens for every token
            self._wants_end = False
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._taken()

    async def rest(self) -> list[TokenEvent]:
        """Every event up to the last one, once that is there; wakes up once."""
        if not self.ended:
            await self._wait(True)
        return self._taken()

    async def one(self) -> TokenEvent | None:
        """The oldest event; None behind the last one."""
        if self.ended:
            return None
        await self._wait(False)
        event = self._events.popleft()
        self.ended = event.finish_reason is not None
        return event

    async def _wait(self, wants_end: bool) -> None:
        events = self._events
        if not events or (wants_end and events[-1].finish_reason is None):
            self._wants_end = wants_end
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    def _taken(self) -> list[TokenEvent]:
        if self.ended:
            return []
        found = list(self._events)
        self._events.clear()
        self.ended = found[-1].finish_reason is not None
        return found
