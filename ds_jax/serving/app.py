"""Which path is answered by whom.

Decides the table of routes. Never decides answers. In: a service. Out: an ASGI application.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.routing import Route, Router

from ds_jax.serving import completions, conversations, openapi, playground
from ds_jax.serving.admin import Admin
from ds_jax.serving.exchange import Exchange, Receive, Scope, Send
from ds_jax.serving.front import Front
from ds_jax.serving.plain import Plain
from ds_jax.serving.service import Service

GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


class Endpoint:
    """A handler of exchanges as an ASGI application."""

    def __init__(self, handle: Callable[[Exchange], Awaitable[None]]):
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handle(scope["exchange"])


def make(service: Service) -> Front:
    """The application of one service."""
    plain, admin = Plain(service), Admin(service)
    get, post = ["GET"], ["POST"]
    table: list[tuple[str, Callable[[Exchange], Awaitable[None]], list[str]]] = [
        ("/v1/chat/completions", conversations.handler(service, "chat"), post),
        ("/v1/completions", completions.handler(service), post),
        ("/v1/responses", conversations.handler(service, "responses"), post),
        ("/v1/messages", conversations.handler(service, "messages"), post),
        ("/v1/messages/count_tokens", plain.count_tokens, post),
        ("/v1/responses/{name}", plain.response, ["GET", "DELETE"]),
        ("/v1/responses/{name}/cancel", plain.cancel_response, post),
        ("/v1/responses/{name}/input_items", plain.input_items, get),
        ("/v1/models", plain.models, get),
        ("/v1/models/{name:path}", plain.model, get),
        ("/tokenize", plain.tokenize, post),
        ("/detokenize", plain.detokenize, post),
        ("/prompt/explain", plain.explain_prompt, post),
        ("/health", plain.health, get),
        ("/ready", plain.ready, get),
        ("/version", plain.version, get),
        ("/load", plain.load, get),
        ("/metrics", plain.metrics, get),
        ("/openapi.json", openapi.handler(service), get),
        ("/drain", admin.drain, post),
        ("/abort_request", admin.abort, post),
        ("/server_info", admin.server_info, get),
        ("/cache/explain", admin.explain_cache, post),
    ]
    if service.settings.page:
        table.append(("/", playground.handler(service), get))
    routes = [Route(path, Endpoint(handle), methods=methods) for path, handle, methods in table]
    generating = {path: handle for path, handle, _ in table if path in GENERATING}
    return Front(service, Router(routes, redirect_slashes=False), generating)
