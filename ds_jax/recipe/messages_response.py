"""Messages: stream events in, one message out.

Decides how events add up. Never sees deltas of another protocol. In: `MessagesStreamEvent`s. Out:
the message object.
"""

from __future__ import annotations

import dataclasses

from ds_jax.recipe import event_json
from ds_jax.recipe.deltas import CallArguments, CallStart, ContentDelta, ReasoningDelta
from ds_jax.recipe.generator import Origin, expect
from ds_jax.recipe.messages_events import (
    Body,
    End,
    Head,
    MessagesStreamEvent,
    SignatureDelta,
    TextBlock,
    Usage,
    message_json,
    tool_use_json,
)


@dataclasses.dataclass(slots=True)
class _Block:
    """One content block while it grows; its texts are joined in the end."""

    opened: TextBlock | CallStart
    texts: list[str] = dataclasses.field(default_factory=list[str])
    signature: list[str] = dataclasses.field(default_factory=list[str])
    arguments: str = "{}"

    def add(self, delta: Body) -> None:
        """Mutates the block."""
        if isinstance(delta, ContentDelta | ReasoningDelta | CallArguments):
            self.texts.append(delta.text)
        elif isinstance(delta, SignatureDelta):
            self.signature.append(delta.signature)

    def close(self) -> None:
        """Reads the arguments of a call, now that they are complete. Mutates the block."""
        if isinstance(self.opened, CallStart):
            self.arguments = event_json.respelled("".join(self.texts)) or "{}"

    def to_json(self) -> str:
        """The block."""
        if isinstance(self.opened, CallStart):
            return tool_use_json(self.opened, self.arguments)
        text = event_json.quote("".join(self.texts))
        if self.opened.kind == "text":
            return f'{{"type":"text","text":{text}}}'
        signature = event_json.quote("".join(self.signature))
        return f'{{"type":"thinking","thinking":{text},"signature":{signature}}}'


class MessagesResponse:
    """A whole message, put together from the events of its stream.

    Args:
      id: id of the message, until its first event brings another.
      model: name of the model, until the first event brings another.
      created: unused: a message has no time.
      prompt_tokens: tokens of the prompt, until the first event brings the usage.
      prompt_cache_hit_tokens: those of them that were found in a cache.
    """

    __slots__ = ("_blocks", "_end", "_head")

    def __init__(
        self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int
    ) -> None:
        origin = Origin(id, model, created, prompt_tokens, prompt_cache_hit_tokens)
        usage = Usage(origin.prompt_tokens, origin.prompt_cache_hit_tokens, 0)
        self._head = Head(origin.id, origin.model, usage)
        self._blocks: list[_Block] = []
        self._end: End | None = None

    def accumulate(self, chunk: MessagesStreamEvent) -> None:
        """Adds an event and uses it up. Mutates the response and the event.

        Raises:
          RuntimeError: the event was accumulated before.
          TypeError: the event belongs to another protocol.
        """
        expect(chunk, MessagesStreamEvent)
        name, index, body = chunk._consume()  # pyright: ignore[reportPrivateUsage]
        if name == "content_block_delta":
            if index < len(self._blocks):
                self._blocks[index].add(body)
        elif isinstance(body, TextBlock | CallStart):
            if index == len(self._blocks):
                self._blocks.append(_Block(body))
        elif name == "content_block_stop":
            if index < len(self._blocks):
                self._blocks[index].close()
        elif isinstance(body, Head):
            self._head = body
        elif isinstance(body, End):
            self._end = body

    def to_json(self) -> str:
        """The message so far as compact JSON."""
        content = ",".join([block.to_json() for block in self._blocks])
        id, model, end = self._head.id, self._head.model, self._end
        if end is None:
            return message_json(id, model, content, None, None, self._head.usage)
        return message_json(id, model, content, end.stop_reason, end.stop_sequence, end.usage)

    @staticmethod
    def sse_event_name(chunk: MessagesStreamEvent) -> str | None:
        """The type of the event.

        Raises:
          RuntimeError: the event was accumulated.
          TypeError: the event belongs to another protocol.
        """
        expect(chunk, MessagesStreamEvent)
        return chunk._check()  # pyright: ignore[reportPrivateUsage]

    @staticmethod
    def sse_done_data() -> str | None:
        """None: the last event needs no successor."""
        return None
