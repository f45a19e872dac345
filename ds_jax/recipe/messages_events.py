"""Messages: deltas in, stream events out.

Decides when content blocks open and close and how each event is spelled. Never parses model
output. In: deltas. Out: `MessagesStreamEvent`s, which `messages_response` puts together again.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, TypeAlias

from ds_jax.recipe import arguments, event_json
from ds_jax.recipe.deltas import (
    CallArguments,
    CallStart,
    ContentDelta,
    Delta,
    Finished,
    ReasoningDelta,
)
from ds_jax.recipe.generator import ChunkGenerator, consumed
from ds_jax.recipe.request import ConversationRequest

if TYPE_CHECKING:
    from ds_jax.recipe.stream import PromptUsage

EventName: TypeAlias = Literal[
    "message_start",
    "content_block_start",
    "ping",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "stop_sequence": "stop_sequence",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; prompt tokens found in a cache are counted apart from the others."""

    prompt_tokens: int
    prompt_cache_hit_tokens: int
    output_tokens: int

    def to_json(self) -> str:
        """The `usage` object."""
        return (
            f'{{"input_tokens":{max(0, self.prompt_tokens - self.prompt_cache_hit_tokens)},'
            f'"cache_creation_input_tokens":0,'
            f'"cache_read_input_tokens":{self.prompt_cache_hit_tokens},'
            f'"output_tokens":{self.output_tokens},"service_tier":"standard"}}'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Head:
    """Body of message_start."""

    id: str
    model: str
    usage: Usage


@dataclasses.dataclass(frozen=True, slots=True)
class TextBlock:
    """Body of content_block_start: thinking or text begins."""

    kind: Literal["thinking", "text"]


@dataclasses.dataclass(frozen=True, slots=True)
class SignatureDelta:
    """Body of content_block_delta: what vouches for the thinking that ends here."""

    signature: str


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """Body of message_delta."""

    stop_reason: str
    stop_sequence: str | None
    usage: Usage


Body: TypeAlias = (
    Head
    | TextBlock
    | CallStart
    | ReasoningDelta
    | ContentDelta
    | CallArguments
    | SignatureDelta
    | End
    | None
)


class MessagesStreamEvent:
    """One event of a Messages stream; accumulating it uses it up."""

    __slots__ = ("_body", "_index", "_name")

    _name: EventName | None

    def __init__(self, name: EventName, index: int = 0, body: Body = None) -> None:
        self._name = name
        self._index = index
        self._body = body

    def to_json(self) -> str:
        """The event as compact JSON.

        Raises:
          RuntimeError: the event was accumulated.
        """
        name, body = self._check(), self._body
        if name == "content_block_delta":
            delta = _delta_json(body)
            return f'{{"type":"content_block_delta","index":{self._index},"delta":{delta}}}'
        if name == "content_block_start":
            return (
                f'{{"type":"content_block_start","index":{self._index},'
                f'"content_block":{_block_json(body)}}}'
            )
        if name == "content_block_stop":
            return f'{{"type":"content_block_stop","index":{self._index}}}'
        if isinstance(body, Head):
            message = message_json(body.id, body.model, "", None, None, body.usage)
            return f'{{"type":"message_start","message":{message}}}'
        if isinstance(body, End):
            stop = stop_json(body.stop_reason, body.stop_sequence)
            usage = body.usage.to_json()
            return f'{{"type":"message_delta","delta":{{{stop}}},"usage":{usage}}}'
        return f'{{"type":"{name}"}}'

    def _check(self) -> EventName:
        """The name; refuses a used event."""
        if self._name is None:
            raise consumed()
        return self._name

    def _consume(self) -> tuple[EventName, int, Body]:
        """Takes the contents out; the event is used up."""
        name = self._check()
        self._name = None
        return name, self._index, self._body


class MessagesChunkGenerator(ChunkGenerator):
    """Makes the events of one message; a stream processor uses it up.

    Args:
      id: id of the message.
      model: name of the model that answers.
      thinking_mode: whether the message begins with a thinking block.
    """

    __slots__ = (
        "_index",
        "_open",
        "_pinged",
        "_prompt_usage",
        "_signature",
    )

    _open: type[ReasoningDelta | ContentDelta | CallArguments] | None
    _prompt_usage: PromptUsage

    def __init__(self, id: str, model: str, thinking_mode: bool) -> None:
        super().__init__(id, model, thinking_mode)
        self._signature = self._id
        self._index = 0
        self._open = None
        self._pinged = False

    def with_signature(self, signature: str) -> MessagesChunkGenerator:
        """A generator that ends thinking blocks with `signature` instead of the id.

        Mutates this generator: it is used up.

        Raises:
          RuntimeError: it already was.
        """
        signature = arguments.text("signature", signature)
        self._take()
        other = MessagesChunkGenerator(self._id, self._model, self._thinking_mode)
        other._signature = signature
        return other

    def _start(
        self, prompt_usage: PromptUsage, system_fingerprint: str | None
    ) -> list[MessagesStreamEvent]:
        self._prompt_usage = prompt_usage
        head = Head(self._id, self._model, self._usage(0))
        events = [MessagesStreamEvent("message_start", 0, head)]
        if self._thinking_mode:
            self._begin(events, ReasoningDelta, TextBlock("thinking"))
        return events

    def _add(self, delta: Delta) -> list[MessagesStreamEvent]:
        if type(delta) is self._open:
            return [MessagesStreamEvent("content_block_delta", self._index, delta)]
        events: list[MessagesStreamEvent] = []
        self._end(events)
        if isinstance(delta, CallStart):
            self._begin(events, CallArguments, delta)
            return events
        thinking = isinstance(delta, ReasoningDelta)
        self._begin(events, type(delta), TextBlock("thinking" if thinking else "text"))
        events.append(MessagesStreamEvent("content_block_delta", self._index, delta))
        return events

    def _finish(self, finished: Finished) -> list[MessagesStreamEvent]:
        events: list[MessagesStreamEvent] = []
        self._end(events)
        end = End(
            _STOP_REASONS[finished.reason],
            finished.stop_sequence,
            self._usage(finished.completion_tokens),
        )
        events.append(MessagesStreamEvent("message_delta", 0, end))
        events.append(MessagesStreamEvent("message_stop"))
        return events

    def _begin(
        self,
        events: list[MessagesStreamEvent],
        deltas: type[ReasoningDelta | ContentDelta | CallArguments],
        block: TextBlock | CallStart,
    ) -> None:
        """Opens a block for these deltas. Mutates `events`."""
        self._open = deltas
        events.append(MessagesStreamEvent("content_block_start", self._index, block))
        if not self._pinged:
            self._pinged = True
            events.append(MessagesStreamEvent("ping"))

    def _end(self, events: list[MessagesStreamEvent]) -> None:
        """Closes the open block, if there is one. Mutates `events`."""
        if self._open is None:
            return
        if self._open is ReasoningDelta:
            signature = SignatureDelta(self._signature)
            events.append(MessagesStreamEvent("content_block_delta", self._index, signature))
        events.append(MessagesStreamEvent("content_block_stop", self._index))
        self._index += 1
        self._open = None

    def _usage(self, output_tokens: int) -> Usage:
        prompt = self._prompt_usage
        return Usage(prompt.prompt_tokens, prompt.prompt_cache_hit_tokens, output_tokens)


def generator(request: ConversationRequest, id: str, model: str) -> MessagesChunkGenerator:
    """The generator for a converted request, of any protocol."""
    arguments.record("request", request, ConversationRequest)
    return MessagesChunkGenerator(id, model, request.conversation.thinking_mode)


def message_json(
    id: str,
    model: str,
    content: str,
    stop_reason: str | None,
    stop_sequence: str | None,
    usage: Usage,
) -> str:
    """A whole message; `content` is the JSON of its blocks without the brackets."""
    return (
        f'{{"id":{event_json.quote(id)},"type":"message","role":"assistant",'
        f'"model":{event_json.quote(model)},"content":[{content}],'
        f'{stop_json(stop_reason, stop_sequence)},"usage":{usage.to_json()}}}'
    )


def tool_use_json(call: CallStart, arguments: str) -> str:
    """A tool_use block; `arguments` is JSON."""
    return (
        f'{{"type":"tool_use","id":{event_json.quote(call.id)},'
        f'"name":{event_json.quote(call.name)},"input":{arguments}}}'
    )


def stop_json(stop_reason: str | None, stop_sequence: str | None) -> str:
    """The two fields that say why a message ended."""
    reason = "null" if stop_reason is None else f'"{stop_reason}"'
    sequence = "null" if stop_sequence is None else event_json.quote(stop_sequence)
    return f'"stop_reason":{reason},"stop_sequence":{sequence}'


def _block_json(body: Body) -> str:
    if isinstance(body, CallStart):
        return tool_use_json(body, "{}")
    if isinstance(body, TextBlock) and body.kind == "thinking":
        return '{"type":"thinking","thinking":"","signature":""}'
    return '{"type":"text","text":""}'


def _delta_json(body: Body) -> str:
    if isinstance(body, ContentDelta):
        return f'{{"type":"text_delta","text":{event_json.quote(body.text)}}}'
    if isinstance(body, ReasoningDelta):
        return f'{{"type":"thinking_delta","thinking":{event_json.quote(body.text)}}}'
    if isinstance(body, CallArguments):
        return f'{{"type":"input_json_delta","partial_json":{event_json.quote(body.text)}}}'
    assert isinstance(body, SignatureDelta), f"a block delta has a text, not {body!r}"
    return f'{{"type":"signature_delta","signature":{event_json.quote(body.signature)}}}'
