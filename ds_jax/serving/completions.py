"""Text completions: prompts as they are, without roles.

Decides what `/v1/completions` reads and how its answers look. Control strings in a prompt are
ordinary text; a prompt starts with the begin token. Never renders conversations. In: an exchange.
Out: its answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from ds_jax.errors import RequestError
from ds_jax.grammar_request import GrammarRequest
from ds_jax.recipe.tokenizer import Detokenizer, Tokenizer
from ds_jax.records import FinishReason, GenerateRequest, SamplingParams, TokenEvent
from ds_jax.serving import conversations, events, extras, prepare, reading
from ds_jax.serving.exchange import Exchange
from ds_jax.serving.generation import Generation
from ds_jax.serving.keys import Principal
from ds_jax.serving.problems import Problem
from ds_jax.serving.service import Service

MAX_PROMPTS = 64
_DEFAULT_TOKENS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be generated."""

    id: str
    model: str
    requests: list[GenerateRequest]
    echo: list[str]  # text in front of each answer
    logprobs: int | None
    stream: bool
    include_usage: bool
    ignored: list[str]
    deadline_s: float | None
    num_prompts: int


class Choice:
    """One answer as it grows. Methods mutate it."""

    def __init__(self, tokenizer: Tokenizer, logprobs: int | None, stops: bool):
        self.reason: str | None = None
        self._tokenizer = tokenizer
        self._detokenizer: Detokenizer | None = None
        if not stops:  # else the engine tells the text, cut in front of the stop string
            self._detokenizer = tokenizer.detokenizer(skip_control=True)
        self._top = logprobs
        self._offset = 0

    def add(self, batch: Sequence[TokenEvent]) -> tuple[str, dict[str, Any] | None]:
        """Text and log probabilities of a batch."""
        texts: list[str] = []
        logprobs: dict[str, list[Any]] = {
            name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }
        for event in batch:
            text = event.text or ""
            if self._detokenizer is not None:
                if event.token_id is not None:
                    text = self._detokenizer.push([event.token_id])
                if event.finish_reason is not None:
                    text += self._detokenizer.finish()
            texts.append(text)
            if event.logprob is not None and event.token_id is not None:
                logprobs["tokens"].append(self._spelled(event.token_id))
                logprobs["token_logprobs"].append(event.logprob.logprob)
                top = {self._spelled(token): value for token, value in event.logprob.top}
                logprobs["top_logprobs"].append(top or None)
                logprobs["text_offset"].append(self._offset)
            self._offset += len(text)
            if event.finish_reason is not None:
                self.reason = "length" if event.finish_reason is FinishReason.LENGTH else "stop"
        return "".join(texts), None if self._top is None else logprobs

    def _spelled(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode("utf-8", errors="replace")


def handler(service: Service) -> Callable[[Exchange], Awaitable[None]]:
    """What answers `/v1/completions`."""

    async def handle(exchange: Exchange) -> None:
        body = await exchange.body(service.settings.max_body_bytes, service.settings.body_timeout_s)
        with exchange.watched():
            principal = exchange.principal
            if len(body) < conversations.LARGE_BODY:
                prepared = read(service, body, principal)
            else:
                prepared = await asyncio.to_thread(read, service, body, principal)
            conversations.note(exchange, service, body, prepared.ignored)
            generation = Generation(
                service.desk,
                principal,
                prepared.requests,
                exchange.began,
                prepared.deadline_s,
                whole=not prepared.stream,
            )
            exchange.extra += service.gate.headers(principal)
            try:
                service.live[prepared.id] = exchange
                await _answer(service, exchange, prepared, generation)
            finally:
                service.live.pop(prepared.id, None)
                await generation.close()
                conversations.tell(exchange, generation)

    return handle


def read(service: Service, body: bytes, principal: Principal) -> Prepared:
    """The sequences of a body.

    Raises: Problem, BodyError, RequestError.
    """
    value = reading.parse(body)
    prepare.check_model(service, value)
    own = extras.read(value)
    for name, only in (("suffix", None), ("best_of", 1)):
        given = value.get(name)
        if given is not None and given not in (only, value.get("n", 1) if only else only, ""):
            raise Problem(400, f"{name}={given!r}: is not supported; leave it out", param=name)
    prompts = _prompts(service, value.get("prompt"))
    count = _whole(value, "n", 1, 1, service.settings.max_choices)
    logprobs = value.get("logprobs")
    if logprobs is not None:
        logprobs = _whole(value, "logprobs", 0, 0, 20)
    stop = value.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or len(cast("list[Any]", stops)) > 16:
        raise Problem(400, "stop: must be a string or a list of at most 16", param="stop")
    id, echo = f"cmpl-{secrets.token_hex(16)}", bool(value.get("echo"))
    requests: list[GenerateRequest] = []
    texts: list[str] = []
    for number, ids in enumerate(prompts):
        room = service.model.max_context - len(ids)
        if room < 1:
            raise Problem(
                400,
                f"prompt: {len(ids)} tokens; the context holds {service.model.max_context}, and at "
                "least one must be left for the answer",
                param="prompt",
                code="context_length_exceeded",
            )
        params = SamplingParams(
            max_tokens=min(room, _whole(value, "max_tokens", _DEFAULT_TOKENS, 1, 2**31)),
            temperature=_real(value, "temperature", 1.0),
            top_p=_real(value, "top_p", 1.0) or 1e-6,
            top_k=own.top_k,
            min_p=own.min_p,
            repetition_penalty=own.repetition_penalty,
            presence_penalty=own.presence_penalty,
            frequency_penalty=own.frequency_penalty,
            logit_bias=own.logit_bias,
            top_logprobs=logprobs,
            seq_seed=own.seed,
            ignore_eos=own.ignore_eos,
            stop=tuple(cast("list[str]", stops)),
            grammar=None if own.ebnf is None else GrammarRequest("ebnf", own.ebnf),
        )
        requests += prepare.sequences(f"{id}-{number}", ids, params, count, principal, own)
        text = service.model.tokenizer.decode(ids, skip_control=True) if echo else ""
        texts += [text] * count
    options = value.get("stream_options")
    usage = isinstance(options, dict) and bool(cast("Any", options).get("include_usage"))
    return Prepared(
        id,
        cast("str", value["model"]),
        requests,
        texts,
        logprobs,
        bool(value.get("stream")),
        usage,
        extras.ignored("completions", value),
        own.deadline_s,
        len(prompts),
    )


async def _answer(
    service: Service, exchange: Exchange, prepared: Prepared, generation: Generation
) -> None:
    head = {
        "id": prepared.id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": prepared.model,
        "system_fingerprint": service.model.fingerprint,
    }
    choices = [
        Choice(service.model.tokenizer, prepared.logprobs, bool(request.params.stop))
        for request in prepared.requests
    ]
    if prepared.stream:
        await _stream(service, exchange, prepared, generation, head, choices)
        return
    texts = [[text] for text in prepared.echo]
    logprobs: list[Any] = [None] * len(choices)
    async for index, batch in generation.batches():
        text, found = choices[index].add(batch)
        texts[index].append(text)
        logprobs[index] = _joined(logprobs[index], found)
    head["choices"] = [
        _choice(number, "".join(texts[number]), logprobs[number], choice.reason)
        for number, choice in enumerate(choices)
    ]
    head["usage"] = _usage(prepared, generation)
    await exchange.answer(200, _dump(head).encode(errors="replace"))


async def _stream(
    service: Service,
    exchange: Exchange,
    prepared: Prepared,
    generation: Generation,
    head: dict[str, Any],
    choices: list[Choice],
) -> None:
    usage = {"usage": None} if prepared.include_usage else {}
    with events.EventStream(exchange, service.pulse, lambda: generation.backlog) as out:
        first = [True] * len(choices)
        async for index, batch in generation.batches():
            text, logprobs = choices[index].add(batch)
            if first[index]:
                first[index] = False
                text = prepared.echo[index] + text
            reason = choices[index].reason
            if text or logprobs or reason:
                chunk = {**head, "choices": [_choice(index, text, logprobs, reason)], **usage}
                await out.write(events.event(None, _dump(chunk)))
        if prepared.include_usage:
            last = {**head, "choices": [], "usage": _usage(prepared, generation)}
            await out.write(events.event(None, _dump(last)))
        await out.write(events.event(None, "[DONE]"), last=True)


def _choice(index: int, text: str, logprobs: Any, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _joined(before: dict[str, list[Any]] | None, more: dict[str, list[Any]] | None) -> Any:
    if before is None or more is None:
        return more
    return {name: before[name] + more[name] for name in before}


def _usage(prepared: Prepared, generation: Generation) -> dict[str, Any]:
    each = len(generation.tallies) // prepared.num_prompts  # answers of one prompt
    prompt = sum(tally.prompt_tokens for tally in generation.tallies[::each])
    cached = sum(tally.cached_tokens for tally in generation.tallies[::each])
    done = sum(tally.completion_tokens for tally in generation.tallies)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": done,
        "total_tokens": prompt + done,
        "prompt_tokens_details": {"cached_tokens": cached},
        "prompt_cache_hit_tokens": cached,
        "prompt_cache_miss_tokens": prompt - cached,
    }


def _prompts(service: Service, value: Any) -> list[tuple[int, ...]]:
    model = service.model
    if isinstance(value, str) or (isinstance(value, list) and value and _is_ids(value)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise Problem(
            400, "prompt: must be a string, a list of token ids, or a list of these", param="prompt"
        )
    entries = cast("list[Any]", value)
    if len(entries) > MAX_PROMPTS:
        raise Problem(
            400, f"prompt: {len(entries)} prompts; send at most {MAX_PROMPTS}", param="prompt"
        )
    found: list[tuple[int, ...]] = []
    for entry in entries:
        if isinstance(entry, str):
            found.append((model.bos_token_id, *model.tokenizer.encode_text(entry)))
        elif isinstance(entry, list) and entry and _is_ids(entry):
            found.append(tuple(cast("list[int]", entry)))
        else:
            raise Problem(400, "prompt: must hold strings or lists of token ids", param="prompt")
    for ids in found:
        if any(not 0 <= token < model.vocab_size for token in ids):
            raise RequestError(
                f"prompt: token ids go from 0 to {model.vocab_size - 1}", param="prompt"
            )
    return found


def _is_ids(value: Any) -> bool:
    return all(type(token) is int for token in value)


def _whole(body: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise Problem(
            400, f"{name}={value!r}: must be a whole number from {low} to {high}", param=name
        )
    return value


def _real(body: dict[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(400, f"{name}={value!r}: must be a number", param=name)
    return float(value)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
