"""One answer of one web server, within a time limit.

Decides how a connection is made: to an address that was allowed before, without a proxy, and never
waiting longer than the deadline, however slowly the other side sends. Never follows a redirect and
never judges an answer. In: a target. Out: an `http.client.HTTPResponse`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast

from ds_jax.recipe.image_url import Target

T = TypeVar("T")

DestinationFilter: TypeAlias = Callable[[str, str], bool]

_CONNECT_S = 10.0
_SLICE_S = 0.5  # how long a cancelled transfer may go on
_HEADER_BYTES = 1 << 20


class Deadline:
    """A point in time after which nothing is waited for. Shared by threads."""

    __slots__ = ("_cancelled", "_end_s")

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds
        self._cancelled = threading.Event()

    def within(self, seconds: float) -> Deadline:
        """A deadline `seconds` from now that is no later than this one and cancelled with it."""
        inner = Deadline(seconds)
        inner._end_s = min(inner._end_s, self._end_s)
        inner._cancelled = self._cancelled
        return inner

    def cancel(self) -> None:
        """Lets everything that waits give up. Mutates the deadline."""
        self._cancelled.set()

    def remaining_s(self) -> float:
        """Seconds left.

        Raises:
          TimeoutError: none are, or it was cancelled.
        """
        left = self._end_s - time.monotonic()
        if left <= 0 or self._cancelled.is_set():
            raise TimeoutError("no time left")
        return left

    def pause(self, seconds: float) -> bool:
        """Waits; says whether there is time for more afterwards."""
        with contextlib.suppress(TimeoutError):
            self._cancelled.wait(min(seconds, self.remaining_s()))
            return self.remaining_s() > 0
        return False


class NoAllowedAddressError(Exception):
    """The destination filter allows no address of the host."""


@contextlib.contextmanager
def get(
    target: Target, allows: DestinationFilter, deadline: Deadline, max_bytes: int
) -> Generator[http.client.HTTPResponse]:
    """Asks for `target` and reads the head of the answer; the body is read from the result.

    Args:
      target: whom to ask for what.
      allows: gets the host and each of its addresses.
      deadline: for everything, the body included.
      max_bytes: of the body; much more than that is not even received.

    Raises:
      NoAllowedAddressError: see there.
      OSError, http.client.HTTPException: no answer, or none that HTTP/1.1 allows.
    """
    with contextlib.closing(_connect(target, allows, deadline)) as connection:
        connection.settimeout(deadline.remaining_s())
        connection.sendall(_request(target))
        # Each byte of a body may come as a chunk of its own, which takes 6.
        reader = _Reader(connection, deadline, _HEADER_BYTES + 8 * max_bytes)
        with http.client.HTTPResponse(cast(socket.socket, reader)) as response:
            response.begin()
            yield response


def _request(target: Target) -> bytes:
    lines = [
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "User-Agent: ds_jax",
        "Accept: */*",
        "Connection: close",
    ]
    if target.authorization is not None:
        lines.append(f"Authorization: {target.authorization}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _connect(target: Target, allows: DestinationFilter, deadline: Deadline) -> socket.socket:
    """A connection to the first address that was allowed and answers."""
    found = _addresses(target, deadline)
    allowed = [entry for entry in found if allows(target.host, str(entry[4][0]))]
    if not allowed:
        raise NoAllowedAddressError
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in allowed:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(min(_CONNECT_S, deadline.remaining_s()))
            connection.connect(address)
            if target.scheme == "http":
                return connection
            connection = _tls().wrap_socket(
                connection, server_hostname=target.host, do_handshake_on_connect=False
            )
            _within(deadline, connection, connection.do_handshake)
            return connection
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
    raise failure


def _addresses(target: Target, deadline: Deadline) -> list[Any]:
    """What `socket.getaddrinfo` finds, within the deadline (it knows none itself)."""
    answer: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()

    def look_up() -> None:
        try:
            answer.set_result(socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=look_up, name="image-host-lookup", daemon=True).start()
    while True:
        left = deadline.remaining_s()
        with contextlib.suppress(concurrent.futures.TimeoutError):
            return answer.result(min(_SLICE_S, left))


def _within(deadline: Deadline, connection: socket.socket, operation: Callable[[], T]) -> T:
    """An operation that waits for the other side; it can go on after it timed out.

    Raises:
      TimeoutError: the deadline passed, or was cancelled.
    """
    while True:
        connection.settimeout(min(_SLICE_S, deadline.remaining_s()))
        with contextlib.suppress(TimeoutError):
            return operation()


@functools.cache
def _tls() -> ssl.SSLContext:
    """Certificates are checked against the machine's authorities."""
    return ssl.create_default_context()


class _Reader(io.RawIOBase):
    """What a socket receives, up to a number of bytes, each wait within the deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline, max_bytes: int) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        self._left = max_bytes

    def makefile(self, mode: str) -> io.BufferedReader:
        """What `http.client.HTTPResponse` asks of a socket."""
        del mode  # always for reading bytes
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        receive = functools.partial(self._connection.recv_into, buffer)
        received = _within(self._deadline, self._connection, receive)
        self._left -= received
        if self._left < 0:
            raise OSError("more bytes than the answer can need")
        return received
