"""Readers of an inbox wake up as often as they want to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ds_jax.engine.inbox import Inbox
from ds_jax.records import FinishReason, TokenEvent


def event(index: int, last: bool = False) -> TokenEvent:
    return TokenEvent("r", index, 7, FinishReason.STOP if last else None)


def told(read: Callable[[Inbox], Awaitable[list[TokenEvent]]]) -> list[list[int]]:
    """Batches of a reader that runs after each of five events."""

    async def run() -> list[list[int]]:
        inbox, found = Inbox(), list[list[int]]()

        async def reader() -> None:
            while events := await read(inbox):
                found.append([e.index for e in events])

        task = asyncio.ensure_future(reader())
        await asyncio.sleep(0)
        for number in range(5):
            inbox.put(event(number, last=number == 4))
            await asyncio.sleep(0)
        await task
        assert inbox.ended and not len(inbox)
        return found

    return asyncio.run(run())


def test_batches_come_with_every_delivery() -> None:
    assert told(lambda inbox: inbox.batch()) == [[0], [1], [2], [3], [4]]


def test_the_rest_comes_at_once() -> None:
    assert told(lambda inbox: inbox.rest()) == [[0, 1, 2, 3, 4]]


def test_a_reader_that_was_cancelled_loses_nothing() -> None:
    async def run() -> list[int]:
        inbox = Inbox()
        reader = asyncio.ensure_future(inbox.rest())
        await asyncio.sleep(0)
        inbox.put(event(0))
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        inbox.put(event(1, last=True))
        one = await inbox.one()
        assert one is not None
        return [one.index, *[e.index for e in await inbox.batch()]]

    assert asyncio.run(run()) == [0, 1]
