"""Endpoints that generate nothing: models, probes, load, metrics, token ids, stored responses.

Decides what they tell. Never touches the engine beyond its numbers. In: an exchange. Out: its
answer.
"""

from __future__ import annotations

import json
from typing import Any, cast

import ds_jax
from ds_jax.recipe.explanation import explain
from ds_jax.serving import prepare, reading
from ds_jax.serving.exchange import Exchange
from ds_jax.serving.problems import Problem
from ds_jax.serving.service import Service


class Plain:
    """Handlers of one service."""

    def __init__(self, service: Service):
        self._service = service

    async def health(self, exchange: Exchange) -> None:
        """The process is alive; a failed engine is restarted, so it is no reason to kill it."""
        await exchange.answer(200, b'{"status":"ok"}')

    async def ready(self, exchange: Exchange) -> None:
        """Whether requests should be sent here."""
        reason = self._service.not_ready
        if reason is None:
            await exchange.answer(200, b'{"status":"ready"}')
        else:
            body = _dump({"status": "not ready", "reason": reason})
            await exchange.answer(503, body, headers=[(b"retry-after", b"1")])

    async def version(self, exchange: Exchange) -> None:
        """Of this package."""
        await exchange.answer(200, _dump({"version": ds_jax.__version__}))

    async def load(self, exchange: Exchange) -> None:
        """How much is under way."""
        service = self._service
        stats, gate = service.replica.engine.stats(), service.gate.admission
        pages = stats.get("pages", 0)
        await exchange.answer(
            200,
            _dump(
                {
                    "server_load": service.in_flight,
                    "running": stats.get("running", 0),
                    "waiting": gate.num_waiting + stats.get("waiting", 0),
                    "max_running": gate.limits.max_running,
                    "kv_cache_usage": stats.get("pages_held", 0) / pages if pages else 0.0,
                    "foreseen_wait_s": round(gate.foreseen_wait_s(1), 3) if gate.num_waiting else 0,
                }
            ),
        )

    async def metrics(self, exchange: Exchange) -> None:
        """Prometheus."""
        kind = b"text/plain; version=0.0.4; charset=utf-8"
        await exchange.answer(200, self._service.metrics.text(), kind)

    async def models(self, exchange: Exchange) -> None:
        """Every name of the model."""
        found = [self._model(name) for name in self._service.settings.models]
        await exchange.answer(
            200,
            _dump(
                {
                    "object": "list",
                    "data": found,
                    "has_more": False,
                    "first_id": found[0]["id"],
                    "last_id": found[-1]["id"],
                }
            ),
        )

    async def model(self, exchange: Exchange) -> None:
        """One of them."""
        name = prepare.check_model(self._service, {"model": exchange.scope["path_params"]["name"]})
        await exchange.answer(200, _dump(self._model(name)))

    def _model(self, name: str) -> dict[str, Any]:
        model, created = self._service.model, self._service.started
        return {
            "id": name,
            "object": "model",
            "type": "model",
            "display_name": name,
            "created": created,
            "created_at": _iso(created),
            "owned_by": "ds_jax",
            "max_model_len": model.max_context,
        }

    async def tokenize(self, exchange: Exchange) -> None:
        """Ids of a text or of a chat request."""
        service, tokenizer = self._service, self._service.model.tokenizer
        body = await self._body(exchange)
        if "messages" in body:
            body.setdefault("model", service.settings.models[0])
            prepare.check_model(service, body)
            request = prepare.convert(service, "chat", body, exchange.principal)
            ids = prepare.encode(service, prepare.render(request))
        else:
            prompt = body.get("prompt")
            if not isinstance(prompt, str):
                raise Problem(400, "prompt: must be a string, or give messages", param="prompt")
            ids = tokenizer.encode_text(prompt)
            if body.get("add_special_tokens", True):
                ids = [service.model.bos_token_id, *ids]
        found: dict[str, Any] = {
            "count": len(ids),
            "max_model_len": service.model.max_context,
            "tokens": ids,
        }
        if body.get("return_token_strs"):
            found["token_strs"] = [
                tokenizer.token_bytes(i).decode("utf-8", errors="replace") for i in ids
            ]
        await exchange.answer(200, _dump(found))

    async def detokenize(self, exchange: Exchange) -> None:
        """Text of ids, control tokens spelled out."""
        tokens = (await self._body(exchange)).get("tokens")
        ids: list[Any] = cast("list[Any]", tokens) if isinstance(tokens, list) else [None]
        size = self._service.model.tokenizer.vocab_size
        for token in ids:
            if type(token) is not int or not 0 <= token < size:
                raise Problem(
                    400, f"tokens: must be a list of ids from 0 to {size - 1}", param="tokens"
                )
        text = self._service.model.tokenizer.decode(ids)
        await exchange.answer(200, _dump({"prompt": text}))

    async def count_tokens(self, exchange: Exchange) -> None:
        """Tokens of a Messages request."""
        service, body = self._service, await self._body(exchange)
        prepare.check_model(service, body)
        body.setdefault("max_tokens", 1)
        request = prepare.convert(service, "messages", body, exchange.principal)
        ids = prepare.encode(service, prepare.render(request))
        await exchange.answer(200, _dump({"input_tokens": len(ids)}))

    async def explain_prompt(self, exchange: Exchange) -> None:
        """The rendered prompt of a chat request, piece by piece."""
        service, body = self._service, await self._body(exchange)
        prepare.check_model(service, body)
        request = prepare.convert(service, "chat", body, exchange.principal)
        rendered = prepare.render(request)
        segments = [
            {"text": s.text, "special": s.special, "origin": s.origin, "role": s.role}
            for s in explain(rendered)
        ]
        count = len(prepare.encode(service, rendered))
        await exchange.answer(200, _dump({"count": count, "segments": segments}))

    async def response(self, exchange: Exchange) -> None:
        """A kept response; DELETE forgets it."""
        store, tenant = self._service.store, exchange.principal.tenant
        name = exchange.scope["path_params"]["name"]
        if exchange.scope["method"] == "DELETE":
            if not store.delete(tenant, name):
                raise _no_response(name)
            value = {"id": name, "object": "response", "deleted": True}
            await exchange.answer(200, _dump(value))
            return
        found = store.get(tenant, name)
        if found is None or found[2] is None:
            raise _no_response(name)
        await exchange.answer(200, found[2].encode())

    async def input_items(self, exchange: Exchange) -> None:
        """What a kept response answered, and what it said, oldest first."""
        name = exchange.scope["path_params"]["name"]
        found = self._service.store.get(exchange.principal.tenant, name)
        if found is None:
            raise _no_response(name)
        items = json.loads(found[1])
        await exchange.answer(200, _dump({"object": "list", "data": items, "has_more": False}))

    async def cancel_response(self, exchange: Exchange) -> None:
        """Ends a response that is being streamed."""
        name = exchange.scope["path_params"]["name"]
        live = self._service.live.get(name)
        if live is None or live.principal.tenant != exchange.principal.tenant:
            raise _no_response(name)
        live.cancel()
        value = {"id": name, "object": "response", "status": "cancelled"}
        await exchange.answer(200, _dump(value))

    async def _body(self, exchange: Exchange) -> dict[str, Any]:
        settings = self._service.settings
        return reading.parse(await exchange.body(settings.max_body_bytes, settings.body_timeout_s))


def _no_response(name: str) -> Problem:
    return Problem(404, f"response {name[:200]!r} is not kept here", code="response_not_found")


def _iso(seconds: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
