"""Responses: the stream events.

Decides how each event is spelled: keys in alphabetical order after `type`. Never decides when an
event is sent. In: items and texts. Out: `ResponsesStreamEvent`s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ds_jax.recipe import event_json
from ds_jax.recipe.generator import consumed
from ds_jax.recipe.responses_output import (
    FunctionCallItem,
    Item,
    Logprobs,
    MessageItem,
    ReasoningItem,
)
from ds_jax.recipe.responses_snapshot import Snapshot

Subject: TypeAlias = Item | Snapshot
"""What an event is about."""


class ResponsesStreamEvent:
    """One event of a Responses stream; accumulating it uses it up."""

    __slots__ = ("_index", "_logprobs", "_name", "_sequence", "_subject", "_text")

    _name: str | None

    def __init__(
        self,
        name: str,
        sequence: int,
        index: int,
        subject: Subject,
        text: str = "",
        logprobs: Logprobs = (),
    ) -> None:
        self._name = name
        self._sequence = sequence
        self._index = index
        self._subject = subject
        self._text = text
        self._logprobs = logprobs

    def to_json(self) -> str:
        """The event as compact JSON.

        Raises:
          RuntimeError: the event was accumulated.
        """
        name = self._check()
        fields = _WRITERS[name](
            self._subject, self._index, self._sequence, self._text, self._logprobs
        )
        return f'{{"type":"{name}",{fields}}}'

    def _check(self) -> str:
        """The name; refuses a used event."""
        if self._name is None:
            raise consumed()
        return self._name

    def _consume(self) -> tuple[str, int, Subject, str, Logprobs]:
        """Takes the contents out; the event is used up."""
        name = self._check()
        self._name = None
        return name, self._index, self._subject, self._text, self._logprobs


_Writer: TypeAlias = Callable[[Subject, int, int, str, Logprobs], str]


def _response(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    return f'"response":{subject.to_json()},"sequence_number":{sequence}'


def _item(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    return f'"item":{subject.to_json()},"output_index":{index},"sequence_number":{sequence}'


def _part(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    assert isinstance(subject, MessageItem | ReasoningItem), f"no content part: {subject!r}"
    return (
        f'"content_index":0,{_place(subject, index)},"part":{subject.part_json()},'
        f'"sequence_number":{sequence}'
    )


def _text_delta(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    more = ""
    if isinstance(subject, MessageItem):
        more = f'"logprobs":{event_json.logprobs(logprobs) if logprobs else "[]"},'
    return (
        f'"content_index":0,"delta":{event_json.quote(text)},"item_id":{event_json.quote(subject.id)},'
        f'{more}"output_index":{index},"sequence_number":{sequence}'
    )


def _text_done(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    more = ""
    if isinstance(subject, MessageItem):
        more = f'"logprobs":{event_json.logprobs(subject.logprobs)},'
    assert isinstance(subject, MessageItem | ReasoningItem), f"no text: {subject!r}"
    return (
        f'"content_index":0,"item_id":{event_json.quote(subject.id)},{more}'
        f'"output_index":{index},"sequence_number":{sequence},'
        f'"text":{event_json.quote(subject.text or "")}'
    )


def _call_delta(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    return f'"delta":{event_json.quote(text)},{_place(subject, index)},"sequence_number":{sequence}'


def _call_done(subject: Subject, index: int, sequence: int, text: str, logprobs: Logprobs) -> str:
    assert not isinstance(subject, Snapshot), "a response is no call"
    key = "arguments" if isinstance(subject, FunctionCallItem) else "input"
    return (
        f'"{key}":{event_json.quote(subject.text or "")},{_place(subject, index)},'
        f'"sequence_number":{sequence}'
    )


def _place(subject: Subject, index: int) -> str:
    return f'"item_id":{event_json.quote(subject.id)},"output_index":{index}'


_WRITERS: dict[str, _Writer] = {
    "response.created": _response,
    "response.in_progress": _response,
    "response.completed": _response,
    "response.incomplete": _response,
    "response.output_item.added": _item,
    "response.output_item.done": _item,
    "response.content_part.added": _part,
    "response.content_part.done": _part,
    "response.reasoning_text.delta": _text_delta,
    "response.reasoning_text.done": _text_done,
    "response.output_text.delta": _text_delta,
    "response.output_text.done": _text_done,
    "response.function_call_arguments.delta": _call_delta,
    "response.function_call_arguments.done": _call_done,
    "response.custom_tool_call_input.delta": _call_delta,
    "response.custom_tool_call_input.done": _call_done,
}
