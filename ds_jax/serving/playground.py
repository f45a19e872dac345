"""The page at `/`.

Decides only where it lies: one file, no build step, nothing from other servers. In: nothing. Out:
HTML.
"""

from __future__ import annotations

import pathlib
from collections.abc import Awaitable, Callable

from ds_jax.serving.exchange import Exchange
from ds_jax.serving.service import Service

PAGE = pathlib.Path(__file__).with_name("playground.html")
_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    b"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)


def handler(service: Service) -> Callable[[Exchange], Awaitable[None]]:
    """What answers `/`."""
    page = PAGE.read_bytes()

    async def handle(exchange: Exchange) -> None:
        await exchange.answer(
            200,
            page,
            b"text/html; charset=utf-8",
            [(b"content-security-policy", _POLICY), (b"x-content-type-options", b"nosniff")],
        )

    return handle
