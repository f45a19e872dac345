"""The outermost layer: who calls, what is logged, how every mistake becomes an answer.

Decides authentication, what a page in a browser may do, and the last word on errors. Never decides
what an endpoint does. In: ASGI. Out: ASGI.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from ds_jax.recipe import json_text
from ds_jax.serving import conversations, openapi, problems
from ds_jax.serving.admission import Overloaded
from ds_jax.serving.exchange import Exchange, Receive, Scope, Send
from ds_jax.serving.keys import Principal
from ds_jax.serving.problems import ClientGone, Problem
from ds_jax.serving.service import Service
from ds_jax.serving.settings import is_loopback

ADMIN_PATHS = frozenset(
    ("/drain", "/abort_request", "/server_info", "/cache/explain", "/reset_prefix_cache")
)
_LOG = logging.getLogger("ds_jax.serving")
_ACCESS = logging.getLogger("ds_jax.serving.access")


class Front:
    """The ASGI application.

    Args:
      routes: finds the endpoint; it reads the exchange in the scope.
      generating: what answers POST on the paths whose requests are counted, and refused while the
        server drains; found without the routes, because most requests go there.
    """

    def __init__(
        self,
        service: Service,
        routes: ASGIApp,
        generating: Mapping[str, Callable[[Exchange], Awaitable[None]]],
    ):
        self._service = service
        self._routes = routes
        self._generating = generating

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(Exchange(scope, receive, send, self._service.clock()))
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._service.begin()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._service.end()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, exchange: Exchange) -> None:
        service, path = self._service, exchange.scope["path"]
        counts = path in self._generating
        service.in_flight += counts
        try:
            try:
                self._admit(exchange, path, counts)
                if counts and exchange.scope["method"] == "POST":
                    exchange.scope["path_params"] = {}
                    await self._generating[path](exchange)
                else:
                    exchange.scope.update({"app": self, "exchange": exchange})
                    await self._routes(exchange.scope, exchange.receive, exchange._send)
            except Exception as error:
                await self._fail(exchange, error)
            except asyncio.CancelledError:
                if not exchange.gone and not exchange.cancelled:
                    raise
                if exchange.task is not None:
                    exchange.task.uncancel()
                await self._fail(exchange, ClientGone() if exchange.gone else _CANCELLED)
        finally:
            service.in_flight -= counts
            known = counts or (exchange.status != 404 and "path_params" in exchange.scope)
            route = path if known else "other"
            if exchange.scope.get("path_params"):
                route = path.rsplit("/", 1)[0]
            service.metrics.answered(route, exchange.status or 499)
            if service.tracer is not None:
                service.tracer.record(exchange, route, service.clock() - exchange.began)
            if _ACCESS.isEnabledFor(logging.INFO):
                _ACCESS.info(self._line(exchange))

    def _admit(self, exchange: Exchange, path: str, generates: bool) -> None:
        service = self._service
        principal = service.keys.find(_key(exchange))
        is_admin_path = path in ADMIN_PATHS
        if service.keys.is_open:
            _check_browser(exchange)
        if path not in openapi.OPEN and principal is None:
            raise Problem(
                401,
                "no valid API key: send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                code="invalid_api_key",
                headers=((b"www-authenticate", b"Bearer"),),
            )
        if is_admin_path and (principal is None or not principal.admin):
            raise Problem(
                403, "this endpoint is for keys with admin = true in the file of keys", code="admin"
            )
        exchange.principal = principal or Principal(name="nobody")
        if generates and service.draining:
            raise Problem(
                503,
                "the server drains: it takes no more requests; ask another replica",
                code="draining",
                retry_after_s=1.0,
            )

    async def _fail(self, exchange: Exchange, error: BaseException) -> None:
        """Answers an error, or says it behind the first byte and closes."""
        service = self._service
        if isinstance(error, ClientGone):
            exchange.gone = True
            service.metrics.cancelled.inc()
            return
        problem = self._problem(exchange, error)
        exchange.notes["error"] = problem.code or problem.status
        if exchange.ended:
            return
        if not exchange.status:
            await exchange.fail(problem)
        else:
            await exchange.write(conversations.broken(exchange, problem), last=True)

    def _problem(self, exchange: Exchange, error: BaseException) -> Problem:
        if isinstance(error, Overloaded):
            self._service.metrics.rejected(error.reason)
            exchange.extra += self._service.gate.headers(exchange.principal)
            return Problem(
                429, error.message, code=error.reason, retry_after_s=max(0.001, error.retry_after_s)
            )
        if isinstance(error, HTTPException):
            path, method = exchange.scope["path"], exchange.scope["method"]
            if error.status_code == 405:
                allowed = (error.headers or {}).get("Allow", "POST").split(", ")
                return Problem(
                    405,
                    f"{method} is not allowed on {path[:200]}",
                    headers=((b"allow", ", ".join(sorted(allowed)).encode()),),
                )
            return Problem(404, f"there is nothing at {path[:200]}")
        assert isinstance(error, Exception), "cancellation is no problem"
        problem = problems.of(error)
        if problem.status == 500:
            _LOG.error("request %s", exchange.request_id, exc_info=error)
        return problem

    def _line(self, exchange: Exchange) -> str:
        scope, client = exchange.scope, exchange.scope.get("client")
        line: dict[str, Any] = {
            "time": round(time.time(), 3),
            "request_id": exchange.request_id,
            "key": exchange.principal.name,
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": scope["path"],
            "status": exchange.status or 499,
            "duration_ms": round((self._service.clock() - exchange.began) * 1e3, 2),
            "client_gone": exchange.gone,
            "trace_id": exchange.trace_id,
            **exchange.notes,
        }
        return json_text.dumps_compact(line)


_CANCELLED = Problem(499, "the response was cancelled", code="cancelled")


def _key(exchange: Exchange) -> str | None:
    given = exchange.headers.get(b"authorization")
    if given is not None:
        scheme, _, key = given.decode("latin-1").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else None
    given = exchange.headers.get(b"x-api-key")
    return None if given is None else given.decode("latin-1").strip()


def _check_browser(exchange: Exchange) -> None:
    """Without keys, only this machine may call, and no foreign page through its browser.

    A name that resolves to loopback (DNS rebinding) shows in `host`, a foreign page in `origin`.
    """
    host = exchange.headers.get(b"host", b"localhost").decode("latin-1")
    if not is_loopback(_name(host)):
        raise Problem(403, f"host {host[:100]!r}: without API keys only localhost is served")
    origin = exchange.headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").split("://")[-1] != host:
        raise Problem(403, "requests from pages of other sites need a server with API keys")


def _name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
