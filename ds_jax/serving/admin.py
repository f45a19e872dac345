"""What only an operator may do: drain, abort, look inside.

Decides which operations there are. Who is an operator is decided before (`front`). Never generates.
In: an exchange. Out: its answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

from ds_jax.serving import prepare, reading
from ds_jax.serving.exchange import Exchange
from ds_jax.serving.problems import Problem
from ds_jax.serving.service import Service


class Admin:
    """Handlers of one service."""

    def __init__(self, service: Service):
        self._service = service

    async def drain(self, exchange: Exchange) -> None:
        """Takes no more requests; what is under way goes on. With `{"resume": true}` takes them
        again."""
        self._service.draining = not (await self._body(exchange)).get("resume", False)
        state = {"draining": self._service.draining, "in_flight": self._service.in_flight}
        await exchange.answer(200, _dump(state))

    async def abort(self, exchange: Exchange) -> None:
        """Ends the requests with the given response ids, or all of them."""
        body, live = await self._body(exchange), self._service.live
        if body.get("all") is True:
            names = list(live)
        else:
            name = body.get("id")
            if not isinstance(name, str):
                raise Problem(400, 'give {"id": "..."} or {"all": true}', param="id")
            names = [name] if name in live else []
        for name in names:
            live[name].cancel()
        await exchange.answer(200, _dump({"aborted": names}))

    async def server_info(self, exchange: Exchange) -> None:
        """Settings, sizes and numbers."""
        service = self._service
        model = {
            field.name: getattr(service.model, field.name)
            for field in dataclasses.fields(service.model)
            if field.name != "tokenizer"
        }
        await exchange.answer(
            200,
            _dump(
                {
                    "settings": dataclasses.asdict(service.settings),
                    "model": model,
                    "engine": service.replica.engine.stats(),
                    "engine_restarts": service.replica.restarts,
                    "live": list(service.live),
                    "waiting": service.gate.admission.num_waiting,
                }
            ),
        )

    async def explain_cache(self, exchange: Exchange) -> None:
        """Why a prompt is not in the prefix cache: ids, a text, or a chat request."""
        service, body = self._service, await self._body(exchange)
        tenant = body.get("tenant", "")
        if not isinstance(tenant, str):
            raise Problem(400, "tenant: must be a string", param="tenant")
        ids = self._ids(exchange, body)
        miss = await asyncio.to_thread(service.replica.engine.explain_miss, ids, tenant)
        tokenizer = service.model.tokenizer
        near = ids[max(0, miss.position - 8) : miss.position + 8]
        await exchange.answer(
            200,
            _dump(
                {
                    "prompt_tokens": len(ids),
                    "found_tokens": miss.found_tokens,
                    "state_tokens": miss.state_tokens,
                    "page": miss.page,
                    "position": miss.position,
                    "cause": str(miss.cause),
                    "near": tokenizer.decode(near),
                }
            ),
        )

    def _ids(self, exchange: Exchange, body: dict[str, Any]) -> list[int]:
        service = self._service
        if "messages" in body:
            body.setdefault("model", service.settings.models[0])
            request = prepare.convert(service, "chat", body, exchange.principal)
            return prepare.encode(service, prepare.render(request))
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            return [service.model.bos_token_id, *service.model.tokenizer.encode_text(prompt)]
        size = service.model.vocab_size
        if isinstance(prompt, list) and all(type(i) is int and 0 <= i < size for i in prompt):
            return list(prompt)
        raise Problem(
            400, "prompt: must be a string or token ids, or give messages", param="prompt"
        )

    async def _body(self, exchange: Exchange) -> dict[str, Any]:
        settings = self._service.settings
        data = await exchange.body(settings.max_body_bytes, settings.body_timeout_s)
        return reading.parse(data) if data else {}


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
