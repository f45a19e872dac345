"""Responses: output items while they grow.

Decides which events open an item, extend it and close it. Never decides which item comes next. In:
deltas. Out: events and, in the end, the finished item.
"""

from __future__ import annotations

import dataclasses
from typing import Generic, Protocol, TypeVar

from ds_jax.recipe import event_json
from ds_jax.recipe.apply_patch import InputDecoder
from ds_jax.recipe.deltas import CallArguments, ContentDelta, Delta, ReasoningDelta, TokenLogprob
from ds_jax.recipe.responses_events import ResponsesStreamEvent, Subject
from ds_jax.recipe.responses_output import (
    CustomCallItem,
    FunctionCallItem,
    Item,
    Logprobs,
    MessageItem,
    Phase,
    ReasoningItem,
    SearchCallItem,
    Status,
)

C = TypeVar("C", FunctionCallItem, CustomCallItem, SearchCallItem)


class EventLog:
    """Numbers the events of one stream."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def event(
        self, name: str, index: int, subject: Subject, text: str = "", logprobs: Logprobs = ()
    ) -> ResponsesStreamEvent:
        """The next event. Mutates the log."""
        sequence = self._next
        self._next = sequence + 1
        return ResponsesStreamEvent(name, sequence, index, subject, text, logprobs)


class OpenItem(Protocol):
    """An item that grows."""

    accepts: type[Delta]
    """The deltas that extend it; any other delta closes it first."""

    def open(self) -> list[ResponsesStreamEvent]:
        """The events that begin the item."""
        ...

    def add(self, delta: Delta) -> list[ResponsesStreamEvent]:
        """The events of one delta. Mutates the item."""
        ...

    def close(self, status: Status, phase: Phase) -> tuple[list[ResponsesStreamEvent], Item]:
        """The events that end the item, and the item. Mutates the item."""
        ...


class OpenText:
    """Reasoning or an answer."""

    __slots__ = ("_events", "_index", "_item", "_logprobs", "_name", "_texts", "accepts")

    def __init__(
        self,
        events: EventLog,
        index: int,
        response_id: str,
        kind: type[ReasoningDelta | ContentDelta],
    ) -> None:
        self.accepts: type[Delta] = kind
        self._events = events
        self._index = index
        self._item: ReasoningItem | MessageItem
        if kind is ReasoningDelta:
            self._item = ReasoningItem(f"rs_{response_id}_{index}", f"{response_id}-{index}")
            self._name = "response.reasoning_text.delta"
        else:
            self._item = MessageItem(f"msg_{response_id}_{index}")
            self._name = "response.output_text.delta"
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    def open(self) -> list[ResponsesStreamEvent]:
        """Two events: the item and its only content part."""
        event, index = self._events.event, self._index
        part = dataclasses.replace(self._item, text="")
        return [
            event("response.output_item.added", index, self._item),
            event("response.content_part.added", index, part),
        ]

    def add(self, delta: Delta) -> list[ResponsesStreamEvent]:
        """One event, even for an empty text. Mutates the item."""
        assert isinstance(delta, ReasoningDelta | ContentDelta), f"no text: {delta!r}"
        self._texts.append(delta.text)
        if delta.logprobs is None:
            return [self._events.event(self._name, self._index, self._item, delta.text)]
        self._logprobs.extend(delta.logprobs)
        return [self._events.event(self._name, self._index, self._item, delta.text, delta.logprobs)]

    def close(self, status: Status, phase: Phase) -> tuple[list[ResponsesStreamEvent], Item]:
        """Three events: the text, the part and the item."""
        event, index = self._events.event, self._index
        text = "".join(self._texts)
        done: ReasoningItem | MessageItem
        if isinstance(self._item, ReasoningItem):
            done = dataclasses.replace(self._item, status=status, text=text)
        else:
            logprobs = tuple(self._logprobs)
            done = dataclasses.replace(
                self._item, status=status, phase=phase, text=text, logprobs=logprobs
            )
        events = [
            event(f"{self._name.removesuffix('delta')}done", index, done),
            event("response.content_part.done", index, done),
            event("response.output_item.done", index, done),
        ]
        return events, done


class _OpenCall(Generic[C]):
    """A call whose arguments grow."""

    __slots__ = ("_events", "_index", "_item", "_texts")

    accepts: type[Delta] = CallArguments

    def __init__(self, events: EventLog, index: int, item: C) -> None:
        self._events = events
        self._index = index
        self._item: C = item
        self._texts: list[str] = []

    def open(self) -> list[ResponsesStreamEvent]:
        """One event."""
        return [self._events.event("response.output_item.added", self._index, self._item)]


class OpenFunctionCall(_OpenCall[FunctionCallItem]):
    """A function call whose arguments are passed on as they come."""

    __slots__ = ()

    def add(self, delta: Delta) -> list[ResponsesStreamEvent]:
        """One event. Mutates the item."""
        assert isinstance(delta, CallArguments), f"no arguments: {delta!r}"
        self._texts.append(delta.text)
        name = "response.function_call_arguments.delta"
        return [self._events.event(name, self._index, self._item, delta.text)]

    def close(self, status: Status, phase: Phase) -> tuple[list[ResponsesStreamEvent], Item]:
        """Two events: the arguments and the item."""
        done = dataclasses.replace(self._item, status=status, text="".join(self._texts))
        event, index = self._events.event, self._index
        events = [
            event("response.function_call_arguments.done", index, done),
            event("response.output_item.done", index, done),
        ]
        return events, done


class OpenCustomCall(_OpenCall[CustomCallItem]):
    """A call of a custom tool: its input is decoded from the arguments as they come."""

    __slots__ = ("_decoder",)

    def __init__(self, events: EventLog, index: int, item: CustomCallItem) -> None:
        super().__init__(events, index, item)
        self._decoder = InputDecoder()

    def add(self, delta: Delta) -> list[ResponsesStreamEvent]:
        """One event, or none when the delta brings no input. Mutates the item."""
        assert isinstance(delta, CallArguments), f"no arguments: {delta!r}"
        return self._more(self._decoder.add(delta.text))

    def close(self, status: Status, phase: Phase) -> tuple[list[ResponsesStreamEvent], Item]:
        """What is held as a last delta, then two events: the input and the item."""
        events = self._more(self._decoder.rest())
        done = dataclasses.replace(self._item, status=status, text="".join(self._texts))
        event, index = self._events.event, self._index
        events.append(event("response.custom_tool_call_input.done", index, done))
        events.append(event("response.output_item.done", index, done))
        return events, done

    def _more(self, text: str) -> list[ResponsesStreamEvent]:
        if not text:
            return []
        self._texts.append(text)
        name = "response.custom_tool_call_input.delta"
        return [self._events.event(name, self._index, self._item, text)]


class OpenSearchCall(_OpenCall[SearchCallItem]):
    """A call of the tool search: its arguments are read when they are complete."""

    __slots__ = ()

    def add(self, delta: Delta) -> list[ResponsesStreamEvent]:
        """No event. Mutates the item."""
        assert isinstance(delta, CallArguments), f"no arguments: {delta!r}"
        self._texts.append(delta.text)
        return []

    def close(self, status: Status, phase: Phase) -> tuple[list[ResponsesStreamEvent], Item]:
        """One event; arguments cut short or no JSON become `{}` of an incomplete item."""
        complete = status == "completed"
        arguments = event_json.respelled("".join(self._texts)) if complete else None
        done = dataclasses.replace(
            self._item,
            status="incomplete" if arguments is None else status,
            text="{}" if arguments is None else arguments,
        )
        return [self._events.event("response.output_item.done", self._index, done)], done
