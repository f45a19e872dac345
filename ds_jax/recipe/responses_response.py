"""Responses: stream events in, one response object out.

Decides how events add up. Never sees deltas of another protocol. In: `ResponsesStreamEvent`s. Out:
the response object.
"""

from __future__ import annotations

import dataclasses

from ds_jax.recipe.deltas import TokenLogprob
from ds_jax.recipe.generator import Origin, expect
from ds_jax.recipe.responses_events import ResponsesStreamEvent
from ds_jax.recipe.responses_output import Item, Logprobs, MessageItem
from ds_jax.recipe.responses_reply import ResponsesEcho
from ds_jax.recipe.responses_snapshot import Snapshot


@dataclasses.dataclass(slots=True)
class _Growing:
    """An item and the texts that came for it; they are joined in the end."""

    item: Item
    texts: list[str] = dataclasses.field(default_factory=list[str])
    logprobs: list[TokenLogprob] = dataclasses.field(default_factory=list[TokenLogprob])

    def add(self, text: str, logprobs: Logprobs) -> None:
        """One more piece, once there is a text to extend. Mutates the record."""
        if self.item.text is not None:
            self.texts.append(text)
            self.logprobs.extend(logprobs)

    def settle(self, item: Item, begins: bool) -> None:
        """Takes the text of `item`, in place of what was gathered. Mutates the record."""
        if self.item.text is None and not begins:
            return
        self.item = dataclasses.replace(self.item, text=item.text)
        if isinstance(item, MessageItem) and isinstance(self.item, MessageItem):
            self.item = dataclasses.replace(self.item, logprobs=item.logprobs)
        self.texts.clear()
        self.logprobs.clear()

    def current(self) -> Item:
        """The item as far as it has come."""
        if not self.texts:
            return self.item
        text = (self.item.text or "") + "".join(self.texts)
        if isinstance(self.item, MessageItem):
            logprobs = (*self.item.logprobs, *self.logprobs)
            return dataclasses.replace(self.item, text=text, logprobs=logprobs)
        return dataclasses.replace(self.item, text=text)


class ResponsesResponse:
    """A whole response, put together from the events of its stream.

    Args:
      id: id of the response, until the first event brings another.
      model: name of the model, until the first event brings another.
      created: seconds since 1970, until the first event brings another time.
      prompt_tokens: unused here: the last event brings the usage.
      prompt_cache_hit_tokens: unused here, as above.
    """

    __slots__ = ("_output", "_snapshot")

    def __init__(
        self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int
    ) -> None:
        origin = Origin(id, model, created, prompt_tokens, prompt_cache_hit_tokens)
        self._snapshot = Snapshot(
            id=origin.id, model=origin.model, created_at=origin.created, echo=ResponsesEcho()
        )
        self._output: list[_Growing] = []

    def accumulate(self, chunk: ResponsesStreamEvent) -> None:
        """Adds an event and uses it up. Mutates the response and the event.

        Raises:
          RuntimeError: the event was accumulated before.
          TypeError: the event belongs to another protocol.
        """
        expect(chunk, ResponsesStreamEvent)
        name, index, subject, text, logprobs = chunk._consume()  # pyright: ignore[reportPrivateUsage]
        if isinstance(subject, Snapshot):
            self._snapshot = subject
            self._output = [_Growing(item) for item in subject.output]
        elif name == "response.output_item.added":
            if index == len(self._output):
                self._output.append(_Growing(subject))
        elif index < len(self._output):
            growing = self._output[index]
            if name.endswith(".delta"):
                growing.add(text, logprobs)
            elif name == "response.output_item.done":
                self._output[index] = _Growing(subject)
            else:
                growing.settle(subject, name == "response.content_part.added")

    def to_json(self) -> str:
        """The response so far as compact JSON."""
        output = tuple([growing.current() for growing in self._output])
        return dataclasses.replace(self._snapshot, output=output).to_json()

    @staticmethod
    def sse_event_name(chunk: ResponsesStreamEvent) -> str | None:
        """The type of the event.

        Raises:
          RuntimeError: the event was accumulated.
          TypeError: the event belongs to another protocol.
        """
        expect(chunk, ResponsesStreamEvent)
        return chunk._check()  # pyright: ignore[reportPrivateUsage]

    @staticmethod
    def sse_done_data() -> str | None:
        """None: the last event needs no successor."""
        return None
