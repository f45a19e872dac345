"""Admission for coroutines.

Decides nothing: it waits for what `admission` decides. In: requests. Out: `Place`s, each given back
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ds_jax.serving.admission import Admission, Overloaded, Waiter
from ds_jax.serving.keys import Principal


class Place:
    """A request's place, in the queue or in the engine. Methods mutate it."""

    __slots__ = ("_admitted", "_gate", "_waiter")

    def __init__(self, gate: Gate, waiter: Waiter, admitted: asyncio.Future[None] | None):
        self._gate = gate
        self._waiter = waiter
        self._admitted = admitted

    async def wait(self, timeout_s: float) -> None:
        """Returns once the request may run.

        Raises:
          Overloaded: it waited too long.
        """
        if self._admitted is None or self._admitted.done():
            return
        done, _ = await asyncio.wait({self._admitted}, timeout=timeout_s)
        if not done:
            gate = self._gate.admission
            raise Overloaded(
                "deadline",
                max(1.0, gate.foreseen_wait_s(1)),
                f"the engine had no room for {timeout_s:g} s; try again later",
            )

    def leave(self, used: float | None = None) -> None:
        """Gives the place back; a second call does nothing."""
        if not self._waiter.gone:
            self._gate.release(self._waiter, used)


class Gate:
    """The admission of one event loop. Methods mutate it."""

    def __init__(self, admission: Admission, clock: Callable[[], float]):
        self.admission = admission
        self._clock = clock
        self._futures: dict[Waiter, asyncio.Future[None]] = {}

    def enter(
        self, principal: Principal, sequences: int, cost: float, deadline_s: float | None = None
    ) -> Place:
        """A place for a request; it may have to `wait`.

        Raises:
          Overloaded: it is sent away.
        """
        waiter = self.admission.offer(principal, sequences, cost, self._clock(), deadline_s)
        future = None
        if not waiter.admitted:
            future = self._futures[waiter] = asyncio.get_running_loop().create_future()
        return Place(self, waiter, future)

    def release(self, waiter: Waiter, used: float | None) -> None:
        """A request has ended; the next ones wake up."""
        self._futures.pop(waiter, None)
        for admitted in self.admission.leave(waiter, self._clock(), used):
            self._futures.pop(admitted).set_result(None)

    def headers(self, principal: Principal) -> list[tuple[bytes, bytes]]:
        """`x-ratelimit-*` headers of a key."""
        now = self._clock()
        return self.admission.account(principal, now).headers(now)
