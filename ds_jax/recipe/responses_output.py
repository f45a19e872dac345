"""The output items of a Responses answer.

Decides which kinds of items there are and how each is spelled. Never decides when an item begins or
ends. In: texts and ids. Out: JSON text.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from ds_jax.recipe import event_json
from ds_jax.recipe.deltas import TokenLogprob

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
Phase: TypeAlias = Literal["final_answer", "commentary"]
Logprobs: TypeAlias = tuple[TokenLogprob, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ReasoningItem:
    """Reasoning; `text` is None before its content part was added."""

    id: str
    encrypted_content: str
    status: Status = "in_progress"
    text: str | None = None

    def part_json(self) -> str:
        """The content part."""
        return f'{{"type":"reasoning_text","text":{event_json.quote(self.text or "")}}}'

    def to_json(self) -> str:
        """The item."""
        content = "" if self.text is None else self.part_json()
        return (
            f'{{"type":"reasoning","id":{event_json.quote(self.id)},"status":"{self.status}",'
            f'"content":[{content}],"summary":[],'
            f'"encrypted_content":{event_json.quote(self.encrypted_content)}}}'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class MessageItem:
    """Answer text; `text` is None before its content part was added."""

    id: str
    phase: Phase = "final_answer"
    status: Status = "in_progress"
    text: str | None = None
    logprobs: Logprobs = ()

    def part_json(self) -> str:
        """The content part."""
        return (
            f'{{"type":"output_text","annotations":[],'
            f'"logprobs":{event_json.logprobs(self.logprobs)},'
            f'"text":{event_json.quote(self.text or "")}}}'
        )

    def to_json(self) -> str:
        """The item."""
        content = "" if self.text is None else self.part_json()
        return (
            f'{{"type":"message","id":{event_json.quote(self.id)},"status":"{self.status}",'
            f'"role":"assistant","phase":"{self.phase}","content":[{content}]}}'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """A call of a function; `text` is its arguments."""

    id: str
    call_id: str
    name: str
    namespace: str | None = None
    status: Status = "in_progress"
    text: str = ""

    def to_json(self) -> str:
        """The item."""
        namespace = ""
        if self.namespace is not None:
            namespace = f'"namespace":{event_json.quote(self.namespace)},'
        return (
            f'{{"type":"function_call","id":{event_json.quote(self.id)},"status":"{self.status}",'
            f'"call_id":{event_json.quote(self.call_id)},"name":{event_json.quote(self.name)},'
            f'{namespace}"arguments":{event_json.quote(self.text)}}}'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class CustomCallItem:
    """A call of a custom tool; `text` is its input."""

    id: str
    call_id: str
    name: str
    status: Status = "in_progress"
    text: str = ""

    def to_json(self) -> str:
        """The item."""
        return (
            f'{{"type":"custom_tool_call","id":{event_json.quote(self.id)},'
            f'"status":"{self.status}","call_id":{event_json.quote(self.call_id)},'
            f'"name":{event_json.quote(self.name)},"input":{event_json.quote(self.text)}}}'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class SearchCallItem:
    """A search for tools that the caller carries out; `text` is its arguments, JSON."""

    id: str
    call_id: str
    status: Status = "in_progress"
    text: str = "{}"

    def to_json(self) -> str:
        """The item."""
        return (
            f'{{"type":"tool_search_call","id":{event_json.quote(self.id)},'
            f'"status":"{self.status}","call_id":{event_json.quote(self.call_id)},'
            f'"execution":"client","arguments":{self.text}}}'
        )


TextItem: TypeAlias = ReasoningItem | MessageItem
Item: TypeAlias = TextItem | FunctionCallItem | CustomCallItem | SearchCallItem
