"""Request bodies, read under limits.

Decides which bodies are read at all: their size, their kind, and the time they may take. Depth is
limited before anything is built (`json_text`). Never looks at fields. In: ASGI messages. Out: a
JSON object, or a `Problem`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from ds_jax.recipe.body import read_body
from ds_jax.serving.problems import ClientGone, Problem

Headers = dict[bytes, bytes]
Receive = Callable[[], Awaitable[Any]]


async def read(receive: Receive, headers: Headers, max_bytes: int, timeout_s: float) -> bytes:
    """The bytes of a body.

    Raises:
      Problem: 408, 413, 415.
      ClientGone: the connection was closed before the end.
    """
    kind = headers.get(b"content-type", b"application/json").split(b";")[0].strip().lower()
    if kind != b"application/json":
        shown = kind.decode("latin-1")
        raise Problem(
            415, f"content-type {shown!r} is not read here; send JSON as application/json"
        )
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding != b"identity":
        raise Problem(415, "compressed bodies are not read here; send plain JSON")
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    message = await _next(receive, timeout_s)
    if not message.get("more_body", False):
        body = message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        return body
    parts, size = [message.get("body", b"")], len(message.get("body", b""))
    async with asyncio.timeout(timeout_s) as limit:
        try:
            while message.get("more_body", False):
                if size > max_bytes:
                    raise _too_large(max_bytes)
                message = await _next(receive, None)
                parts.append(message.get("body", b""))
                size += len(parts[-1])
        except asyncio.CancelledError:
            if limit.expired():
                raise _too_slow(timeout_s) from None
            raise
    if size > max_bytes:
        raise _too_large(max_bytes)
    return b"".join(parts)


def parse(body: bytes) -> dict[str, Any]:
    """The object a body holds.

    Raises: BodyError, Problem.
    """
    value = read_body(body)
    if not isinstance(value, dict):
        raise Problem(400, "invalid request body: expected a JSON object")
    return cast("dict[str, Any]", value)


async def _next(receive: Receive, timeout_s: float | None) -> Any:
    if timeout_s is None:
        message = await receive()
    else:
        try:
            async with asyncio.timeout(timeout_s):
                message = await receive()
        except TimeoutError:
            raise _too_slow(timeout_s) from None
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message


def _too_slow(timeout_s: float) -> Problem:
    return Problem(
        408,
        f"the body did not arrive within {timeout_s:g} s; send as many bytes as content-length "
        "says, and faster",
        headers=((b"connection", b"close"),),
    )


def _too_large(max_bytes: int) -> Problem:
    return Problem(
        413,
        f"the body is larger than {max_bytes} bytes; send less",
        headers=((b"connection", b"close"),),
    )
