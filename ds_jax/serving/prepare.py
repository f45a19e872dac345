"""Requests of the three conversation APIs, as prompts.

Decides which model names exist, what of a body is read how, and what is refused in front of the
engine. Never generates. In: a body. Out: `Prepared`, or a `Problem`.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any, Literal, cast

from ds_jax.recipe.body import Parsed
from ds_jax.recipe.chat_completions import ChatCompletionRequest
from ds_jax.recipe.chat_response import ChatCompletionResponse
from ds_jax.recipe.encoding import DeepseekV41Encoding
from ds_jax.recipe.messages import MessagesRequest
from ds_jax.recipe.messages_response import MessagesResponse
from ds_jax.recipe.prompt import PromptSegment, RenderedPrompt
from ds_jax.recipe.request import ConversationRequest
from ds_jax.recipe.responses import ResponsesRequest
from ds_jax.recipe.responses_response import ResponsesResponse
from ds_jax.records import GenerateRequest, SamplingParams
from ds_jax.serving import extras, reading, sampling
from ds_jax.serving.extras import Extras
from ds_jax.serving.keys import Principal
from ds_jax.serving.problems import Problem
from ds_jax.serving.service import Service

Protocol = Literal["chat", "responses", "messages"]
SHORT_PROMPT = 32  # segments; longer prompts are encoded in one go
SHORT_TEXT = 128  # characters
MAX_KNOWN = 4096  # texts
_REQUESTS: dict[Protocol, Any] = {
    "chat": ChatCompletionRequest,
    "responses": ResponsesRequest,
    "messages": MessagesRequest,
}
_RESPONSES: dict[Protocol, Any] = {
    "chat": ChatCompletionResponse,
    "responses": ResponsesResponse,
    "messages": MessagesResponse,
}
_PREFIXES: dict[Protocol, str] = {"chat": "chatcmpl-", "responses": "resp_", "messages": "msg_"}


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be generated.

    Attributes:
      id: of the response.
      model: the name that was asked for.
      request: the converted request.
      prompt_ids: the prompt.
      params: how every answer is sampled.
      extras: further fields.
      ignored: names of fields that count for nothing.
      include_usage, continuous_usage, include_drafts: `stream_options`.
    """

    protocol: Protocol
    id: str
    model: str
    request: ConversationRequest
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    extras: Extras
    ignored: list[str]
    include_usage: bool
    continuous_usage: bool
    include_drafts: bool

    def generators(self) -> list[Any]:
        """What spells the events, one an answer."""
        kind = _REQUESTS[self.protocol]
        if self.protocol == "chat":
            return kind.chunk_generators(self.request, self.id, self.model)
        return [kind.chunk_generator(self.request, self.id, self.model)]

    def response(self, created: int) -> Any:
        """What puts events together again."""
        prompt = len(self.prompt_ids)
        return _RESPONSES[self.protocol](self.id, self.model, created, prompt, 0)

    @property
    def one_by_one(self) -> bool:
        """Whether each token must be looked at: for a stop string, or to tell of it."""
        stops = self.request.parsing_options.stop_sequences
        return bool(stops) or self.include_drafts or self.params.top_logprobs is not None

    @property
    def response_class(self) -> Any:
        """The class of `response`."""
        return _RESPONSES[self.protocol]

    def requests(self, principal: Principal) -> list[GenerateRequest]:
        """What the engine runs: one sequence an answer, with seeds that follow each other."""
        count = self.request.inference_options.n if self.protocol == "chat" else 1
        return sequences(self.id, self.prompt_ids, self.params, count, principal, self.extras)


