"""Chat Completions, Responses and Messages: one way for all three, streamed or whole.

Decides the order of steps from a body to an answer. Never reads fields and never spells events: the
recipe does. In: an exchange. Out: its answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ds_jax.recipe.inference import InferenceChunk, InferenceFinishReason, PromptUsage
from ds_jax.recipe.stream import StreamProcessor
from ds_jax.records import FinishReason, TokenEvent
from ds_jax.serving import events, prepare
from ds_jax.serving.exchange import Exchange
from ds_jax.serving.generation import Generation
from ds_jax.serving.prepare import Prepared, Protocol
from ds_jax.serving.problems import Problem
from ds_jax.serving.service import Service

LARGE_BODY = 32 * 1024  # bytes from which on a body is read beside the event loop
_REASONS = {
    FinishReason.STOP: InferenceFinishReason.Stop,
    FinishReason.LENGTH: InferenceFinishReason.Length,
}


def handler(service: Service, protocol: Protocol) -> Callable[[Exchange], Awaitable[None]]:
    """What answers requests of one API."""

    async def handle(exchange: Exchange) -> None:
        body = await exchange.body(service.settings.max_body_bytes, service.settings.body_timeout_s)
        with exchange.watched():
            principal = exchange.principal
            if len(body) < LARGE_BODY:
                prepared = prepare.prepare(service, protocol, body, principal)
            else:
                prepared = await asyncio.to_thread(
                    prepare.prepare, service, protocol, body, principal
                )
            note(exchange, service, body, prepared.ignored)
            generation = Generation(
                service.desk,
                principal,
                prepared.requests(principal),
                exchange.began,
                prepared.extras.deadline_s,
                whole=not prepared.request.stream and not prepared.one_by_one,
            )
            exchange.extra += service.gate.headers(principal)
            try:
                service.live[prepared.id] = exchange
                answer = _stream if prepared.request.stream else _whole
                await answer(service, exchange, prepared, generation)
            finally:
                service.live.pop(prepared.id, None)
                await generation.close()
                tell(exchange, generation)

    return handle


def note(exchange: Exchange, service: Service, body: bytes, ignored: list[str]) -> None:
    """What the log and the client are told of a request before it runs. Mutates the exchange."""
    if ignored:
        names = ",".join(name for name in ignored if name.isidentifier() and name.isascii())
        exchange.extra.append((b"x-ignored-fields", names[:1000].encode()))
    if service.settings.log_prompts:
        exchange.notes["body"] = body.decode("utf-8", errors="replace")


def tell(exchange: Exchange, generation: Generation) -> None:
    """What the log is told of a request that has ended. Mutates the exchange."""
    tallies, first = generation.tallies, generation.first_token_s
    exchange.notes |= {
        "prompt_tokens": tallies[0].prompt_tokens,
        "cached_tokens": tallies[0].cached_tokens,
        "completion_tokens": sum(tally.completion_tokens for tally in tallies),
        "finish_reason": ",".join(tally.reason or "" for tally in tallies),
        "ttft_ms": None if first is None else round(first * 1e3, 2),
    }


async def _whole(
    service: Service, exchange: Exchange, prepared: Prepared, generation: Generation
) -> None:
    response = prepared.response(int(time.time()))
    async for made in _made(service, prepared, generation):
        for event in made:
            response.accumulate(event)
    body = response.to_json()
    _keep(service, exchange, prepared, body)
    await exchange.answer(200, body.encode(errors="replace"))


async def _stream(
    service: Service, exchange: Exchange, prepared: Prepared, generation: Generation
) -> None:
    kind = prepared.response_class
    done, spell = kind.sse_done_data(), _speller(prepared, generation)
    kept = prepared.response(int(time.time())) if _is_kept(prepared) else None
    with events.EventStream(exchange, service.pulse, lambda: generation.backlog) as out:
        async for made in _made(service, prepared, generation):
            parts = [spell(event) for event in made]
            if kept is not None:
                for event in made:
                    kept.accumulate(event)
            if parts:
                await out.write(b"".join(parts))
        if kept is not None:
            _keep(service, exchange, prepared, kept.to_json())
        await out.write(b"" if done is None else events.event(None, done), last=True)


def broken(exchange: Exchange, problem: Problem) -> bytes:
    """The event of an error behind the first byte; nothing follows it."""
    data = problem.body(exchange.api, exchange.request_id).decode()
    return events.event("error" if exchange.api == "anthropic" else None, data)


async def _made(
    service: Service, prepared: Prepared, generation: Generation
) -> AsyncIterator[list[Any]]:
    """Events of the API, in the batches in which their tokens come."""
    tokenizer, fingerprint = service.model.tokenizer, service.model.fingerprint
    options = prepared.request.parsing_options
    processors = [StreamProcessor(g, options, tokenizer) for g in prepared.generators()]
    begun, one_by_one = [False] * len(processors), prepared.one_by_one
    async for index, batch in generation.batches():
        processor = processors[index]
        made: list[Any] = []
        if not begun[index]:
            begun[index] = True
            usage = PromptUsage(
                prompt_tokens=len(prepared.prompt_ids),
                prompt_cache_hit_tokens=generation.tallies[index].cached_tokens,
            )
            made += processor.push(
                InferenceChunk.ready(prompt_usage=usage, system_fingerprint=fingerprint)
            )
        if not one_by_one:
            yield made + _pushed(processor, batch)
            continue
        for event in batch:
            pushed = _push(processor, event)
            made += _marked(pushed, event) if prepared.include_drafts else pushed
            if processor.finished:
                await generation.end(index)
                break
        yield made


def _pushed(processor: StreamProcessor, batch: list[TokenEvent]) -> list[Any]:
    """Tokens that came at once, at once."""
    ids, reason = [e.token_id for e in batch if e.token_id is not None], batch[-1].finish_reason
    made = processor.push(InferenceChunk("tokens", tuple(ids), None)) if ids else []
    if reason is not None:
        made += processor.push(InferenceChunk.finish(_REASONS[reason]))
    return made


def _push(processor: StreamProcessor, event: TokenEvent) -> list[Any]:
    """One token at a time, so that a stop string ends text, ids and log probabilities alike."""
    made: list[Any] = []
    if event.token_id is not None:
        logprobs = None
        if event.logprob is not None:
            logprobs = [(event.logprob.logprob, list(event.logprob.top))]
        made = processor.push(InferenceChunk.tokens([event.token_id], logprobs))
    if event.finish_reason is not None and not processor.finished:
        made += processor.push(InferenceChunk.finish(_REASONS[event.finish_reason]))
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class Marked:
    """An event of the API, with the confidence of the accepted draft behind its newest token."""

    event: Any
    draft: float | None

    def to_json(self) -> str:
        """The event with one more field."""
        told = "null" if self.draft is None else f"{self.draft:.4f}"
        return f'{{"draft":{told},{self.event.to_json()[1:]}'


def _marked(made: list[Any], event: TokenEvent) -> list[Any]:
    return made if event.token_id is None else [Marked(each, event.draft) for each in made]


def _speller(prepared: Prepared, generation: Generation) -> Callable[[Any], bytes]:
    """How an event is written."""
    name_of = prepared.response_class.sse_event_name
    if prepared.continuous_usage:
        return lambda event: events.event(None, _with_usage(event.to_json(), generation))
    if prepared.include_usage:
        return lambda event: _usage_apart(event.to_json())
    return lambda event: events.event(name_of(event), event.to_json())


def _usage_apart(data: str) -> bytes:
    """With usage asked for, it comes in a chunk of its own, whose choices are empty."""
    if '"finish_reason":null' in data:
        return events.event(None, data)
    chunk = json.loads(data)
    usage = chunk.get("usage")
    if not usage:
        return events.event(None, data)
    chunk["usage"] = None
    last = {**chunk, "choices": [], "usage": usage}
    return events.event(None, _dump(chunk)) + events.event(None, _dump(last))


def _with_usage(data: str, generation: Generation) -> str:
    """A chunk with the tokens so far."""
    chunk = json.loads(data)
    if not chunk.get("usage"):
        prompt = generation.tallies[0].prompt_tokens
        done = sum(tally.completion_tokens for tally in generation.tallies)
        chunk["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": done,
            "total_tokens": prompt + done,
        }
    return _dump(chunk)


def _is_kept(prepared: Prepared) -> bool:
    reply = prepared.request._reply  # pyright: ignore[reportPrivateUsage]
    return prepared.protocol == "responses" and getattr(reply, "store", None) is not None


def _keep(service: Service, exchange: Exchange, prepared: Prepared, body: str) -> None:
    if _is_kept(prepared):
        service.store.finish(exchange.principal.tenant, prepared.id, body)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
