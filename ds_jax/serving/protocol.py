"""HTTP/1.1 connections with time limits.

Decides how long a connection may be silent, and how many there may be. Never reads a request beyond
its head. In: bytes of a socket (by uvicorn's protocol). Out: ASGI.

uvicorn limits the pause between two requests, but not the time to send the first head, so a client
that sends it byte by byte (slow loris) or nothing at all would stay for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ds_jax.serving.exchange import ABORT, GONE

SEND_BYTES = 128 * 1024  # of the kernel for one connection: what a client does not read waits here


class TimedProtocol(HttpToolsProtocol):
    """A connection. Limits are set by `limited`."""

    header_timeout_s = 10.0
    max_connections = 4096
    on_gone: Callable[[], None] | None = None  # of the request that is being answered
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
                b"content-length: 0\r\n\r\n"
            )
            transport.close()
            return
        wire: socket.socket | None = transport.get_extra_info("socket")
        if wire is not None:
            with contextlib.suppress(OSError):  # it may be gone already
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._disarm()
        super().connection_lost(exc)
        if self.on_gone is not None:
            self.on_gone()

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self._abort, GONE: self._watch}  # type: ignore
        if self._timer is None:
            self._arm()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._disarm()
        super().on_headers_complete()

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self.header_timeout_s, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _watch(self, gone: Callable[[], None], begins: bool) -> None:
        if begins:
            self.on_gone = gone
            if self.transport.is_closing():  # it is lost already
                self.loop.call_soon(gone)
        elif self.on_gone == gone:  # else the next request on the connection has begun
            self.on_gone = None

    def _abort(self) -> None:
        self.transport.abort()


def limited(header_timeout_s: float, max_connections: int) -> Any:
    """The protocol with these limits."""
    values = {"header_timeout_s": header_timeout_s, "max_connections": max_connections}
    return type("TimedProtocol", (TimedProtocol,), values)