def prepare(service: Service, protocol: Protocol, body: bytes, principal: Principal) -> Prepared:
    """Reads, converts, renders and encodes a request; may take as long as its size demands.

    Raises: Problem, BodyError, ConversionError, RequestError.
    """
    value = reading.parse(body)
    check_model(service, value)
    ignored = extras.ignored(protocol, value)
    own = extras.read(value)
    options = _adapt(protocol, value)
    request = convert(service, protocol, value, principal)
    prompt_ids = encode(service, render(request))
    if len(prompt_ids) >= service.model.max_context:
        request.resolve_max_tokens(len(prompt_ids) + 1, service.model.max_context)
    params = sampling.of(
        request, own, service.model.tokenizer, len(prompt_ids), service.model.max_context
    )
    return Prepared(
        protocol,
        f"{_PREFIXES[protocol]}{secrets.token_hex(16)}",
        value["model"],
        request,
        tuple(prompt_ids),
        params,
        own,
        ignored,
        bool(options.get("include_usage")),
        bool(options.get("continuous_usage_stats")),
        bool(options.get("include_drafts")),
    )


def check_model(service: Service, body: dict[str, Any]) -> str:
    """The name of the model.

    Raises: Problem 400 without a name, 404 for a model that is not served.
    """
    name = body.get("model")
    names = ", ".join(service.settings.models)
    if not isinstance(name, str):
        raise Problem(400, f"model: must be the name of a served model: {names}", param="model")
    if name not in service.settings.models:
        raise Problem(
            404,
            f"The model {name[:200]!r} does not exist; served here: {names}",
            code="model_not_found",
            param="model",
        )
    return name


def convert(
    service: Service, protocol: Protocol, body: dict[str, Any], principal: Principal
) -> ConversationRequest:
    """The conversation of a body, which is used up.

    Raises: BodyError, ConversionError.
    """
    return _REQUESTS[protocol](Parsed(body)).convert(service.options(principal.tenant))


def render(request: ConversationRequest) -> RenderedPrompt:
    """The prompt of a conversation.

    Raises: Problem: it has images.
    """
    rendered = DeepseekV41Encoding().render_conversation(request.conversation)
    if rendered.sources:
        raise Problem(
            400,
            f"{len(rendered.sources)} images: this server reads text only; leave the images out",
            code="images_not_supported",
            param="messages",
        )
    return rendered


def encode(service: Service, rendered: RenderedPrompt) -> list[int]:
    """Token ids of a prompt. Short texts are remembered: a template repeats them in each one."""
    tokenizer, known = service.model.tokenizer, service.encoded
    segments = rendered.segments
    if len(segments) > SHORT_PROMPT:
        return tokenizer.encode_segments(segments)
    ids: list[int] = []
    for text, special in segments:
        found = known.get((text, special))
        if found is None:
            found = tokenizer.encode_segments([PromptSegment(text, special)])
            if len(text) <= SHORT_TEXT:
                if len(known) >= MAX_KNOWN:
                    known.clear()
                known[text, special] = found
        ids += found
    return ids


def sequences(
    id: str,
    prompt_ids: tuple[int, ...],
    params: SamplingParams,
    count: int,
    principal: Principal,
    own: Extras,
) -> list[GenerateRequest]:
    """`count` sequences with one prompt; their seeds follow each other."""
    tenant = f"{principal.tenant}\0{own.cache_salt}" if own.cache_salt else principal.tenant
    found: list[GenerateRequest] = []
    for number in range(count):
        each = params
        if number and params.seq_seed is not None:
            seed = (params.seq_seed + number) % 2**64
            each = dataclasses.replace(params, seq_seed=seed)
        found.append(
            GenerateRequest(
                f"{id}-{number}",
                prompt_ids,
                each,
                priority=principal.priority * 10_000 - own.priority,
                deadline_s=own.deadline_s,
                tenant=tenant,
            )
        )
    return found


def _adapt(protocol: Protocol, body: dict[str, Any]) -> dict[str, Any]:
    """Spellings of other services that mean the same; mutates the body. Returns stream options."""
    if protocol == "responses" and body.get("background"):
        raise Problem(
            400,
            "background=true: answers are not made in the background here; use stream=true",
            param="background",
        )
    if protocol != "chat":
        return {}
    most = body.pop("max_completion_tokens", None)
    if most is not None:
        body["max_tokens"] = most
    messages = body.get("messages")
    if isinstance(messages, list):
        for message in cast("list[Any]", messages):
            if isinstance(message, dict) and cast("Any", message).get("role") == "developer":
                message["role"] = "system"
    options = body.get("stream_options")
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}
