"""One request and its answer, on the wire.

Decides how bytes, headers and ids go out, and notices that a client has gone. Never decides what is
answered. In: ASGI's scope, receive and send. Out: responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from ds_jax.serving import reading
from ds_jax.serving.keys import ANYONE, Principal
from ds_jax.serving.problems import Api, Problem

Header = tuple[bytes, bytes]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

ABORT = "ds_jax.abort"
"""Extension of the scope: closes the connection at once, whatever waits to be sent."""

GONE = "ds_jax.gone"
"""Extension of the scope: is given what to call when the connection is lost, and True; or False
once it is not to be called any more."""

JSON = b"application/json"
_NAME = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}")
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*")


class Exchange:
    """Methods mutate it.

    Args:
      now: the clock's time at its arrival, in seconds.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, now: float):
        self.scope = scope
        self.receive = receive
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.began = now
        self.request_id = self._request_id()
        self.trace_id = self._trace_id()
        self.principal: Principal = ANYONE
        self.api: Api = "anthropic" if scope["path"].startswith("/v1/messages") else "openai"
        self.extra: list[Header] = []  # headers that go out with whatever answer there is
        self.status = 0  # of the answer; 0: nothing was sent
        self.ended = False
        self.gone = False  # the client has closed the connection
        self.cancelled = False  # somebody has ended it through another request
        self.notes: dict[str, Any] = {}  # for the log
        self.task = asyncio.current_task()
        self._send = send

    async def answer(
        self,
        status: int,
        body: bytes,
        kind: bytes = JSON,
        headers: list[Header] | None = None,
    ) -> None:
        """A whole answer."""
        length = (b"content-length", b"%d" % len(body))
        await self.begin(status, [(b"content-type", kind), length, *(headers or ())])
        self.ended = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def fail(self, problem: Problem) -> None:
        """An error as the whole answer."""
        body = problem.body(self.api, self.request_id)
        await self.answer(problem.status, body, headers=problem.headers)

    async def begin(self, status: int, headers: list[Header]) -> None:
        """The head of an answer."""
        self.status = status
        own = [(b"x-request-id", self.request_id.encode())]
        if self.api == "anthropic":
            own.append((b"request-id", own[0][1]))
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *own, *self.extra],
            }
        )

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """More of the answer's body; waits while the client does not read."""
        self.ended = self.ended or last
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def body(self, max_bytes: int, timeout_s: float) -> bytes:
        """The bytes of the request's body."""
        return await reading.read(self.receive, self.headers, max_bytes, timeout_s)

    def cut(self) -> None:
        """Closes the connection now; what waits to be sent is lost."""
        self.gone = True
        abort = self.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()

    def cancel(self) -> None:
        """Ends the request; its client is told."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, the task is cancelled as soon as the client has gone. The body must be read."""
        watch = self.scope.get("extensions", {}).get(GONE)
        if watch is not None:
            watch(self._leave, True)
            try:
                yield
            finally:
                watch(self._leave, False)
            return
        watcher = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            watcher.cancel()

    async def _watch(self) -> None:
        """For servers whose connections do not tell."""
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                break
        self._leave()

    def _leave(self) -> None:
        if not self.ended and self.task is not None:
            self.gone = True
            self.task.cancel()

    def _request_id(self) -> str:
        given = self.headers.get(b"x-request-id")
        if given is not None and _NAME.fullmatch(given):
            return given.decode()
        return f"req_{secrets.token_hex(12)}"

    def _trace_id(self) -> str | None:
        given = _TRACE.fullmatch(self.headers.get(b"traceparent", b""))
        return None if given is None or set(given[1]) == {ord("0")} else given[1].decode()
