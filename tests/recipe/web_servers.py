"""A web server on 127.0.0.1 whose answers are written byte by byte, well formed or not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket, str], None]


class Server:
    """Answers each request with `answer(connection, path)`; keeps what was asked."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.closing = threading.Event()
        self._answer = answer
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [request.split(b" ")[1].decode() for request in self.requests]

    def close(self) -> None:
        """Stops taking connections."""
        self.closing.set()
        self._socket.close()

    def _serve(self) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()
            raise

    def _one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self._secured(connection) as connection:
            request = b""
            while b"\r\n\r\n" not in request:
                received = connection.recv(65536)
                if not received:
                    return
                request += received
            self.requests.append(request)
            self._answer(connection, request.split(b" ")[1].decode())


@contextlib.contextmanager
def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server for the time of a test."""
    server = Server(answer, tls)
    try:
        yield server
    finally:
        server.close()


def head(status: int = 200, **headers: object) -> bytes:
    """The head of an answer; `Content_Length=3` is the header Content-Length."""
    lines = [f"HTTP/1.1 {status} X"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def whole(body: bytes, status: int = 200, **headers: object) -> bytes:
    """A complete answer."""
    return head(status, Content_Length=len(body), **headers) + body


def chunked(*pieces: bytes) -> bytes:
    """A complete answer in pieces, without a length."""
    parts = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return head(Transfer_Encoding="chunked") + b"".join(parts) + b"0\r\n\r\n"


def always(answer: bytes) -> Answer:
    """The same answer for every path."""
    return lambda connection, path: connection.sendall(answer)


def dripping(start: bytes, drip: bytes, pause_s: float = 0.01) -> Answer:
    """Sends `start` and then `drip` again and again, for at most two seconds."""

    def answer(connection: socket.socket, path: str) -> None:
        del path
        connection.sendall(start)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            connection.sendall(drip)
            time.sleep(pause_s)

    return answer
